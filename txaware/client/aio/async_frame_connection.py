"""A connection of frames for any number of tasks of one event loop."""

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Any

import httpcore

from txaware.client.frame_streams import FramedAnswer, FrameStreams
from txaware.client.http11 import MOST_BYTES_WITHOUT_BODY, HttpRequest
from txaware.client.http_connection import (
    KEEP_IDLE_S,
    ServerAddress,
    granted,
)
from txaware.protocol.frames import PIECE_BYTES, RequestHead

_HEAD_ENDS = b"\r\n\r\n"


class AsyncFrameConnection(asyncio.Protocol):
    """One connection; calls of any tasks are under way on it at once."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._streams = FrameStreams()
        self._begun = b""
        self._is_granted = False
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._dead: Exception | None = None
        self._is_paused = False
        self._used_s = time.monotonic()

    @property
    def version(self) -> str:
        """The software of the server, as it says."""
        hello = self._streams.hello
        return "" if hello is None else hello.software

    @property
    def in_use(self) -> int:
        """The number of calls under way."""
        return len(self._streams.under_way)

    @property
    def is_usable(self) -> bool:
        """True while a call may go out on it."""
        is_idle = not self._streams.under_way
        if is_idle and time.monotonic() - self._used_s > KEEP_IDLE_S:
            self.close()
        return self._dead is None

    @classmethod
    async def connect(
        cls, to: ServerAddress, request: HttpRequest
    ) -> "AsyncFrameConnection":
        """Connects and asks for frames; `NotGranted` where the answer is another."""
        made = cls()
        try:
            async with asyncio.timeout(request.deadline.within(to.connect_timeout_s)):
                await asyncio.get_running_loop().create_connection(
                    lambda: made,
                    to.host,
                    to.port,
                    ssl=to.ssl_context,
                    server_hostname=to.host if to.ssl_context else None,
                )
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        try:
            opened = made._transport.get_extra_info("socket")
            for option in to.socket_options:
                opened.setsockopt(*option)
            made._transport.write(request.head())
            async with asyncio.timeout(request.deadline.within(request.read_s)):
                await made._ready
        except TimeoutError as error:
            made.close()
            raise httpcore.ConnectTimeout from error
        except BaseException:
            made.close()
            raise
        return made

    def end_wait(self, answer: FramedAnswer) -> None:
        """Has the server answer with what it has by now."""
        if self._dead is None:
            self._streams.end_wait(answer)
            self._flush()

    async def rest(self, answer: FramedAnswer, request: HttpRequest) -> FramedAnswer:
        """Returns an answer under way once it is whole, and ends its call."""
        try:
            return await self.whole(answer, request)
        finally:
            self.forget(answer)

    def begin(
        self, head: RequestHead, body: bytes, request: HttpRequest
    ) -> FramedAnswer:
        """Sends a request; `forget` has to follow, whatever comes of it."""
        if self._dead is not None:
            raise httpcore.ConnectError("the connection was lost") from self._dead
        if self._streams.is_full:
            raise httpcore.PoolTimeout
        answer = self._streams.begin(head, body, request.answer_bytes, _nothing)
        self._flush()
        return answer

    async def whole(self, answer: FramedAnswer, request: HttpRequest) -> FramedAnswer:
        """Returns an answer once it is whole."""
        loop = asyncio.get_running_loop()
        while not answer.is_over:
            came: asyncio.Future[None] = loop.create_future()
            answer.notify = partial(_tell, came)
            left_s = answer.came_s + request.read_s - time.monotonic()
            left_s = request.deadline.within(left_s)
            if left_s <= 0:
                raise httpcore.ReadTimeout
            timer = loop.call_later(left_s, answer.notify)
            try:
                await came
            finally:
                timer.cancel()
                answer.notify = _nothing
        if answer.error is not None:
            raise answer.error
        return answer

    def forget(self, answer: FramedAnswer) -> None:
        """Ends a call; the server hears of one that is not answered."""
        self._used_s = time.monotonic()
        if not answer.is_over and self._dead is None:
            self._streams.forget(answer)
            self._flush()

    # ---- the connection
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps what it writes to."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Takes the answer to the upgrade, and frames."""
        try:
            if not self._is_granted:
                self._begun += data
                if _HEAD_ENDS not in self._begun:
                    if len(self._begun) > MOST_BYTES_WITHOUT_BODY:
                        raise httpcore.RemoteProtocolError("its head has no end")
                    return
                data, self._is_granted = granted(self._begun), True
            self._streams.fed(data)
        except Exception as error:
            self._die(error)
            return
        if self._streams.hello is not None and not self._ready.done():
            self._ready.set_result(None)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends all calls."""
        why = str(exc) if exc is not None else "it ended"
        self._die(httpcore.ReadError(why))

    def pause_writing(self) -> None:
        """Waits until the server reads."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Goes on when the server reads on."""
        self._is_paused = False
        self._flush()

    def _flush(self) -> None:
        queue = self._streams.queue
        while queue.is_ready and not self._is_paused and self._dead is None:
            self._transport.write(b"".join(queue.take(PIECE_BYTES)))

    def _die(self, error: Exception) -> None:
        if self._dead is not None:
            return
        self._dead = error
        self._streams.fail(error)
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # perhaps nobody waits for it
        with suppress(Exception):
            self._transport.abort()

    def close(self) -> None:
        """Closes it; tasks that wait are told at once."""
        self._die(httpcore.ReadError("this client is closed"))


def _tell(came: "asyncio.Future[None]") -> None:
    """Wakes the task that waits."""
    if not came.done():
        came.set_result(None)


def _nothing() -> None:
    """Tells nobody."""
