"""A connection of frames for any number of threads.

No thread of its own reads: of those that wait for an answer one reads for all, and
hands that on when it has its own. A call alone has no change of threads.
"""

import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import httpcore

from txaware.client.calls.call import CallTimeout, Deadline
from txaware.client.frame_streams import FramedAnswer, FrameStreams
from txaware.client.http11 import HttpRequest
from txaware.client.http_connection import (
    KEEP_IDLE_S,
    HttpConnection,
    NotGranted,
)
from txaware.protocol.frames import (
    FRAMES_PATH,
    PIECE_BYTES,
    PROTOCOL,
    SERVER,
    WHOLE_BYTES,
    RequestHead,
)

UPGRADE = [(b"Connection", b"upgrade"), (b"Upgrade", PROTOCOL.encode())]
# A thread that cannot write looks so often whether it has to read meanwhile.
_LOOK_MS = 20
_CREDIT_S = 30.0
# A frame with a whole body comes in one read.
_READ_BYTES = WHOLE_BYTES + 4096


def upgrade_request(request: HttpRequest, prefix: str) -> HttpRequest:
    """Returns the request that asks a server for frames, in the time of another one."""
    shared = (b"Host", b"Authorization", SERVER)
    headers = [header for header in request.headers if header[0] in shared]
    return request._replace(
        method="GET", path=prefix + FRAMES_PATH, headers=[*headers, *UPGRADE], body=b""
    )


