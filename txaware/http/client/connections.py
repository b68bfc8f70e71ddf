"""Connections that are kept open: the latest idle one is used next.

They are httpcore's, but its pool is not used: it looks at every connection three times
or more for each request. With 64 idle ones that costs more than the request, and 500
that end their long polls at once kept an event loop busy for half a minute.
"""

import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any

import httpcore

from txaware.http.client.link import Link, ServerPlace

# Servers close idle connections, after a minute or so: before they do, we do, so that
# nothing is sent just when it can no longer arrive.
KEEP_IDLE_S = 25.0
# A server that vanished without a word is noticed after a minute, where an answer may
# take longer than that.
_PROBES = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


def connection_options(
    link: Link, network_backend: Any = None, *, place: ServerPlace | None = None
) -> dict[str, Any]:
    """Returns the options that every connection is made with, sync and async."""
    place = place or link.place
    secure = place.address.scheme == "https"
    return {
        "origin": place.origin,
        "ssl_context": link.settings.ssl_context() if secure else None,
        "keepalive_expiry": KEEP_IDLE_S,
        "network_backend": network_backend,
        "socket_options": [
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            *(
                (socket.IPPROTO_TCP, getattr(socket, name), value)
                for name, value in _PROBES
                if hasattr(socket, name)
            ),
        ],
    }


class _Turn:
    """The turn of a thread that takes, or waits to; `granted` once it has come."""

    __slots__ = ("granted", "woken")

    def __init__(self, *, granted: bool = False) -> None:
        self.granted = granted
        self.woken: SimpleQueue[None] = SimpleQueue()


class FairSemaphore:
    """Serves threads in the order in which they came.

    That of `threading` lets a thread that has just released take again at once: with
    many threads one of them waits until its time-out. An interrupt loses none: what is
    granted is granted in one step, and goes on to the next one.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._waiting: deque[_Turn] = deque()

    def acquire(self, timeout: float) -> bool:
        """Takes one; False when none came in time."""
        turn = _Turn()
        try:
            with self._lock:
                if self._count and not self._waiting:
                    self._count -= 1
                    turn.granted = True
                    return True
                self._waiting.append(turn)
            self._wait(turn, time.monotonic() + timeout)
            with self._lock:
                if turn in self._waiting:
                    self._waiting.remove(turn)
        except BaseException:
            self._give_back(turn)
            raise
        return turn.granted

    def _wait(self, turn: _Turn, until_s: float) -> None:
        with suppress(Empty):
            while not turn.granted:
                turn.woken.get(timeout=max(0.0, until_s - time.monotonic()))
                with self._lock:  # until the thread that woke this one is done
                    pass

    def release(self) -> None:
        """Gives one to the thread that has waited longest."""
        self._give_back(_Turn(granted=True))

    def _give_back(self, turn: _Turn) -> None:
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif not turn.granted:
                return
            elif self._waiting:
                following = self._waiting[0]
                following.woken.put(None)
                turn.granted, following.granted = False, True
                self._waiting.popleft()
            else:
                self._count += 1
                turn.granted = False


class Connections:
    """Connections, each for one request at a time; any number of threads may ask.

    No lock is held that a fork could find taken, but for the count of free ones.
    """

    def __init__(self, limit: int, options: dict[str, Any]) -> None:
        self._options = options
        self._free = FairSemaphore(limit)
        self._idle: deque[httpcore.HTTPConnection] = deque()
        self._used: set[httpcore.HTTPConnection] = set()
        self._closed = False

    @property
    def in_use(self) -> int:
        """The number of connections that have a request under way."""
        return len(self._used)

    @property
    def idle(self) -> int:
        """The number of connections that wait for a request."""
        return len(self._idle)

    @contextmanager
    def one(self, timeout_s: float) -> Iterator[httpcore.HTTPConnection]:
        """Lends a connection for one request; `PoolTimeout` if none is free.

        A connection that is not at the end of its answer afterwards is closed.
        """
        if not self._free.acquire(timeout=timeout_s):
            raise httpcore.PoolTimeout
        try:
            connection = self._latest() or httpcore.HTTPConnection(**self._options)
            self._used.add(connection)
            try:
                if self._closed:  # just now, and it was not seen there
                    raise httpcore.ConnectError("this client is closed")
                yield connection
            finally:
                self._used.discard(connection)
                self._give_back(connection)
        finally:
            self._free.release()

    def _latest(self) -> httpcore.HTTPConnection | None:
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if not connection.has_expired():
                    return connection
                connection.close()
        return None

    def _give_back(self, connection: httpcore.HTTPConnection) -> None:
        if self._closed or not is_at_end(connection):
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:  # just now
            self.close()
        elif len(self._idle) > 1:
            self._let_go_of_oldest()

    def _let_go_of_oldest(self) -> None:
        """Closes the oldest idle one, which might else stay open for ever."""
        with suppress(IndexError):
            oldest = self._idle.popleft()
            if oldest.has_expired():
                oldest.close()
            else:
                self._idle.appendleft(oldest)
                if self._closed:  # just now, when it was in nobody's hands
                    self.close()

    def close(self) -> None:
        """Closes all; a thread that waits for an answer is told at once.

        Those in use are closed by their users: a socket that is closed under a thread
        leaves it waiting, and its number to the next one that is opened.
        """
        self._closed = True
        for connection in list(self._used):
            with suppress(Exception):
                _shut_down(connection)
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def forsake(self) -> None:
        """Closes this process's copies; those of its parent, if any, stay open."""
        self._closed = True
        for connection in (*self._idle, *self._used):
            with suppress(Exception):
                connection.close()
        self._idle.clear()


def is_at_end(connection: Any) -> bool:
    """Tells whether the next answer that comes is that to the next request.

    What a server sent beyond the end of an answer waits in h11's buffer.
    """
    if not connection.is_available():
        return False
    beyond, ended = connection._connection._h11_state.trailing_data
    return not beyond and not ended


def _shut_down(connection: httpcore.HTTPConnection) -> None:
    # A thread that reads from a socket does not notice that another one closes it.
    # The lock is held while it connects, which has an end.
    with connection._request_lock:
        http11: Any = connection._connection
    http11._network_stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def shown(*pools: Any) -> str:
    """Returns how many connections there are, as an operator wants it."""
    in_use = sum(pool.in_use for pool in pools)
    return f"{in_use} connections in use, {sum(pool.idle for pool in pools)} idle"
