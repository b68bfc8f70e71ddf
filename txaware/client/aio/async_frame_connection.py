"""A connection of frames for the tasks of one event loop, and for its threads.

The event loop reads it, and nobody else; whoever asks writes. So a call of a thread
wakes the loop once, for its answer.
"""

import asyncio
import threading
import time
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

import httpcore

from txaware.client.frame_connection import FrameConnection
from txaware.client.frame_streams import FramedAnswer
from txaware.client.http11 import HttpRequest
from txaware.client.http_connection import KEEP_IDLE_S, HttpConnection
from txaware.protocol.frames import RequestHead


def _nothing() -> None:
    """Tells nobody."""


class AsyncFrameConnection(FrameConnection):
    """One connection; calls of tasks, and of threads that block, are under way at once.

    Tasks begin a call and await its answer; threads `ask`.
    """

    def __init__(self, http: HttpConnection) -> None:
        super().__init__(http)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._flushes = self._is_read = self._waits_to_write = False

    async def open(self, request: HttpRequest) -> None:
        """Connects and asks for frames; `NotGranted` where the answer is another.

        Who connects blocks, in a thread that ends by itself.
        """
        made: asyncio.Future[None] = self._loop.create_future()

        def ended(error: BaseException | None) -> None:
            if made.done():  # nobody waits for it any more
                self.close()
            elif error is None:
                made.set_result(None)
            else:
                made.set_exception(error)

        def connect() -> None:
            outcome: BaseException | None = None
            try:
                self.connect(request)
            except BaseException as error:
                self._http.close()
                outcome = error
            try:
                self._loop.call_soon_threadsafe(ended, outcome)
            except RuntimeError:  # the loop is closed
                self.close()

        threading.Thread(target=connect, name="connecting", daemon=True).start()
        try:
            await made
        except asyncio.CancelledError:
            with suppress(Exception):
                self._http.shut_down()
            raise
        self._loop.add_reader(self._socket, self._readable)
        self._is_read = True
        self._readable()

    @property
    def is_fresh(self) -> bool:
        """True while a call may go out on it."""
        is_used = time.monotonic() - self._used_s <= KEEP_IDLE_S
        return self._dead is None and (is_used or bool(self.in_use))

    # ---- calls of tasks
    def begin(
        self, head: RequestHead, body: bytes, request: HttpRequest
    ) -> FramedAnswer:
        """Sends a request; `forget` has to follow, whatever comes of it."""
        answer = self._begin(head, body, request, _nothing)
        self._flush_soon()
        return answer

    async def whole(self, answer: FramedAnswer, request: HttpRequest) -> FramedAnswer:
        """Returns an answer once it is whole."""
        while not answer.is_over:
            came: asyncio.Future[None] = self._loop.create_future()
            answer.notify = partial(self._tell, came)
            left_s = answer.came_s + request.read_s - time.monotonic()
            left_s = request.deadline.within(left_s)
            if left_s <= 0:
                raise httpcore.ReadTimeout
            if answer.is_over:  # by a thread that ended it just now
                break
            timer = self._loop.call_later(left_s, _set, came)
            try:
                await came
            finally:
                timer.cancel()
                answer.notify = _nothing
        if answer.error is not None:
            raise answer.error
        return answer

    async def rest(self, answer: FramedAnswer, request: HttpRequest) -> FramedAnswer:
        """Returns an answer under way once it is whole, and ends its call."""
        try:
            return await self.whole(answer, request)
        finally:
            self.forget(answer)

    def end_wait(self, answer: FramedAnswer) -> None:
        """Has the server answer with what it has by now."""
        with self._state:
            if self._dead is None:
                self._streams.end_wait(answer)
        self._flush_soon()

    def forget(self, answer: FramedAnswer) -> None:
        """Ends a call; the server hears of one that is not answered."""
        self._used_s = time.monotonic()
        if not answer.is_over and self._dead is None:
            with self._state:
                self._streams.forget(answer)
            self._flush_soon()

    def _tell(self, came: "asyncio.Future[None]") -> None:
        """Wakes the task that waits, also from a thread that ended the connection."""
        if threading.get_ident() == self._thread:
            _set(came)
        else:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_set, came)

    # ---- calls of threads
    def _await(
        self,
        answer: FramedAnswer,
        woken: "SimpleQueue[None]",
        request: HttpRequest,
        *,
        is_streamed: bool = False,
    ) -> None:
        """Returns once an answer is whole: the event loop reads it."""
        while not answer.is_over:
            left_s = self._left_s(answer, request, is_streamed=is_streamed)
            if self._loop.is_closed():
                raise httpcore.ReadError("its event loop has ended")
            with suppress(Empty):
                woken.get(timeout=left_s)
        if answer.error is not None:
            raise answer.error

    def _hand_on(self) -> None:
        """Does nothing: no thread reads for the others."""

    # ---- the event loop
    def _readable(self) -> None:
        """Reads what came, as long as TLS has some more."""
        self._receive()
        while self._dead is None and self._is_tls and self._socket.pending():
            self._receive()
        if self._dead is not None:
            self._detach()

    def _after_read(self) -> None:
        if self._is_read:
            self._flush_here()
        else:  # it is being made, in a thread
            super()._after_read()

    def _read_meanwhile(self) -> None:
        """Does nothing: the event loop reads."""

    def _flush_soon(self) -> None:
        """Writes what all tasks of this turn of the event loop ask, in one piece."""
        if not self._flushes:
            self._flushes = True
            self._loop.call_soon(self._flush_here)

    def _flush_here(self) -> None:
        """Writes what can be written at once.

        Where a thread writes, it goes on with this as well.
        """
        self._flushes = False
        while self._has_unsent and self._dead is None:
            if not self._writing.acquire(blocking=False):
                return
            try:
                is_all = self._write_some()
            except Exception as error:
                self._die(error)
                return
            finally:
                self._writing.release()
            if not is_all:
                if not self._waits_to_write:
                    self._waits_to_write = True
                    self._loop.add_writer(self._socket, self._writable)
                return

    def _writable(self) -> None:
        self._loop.remove_writer(self._socket)
        self._waits_to_write = False
        self._flush_here()

    def _die(self, error: BaseException) -> None:
        super()._die(error)
        if self._loop.is_closed():
            self._is_read = False
            self._close_socket()
        elif threading.get_ident() == self._thread:
            self._detach()

    def _detach(self) -> None:
        """Watches the socket no more, and closes it."""
        if self._is_read:
            self._is_read = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._close_socket()

    def _close_socket(self) -> None:
        if not self._is_read:  # the loop, which watches it, closes it
            super()._close_socket()


def _set(came: "asyncio.Future[None]") -> None:
    if not came.done():
        came.set_result(None)