class FrameConnection:
    """One connection; calls of any threads are under way on it at once."""

    def __init__(self, http: HttpConnection) -> None:
        self._http = http
        self._socket: Any = None
        self._streams = FrameStreams()
        # Of the streams; a signal's handler may close within it.
        self._state = threading.RLock()
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._one_at_a_time = threading.Lock()  # TLS reads or writes
        self._in_poll, self._out_poll = select.poll(), select.poll()
        self._dead: Exception | None = None
        self._used_s = time.monotonic()
        self._is_tls = False
        self.heard = 0  # how often something has come
        self._silent_since = -1  # what was heard when a call last waited in vain
        self._unsent = memoryview(b"")  # what has its turn, of whoever writes

    @property
    def version(self) -> str:
        """The software of the server, as it says."""
        hello = self._streams.hello
        return "" if hello is None else hello.software

    @property
    def _is_read_elsewhere(self) -> bool:
        """True while it is no thread with a call that reads."""
        return False

    @property
    def in_use(self) -> int:
        """1 while calls are under way on it."""
        return int(self._dead is None and self._streams.is_in_use)

    @property
    def idle(self) -> int:
        """1 while it waits for a call."""
        return int(self._dead is None and not self._streams.is_in_use)

    def connect(self, request: HttpRequest) -> None:
        """Connects and asks for frames; `NotGranted` where the answer is another.

        The connection is one of HTTP then, as it was.
        """
        try:
            self._connect(request)
        except NotGranted:
            raise
        except BaseException:
            self._dead = httpcore.ConnectError("it was not made")
            self._http.close()
            raise

    def _connect(self, request: HttpRequest) -> None:
        stream, rest = self._http.upgrade(request)
        self._socket = stream.get_extra_info("socket")
        self._is_tls = isinstance(self._socket, ssl.SSLSocket)
        self._socket.setblocking(False)
        self._in_poll.register(self._socket, select.POLLIN)
        self._out_poll.register(self._socket, select.POLLOUT)
        self._streams.fed(rest)
        until_s = time.monotonic() + request.read_s
        with self._reading:
            self._flush(request.deadline, request.write_s)
            while self._streams.hello is None:
                left_s = request.deadline.within(until_s - time.monotonic())
                if left_s <= 0:
                    raise httpcore.ReadTimeout("it sent no HELLO")
                self._read(left_s)

    def is_usable(self) -> bool:
        """Tells whether a call may go out on it; looks whether the server closed it."""
        if self._dead is not None:
            return False
        if self._streams.is_in_use:
            return True
        if time.monotonic() - self._used_s > KEEP_IDLE_S:
            self.lose("it was idle for long")
            return False
        if self._reading.acquire(blocking=False):
            try:
                with suppress(Exception):
                    self._read(0)
            finally:
                self._reading.release()
            if self._streams.is_in_use:  # by a thread that could not read just now
                self._hand_on()
        if self._dead is not None:
            self._close_socket()
        return self._dead is None

    def ask(self, head: RequestHead, body: bytes, request: HttpRequest) -> FramedAnswer:
        """Sends a request, and returns its whole answer."""
        answer = self._begin(head, body, request)
        try:
            self._flush(request.deadline, request.write_s)
            self._await(answer, request)
        except httpcore.ReadTimeout as error:
            self._waited_in_vain(answer, error)
            raise
        finally:
            self._ended(answer, request)
        return answer

    def stream(
        self, head: RequestHead, body: bytes, request: HttpRequest
    ) -> Iterator[tuple[FramedAnswer, list[bytes]]]:
        """Yields the pieces of an answer, as they come."""
        answer = self._begin(head, body, request, is_streamed=True)
        try:
            self._flush(request.deadline, request.write_s)
            while True:
                self._await(answer, request)
                self._hand_on()
                is_complete = answer.is_complete
                yield answer, answer.take_pieces()
                if is_complete:
                    return
                with self._state:
                    self._streams.taken(answer)
                self._flush(request.deadline, request.write_s)
        finally:
            self._ended(answer, request)

    def _begin(
        self,
        head: RequestHead,
        body: bytes,
        request: HttpRequest,
        *,
        is_streamed: bool = False,
    ) -> FramedAnswer:
        with self._state:
            if self._dead is not None:
                raise httpcore.ConnectError("the connection was lost") from self._dead
            if self._streams.is_full:
                raise httpcore.PoolTimeout
            answer = self._streams.begin(
                head, body, request.answer_bytes, is_streamed=is_streamed
            )
            if self._dead is not None:  # just now, and it was not seen there
                self._streams.forget(answer)
                raise httpcore.ConnectError("the connection was lost") from self._dead
            answer.heard_before = self.heard
            return answer

    def _waited_in_vain(
        self, answer: FramedAnswer, error: httpcore.ReadTimeout
    ) -> None:
        """Gives the connection up where two calls waited for long, and nothing came.

        One may be a call that takes long. What is behind a connection that is only
        silent may be gone, and every later call would wait in vain as well.
        """
        if isinstance(error, CallTimeout) or answer.heard_before != self.heard:
            return
        if self._silent_since == self.heard:
            self.lose("nothing came for as long as two calls wait for an answer")
        self._silent_since = self.heard

    def _ended(self, answer: FramedAnswer, request: HttpRequest) -> None:
        """Ends a call; the server hears of one that is not answered."""
        self._used_s = time.monotonic()
        if not answer.is_over and self._dead is None:
            with self._state:
                self._streams.forget(answer)
        # An interrupt may have come between what this thread wrote and its look at
        # what others have left to it.
        if self._has_unsent:
            with suppress(Exception):
                self._flush(None, request.write_s)
        if self._streams.is_in_use:
            self._hand_on()
        if self._dead is not None:
            self._close_socket()

    def _await(self, answer: FramedAnswer, request: HttpRequest) -> None:
        """Returns once an answer is whole, or has more; one thread reads for all.

        Whoever calls it wakes another thread to read afterwards.
        """
        woken: SimpleQueue[None] | None = None
        while not answer.is_there:
            if not self._is_read_elsewhere and self._reading.acquire(blocking=False):
                try:
                    while not (answer.is_there or self._is_read_elsewhere):
                        self._read(answer.left_s(request))
                finally:
                    self._reading.release()
            elif woken is None:  # and once more: it may have come just before
                woken = SimpleQueue()
                answer.notify = partial(woken.put, None)
            else:
                with suppress(Empty):
                    woken.get(timeout=answer.left_s(request))
        if answer.error is not None:
            raise answer.error

    def _hand_on(self) -> None:
        """Wakes a thread to read, where some wait and nobody reads."""
        if self._is_read_elsewhere or self._reading.locked():
            return
        for answer in self._streams.under_way:
            answer.notify()
            return

    def _read(self, timeout_s: float) -> None:
        """Reads what comes within that time, for all; of the one thread that reads.

        An interrupt while nothing came loses nothing. Where something may be lost, the
        connection is.
        """
        has_more = self._is_tls and self._socket.pending()
        if has_more or self._in_poll.poll(timeout_s * 1000):
            self._receive()

    def _receive(self) -> None:
        """Takes what has come; where that is wrong, the connection is lost."""
        try:
            has_come = self._take()
        except BaseException as error:
            self._die(error)
            if not isinstance(error, Exception):
                raise
            return
        if has_come and self._streams.queue.is_ready:
            self._after_read()

    def _take(self) -> bool:
        """Takes what has come; False where nothing has."""
        try:
            if self._is_tls:
                with self._one_at_a_time:
                    data = self._socket.recv(_READ_BYTES)
            else:
                data = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        if not data:
            raise httpcore.RemoteProtocolError("it ended")
        self.heard += 1
        with self._state:
            self._streams.fed(data)
        return True

    def _after_read(self) -> None:
        """Gives the credit that is due."""
        self._flush(None, _CREDIT_S, is_reading=True)

    @property
    def _has_unsent(self) -> bool:
        return bool(self._unsent) or self._streams.queue.is_ready

    def _flush(
        self, deadline: Deadline | None, write_s: float, *, is_reading: bool = False
    ) -> None:
        """Writes what has its turn; where another thread writes, that one does.

        It looks once more after it has let go. Nobody waits for it, as it may wait
        until the server is read from.
        """
        while self._has_unsent and self._dead is None:
            if not self._writing.acquire(blocking=False):
                return
            try:
                self._write_all(deadline, write_s, is_reading=is_reading)
            finally:
                self._writing.release()

    def _write_all(
        self, deadline: Deadline | None, write_s: float, *, is_reading: bool
    ) -> None:
        """Writes the next piece as a whole; of the one thread that writes.

        Where there is no room it reads meanwhile, as a server that is not read from
        reads nothing. One that `is_reading` is the one that reads for all.
        """
        until_s = None
        try:
            while not self._write_some():
                if until_s is None:
                    until_s = time.monotonic() + write_s
                self._await_room(until_s, deadline, is_reading=is_reading)
        except BaseException as error:
            self._die(error)
            is_told = isinstance(error, httpcore.TimeoutException)
            if is_told or not isinstance(error, Exception):
                raise

    def _write_some(self) -> bool:
        """Writes the next piece; False where there is no room for all of it."""
        if not self._unsent:
            with self._state:
                if self._dead is not None:  # and whose turn it was is told so
                    return True
                data = self._streams.queue.take_bytes(PIECE_BYTES)
            self._unsent = memoryview(data)
        try:
            while self._unsent:
                if self._is_tls:
                    with self._one_at_a_time:
                        sent = self._socket.send(self._unsent)
                else:
                    sent = self._socket.send(self._unsent)
                self._unsent = self._unsent[sent:]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return False
        return True

    def _await_room(
        self, until_s: float, deadline: Deadline | None, *, is_reading: bool
    ) -> None:
        if time.monotonic() > until_s:
            raise httpcore.WriteTimeout
        if deadline is not None:
            deadline.within(1)
        if self._out_poll.poll(_LOOK_MS):
            return
        if is_reading or self._reading.acquire(blocking=False):
            try:
                if self._in_poll.poll(0):
                    self._take()
            finally:
                if not is_reading:
                    self._reading.release()

    def _die(self, error: BaseException) -> None:
        """Ends all calls: the connection is lost."""
        known = isinstance(error, httpcore.NetworkError | httpcore.ProtocolError)
        why = error if known else httpcore.ReadError(str(error) or type(error).__name__)
        with self._state:
            if self._dead is not None:
                return
            self._dead = why  # type: ignore[assignment]
            self._streams.fail(why)  # type: ignore[arg-type]
        with suppress(Exception):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _close_socket(self) -> None:
        """Closes what is lost, once no thread reads from it or writes to it.

        The number of a socket that is closed under one would be the next one's.
        """
        if self._dead is None or self._socket is None:
            return
        while self._reading.acquire(blocking=False):
            try:
                is_unused = self._writing.acquire(blocking=False)
                if is_unused:
                    try:
                        self._http.close()
                    finally:
                        self._writing.release()
            finally:
                self._reading.release()
            # A thread that let go of writing in the meantime found reading taken.
            if is_unused or self._writing.locked():
                return

    def close(self) -> None:
        """Closes it; threads that wait are told at once."""
        self.lose("this client is closed")

    def lose(self, why: str) -> None:
        """Closes it: what was asked may have been done, unless it was not sent yet."""
        self._die(httpcore.ReadError(why))
        self._close_socket()

    def forsake(self) -> None:
        """Closes this process's copy; that of its parent stays open."""
        self._dead = httpcore.ConnectError("it is another process's")
        with suppress(Exception):
            self._http.close()
