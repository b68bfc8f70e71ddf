"""Connections that are kept open: the latest idle one is used next."""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import httpcore

from txaware.client.http_connection import HttpConnection, ServerAddress
from txaware.client.link import Link, ServerPlace

C = TypeVar("C")

# A server that vanished without a word is noticed after a minute, where an answer may
# take longer than that.
_PROBES = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


def destination(link: Link, place: ServerPlace | None = None) -> ServerAddress:
    """Returns where connections to a place go, and how they are made."""
    address = (place or link.place).address
    context = None
    if address.scheme == "https":
        context = link.settings.ssl_context()
        context.set_alpn_protocols(["http/1.1"])
    probes = [
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in _PROBES
        if hasattr(socket, name)
    ]
    return ServerAddress(
        address.host,
        address.port,
        link.settings.connect_timeout_s,
        context,
        [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *probes],
    )


class _ConnectionTurn:
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
        self._waiting: deque[_ConnectionTurn] = deque()

    def acquire(self, timeout: float) -> bool:
        """Takes one; False when none came in time."""
        turn = _ConnectionTurn()
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

    def _wait(self, turn: _ConnectionTurn, until_s: float) -> None:
        with suppress(Empty):
            while not turn.granted:
                turn.woken.get(timeout=max(0.0, until_s - time.monotonic()))
                with self._lock:  # until the thread that woke this one is done
                    pass

    def release(self) -> None:
        """Gives one to the thread that has waited longest."""
        self._give_back(_ConnectionTurn(granted=True))

    def _give_back(self, turn: _ConnectionTurn) -> None:
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


class CountedConnections(Generic[C]):
    """The connections of a pool, and how many there are."""

    def __init__(self) -> None:
        self._idle: deque[C] = deque()
        self._used: set[C] = set()
        self._closed = False

    @property
    def in_use(self) -> int:
        """The number of connections that have a request under way."""
        return len(self._used)

    @property
    def idle(self) -> int:
        """The number of connections that wait for a request."""
        return len(self._idle)


class ConnectionPool(CountedConnections[HttpConnection]):
    """Connections, each for one request at a time; any number of threads may ask.

    No lock is held that a fork could find taken, but for the count of free ones.
    """

    def __init__(self, limit: int, connect: Callable[[], HttpConnection]) -> None:
        super().__init__()
        self._connect = connect
        self._free = FairSemaphore(limit)

    @contextmanager
    def one(self, timeout_s: float) -> Iterator[HttpConnection]:
        """Lends a connection for one request; `PoolTimeout` if none is free.

        A connection that is not at the end of its answer afterwards is closed.
        """
        if not self._free.acquire(timeout=timeout_s):
            raise httpcore.PoolTimeout
        try:
            connection = self._latest() or self._connect()
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

    def adopt(self, connection: HttpConnection) -> None:
        """Takes a connection that was made elsewhere, if it is at its end."""
        self._give_back(connection)

    def _latest(self) -> HttpConnection | None:
        with suppress(IndexError):
            while True:
                connection = self._idle.pop()
                if not connection.has_expired():
                    return connection
                connection.close()
        return None

    def _give_back(self, connection: HttpConnection) -> None:
        if self._closed or not connection.is_at_end:
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
                connection.shut_down()
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


def shown(*pools: Any) -> str:
    """Returns how many connections there are, as an operator wants it."""
    in_use = sum(pool.in_use for pool in pools)
    return f"{in_use} connections in use, {sum(pool.idle for pool in pools)} idle"
