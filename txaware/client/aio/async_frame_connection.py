"""A connection of frames for the tasks of one event loop, and for its threads.

Whoever asks writes. The event loop reads as long as tasks ask, and else the threads do,
as without a loop: to read for each other costs both of them a change of threads.
"""

import asyncio
import threading
import time
from contextlib import suppress
from functools import partial

import httpcore

from txaware.client.frame_connection import FrameConnection
from txaware.client.frame_streams import FramedAnswer, nothing
from txaware.client.http11 import HttpRequest
from txaware.client.http_connection import KEEP_IDLE_S, HttpConnection
from txaware.protocol.frames import RequestHead

# The time after the last call of a task in which the event loop still reads.
WATCH_S = 0.1


class AsyncFrameConnection(FrameConnection):
    """One connection; calls of tasks, and of threads that block, are under way at once.

    Tasks begin a call and await its answer; threads `ask`.
    """

    def __init__(self, http: HttpConnection) -> None:
        super().__init__(http)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._flushes = self._is_watched = self._waits_to_write = False
        self._tasks, self._task_s = 0, 0.0  # calls of tasks under way, and the last one

    async def open(self, request: HttpRequest) -> None:
        """Connects and asks for frames; `NotGranted` where the answer is another.

        Who connects blocks, in a thread that ends by itself.
        """
        made: asyncio.Future[None] = self._loop.create_future()
        given_up, handing_over = threading.Event(), threading.Lock()

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
            with handing_over:
                if given_up.is_set():  # the loop may have had its last turn
                    self.close()
                    return
                try:
                    self._loop.call_soon_threadsafe(ended, outcome)
                except RuntimeError:  # the loop is closed
                    self.close()

        threading.Thread(target=connect, name="connecting", daemon=True).start()
        try:
            await made
        except asyncio.CancelledError:
            with handing_over:
                given_up.set()
            if not made.cancelled():  # it was connected just then
                self.close()
            with suppress(Exception):
                self._http.shut_down()
            raise

    def is_usable(self) -> bool:
        """Tells whether a call may go out on it, of a task or a thread."""
        if not self._is_read_elsewhere:
            return super().is_usable()
        if not self.in_use and time.monotonic() - self._used_s > KEEP_IDLE_S:
            self.lose("it was idle for long")
        return self._dead is None

    # ---- calls of tasks
    def begin(
        self,
        head: RequestHead,
        body: bytes,
        request: HttpRequest,
        *,
        is_streamed: bool = False,
    ) -> FramedAnswer:
        """Sends a request; `forget` has to follow, whatever comes of it.

        The pieces of an answer that is streamed have to be taken, and told by `took`.
        """
        answer = self._begin(head, body, request, is_streamed=is_streamed)
        self._tasks += 1
        self._watch()
        self._flush_soon()
        return answer

    async def whole(self, answer: FramedAnswer, request: HttpRequest) -> FramedAnswer:
        """Returns an answer once it is whole."""
        while not answer.is_over:
            came: asyncio.Future[None] = self._loop.create_future()
            answer.notify = partial(self._tell, came)
            try:
                left_s = answer.left_s(request)
            except httpcore.ReadTimeout as error:
                self._waited_in_vain(answer, error)
                raise
            if answer.is_over:  # by a thread that ended it just now
                break
            timer = self._loop.call_later(left_s, _set, came)
            try:
                await came
            finally:
                timer.cancel()
                answer.notify = nothing
        if answer.error is not None:
            raise answer.error
        return answer

    def took(self, answer: FramedAnswer) -> None:
        """Lets the server send more of an answer whose pieces were taken."""
        with self._state:
            self._streams.taken(answer)
        if self._streams.queue.is_ready:
            self._flush_soon()

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
        self._tasks -= 1
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

    # ---- the event loop
    @property
    def _is_read_elsewhere(self) -> bool:
        return self._is_watched and not self._loop.is_closed()

    def _watch(self) -> None:
        """Has the event loop read, as long as tasks have calls."""
        self._task_s = time.monotonic()
        if not self._is_watched and self._dead is None:
            self._is_watched = True
            self._loop.add_reader(self._socket, self._readable)
            self._loop.call_later(WATCH_S, self._look)

    def _look(self) -> None:
        """Leaves the reading to threads, where tasks have not called for a while."""
        if not self._is_watched:
            return
        if self._tasks or time.monotonic() - self._task_s < WATCH_S:
            self._loop.call_later(WATCH_S, self._look)
            return
        self._is_watched = False
        self._loop.remove_reader(self._socket)
        self._hand_on()

    def _readable(self) -> None:
        """Reads what came, as long as TLS has some more.

        A thread that just began to do so ends with it.
        """
        if self._reading.acquire(blocking=False):
            try:
                self._receive()
                while self._dead is None and self._is_tls and self._socket.pending():
                    self._receive()
            finally:
                self._reading.release()
        if self._dead is not None:
            self._detach()

    def _after_read(self) -> None:
        if threading.get_ident() == self._thread:
            self._flush_here()
        else:
            super()._after_read()

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
            finally:
                self._writing.release()
            if self._dead is not None:
                self._detach()  # which closes nothing that is being written to
                return
            if not is_all:
                if not self._waits_to_write:
                    self._waits_to_write = True
                    self._loop.add_writer(self._socket, self._writable)
                return

    def _writable(self) -> None:
        self._loop.remove_writer(self._socket)
        self._waits_to_write = False
        if self._dead is None:
            self._flush_here()
        else:
            self._detach()

    def _die(self, error: BaseException) -> None:
        super()._die(error)
        if self._loop.is_closed():
            self._is_watched = self._waits_to_write = False
            self._close_socket()
        elif threading.get_ident() == self._thread:
            self._detach()

    def _detach(self) -> None:
        """Watches the socket no more, and closes it."""
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._socket)
        if self._waits_to_write:
            self._waits_to_write = False
            self._loop.remove_writer(self._socket)
        self._close_socket()

    def _close_socket(self) -> None:
        if not (self._is_watched or self._waits_to_write):  # else the loop closes it
            super()._close_socket()


def _set(came: "asyncio.Future[None]") -> None:
    if not came.done():
        came.set_result(None)
