"""Connections that carry one request at a time, for threads and for asyncio.

Sockets, TLS and time-outs, with their errors, are those of httpcore's network backends.
"""

import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from typing import Any

import attrs
import httpcore

from txaware.client.calls.call import Deadline
from txaware.client.http11 import MOST_BYTES_WITHOUT_BODY, AnswerParser, HttpRequest

# Servers close idle connections, after a minute or so: before they do, we do, so that
# nothing is sent just when it can no longer arrive.
KEEP_IDLE_S = 25.0
READ_BYTES = 64 * 1024
# A body up to this size goes out in one piece with the lines before it.
_JOINED_BYTES = 64 * 1024
# Of a larger one the clock is looked at after so many bytes.
_PART_BYTES = 1 << 20


@attrs.frozen
class ServerAddress:
    """The server that connections are made to, and how."""

    host: str
    port: int
    connect_timeout_s: float
    ssl_context: ssl.SSLContext | None = None
    socket_options: Sequence[tuple[int, int, int]] = ()

    def tcp(self) -> dict[str, Any]:
        """Returns what a backend connects with."""
        return {
            "host": self.host,
            "port": self.port,
            "timeout": self.connect_timeout_s,
            "socket_options": self.socket_options,
        }

    def tls(self) -> dict[str, Any]:
        """Returns what a stream begins TLS with."""
        return {
            "ssl_context": self.ssl_context,
            "server_hostname": self.host,
            "timeout": self.connect_timeout_s,
        }


class NotGranted(Exception):
    """The server goes on in HTTP; `status` is what it answered."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def granted(came: bytes) -> bytes:
    """Returns what came behind the head of an answer that grants another protocol."""
    head, _, rest = came.partition(b"\r\n\r\n")
    words = head.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise httpcore.RemoteProtocolError(f"{came[:80]!r} is no answer of HTTP/1")
    if words[1] != b"101":
        raise NotGranted(int(words[1]))
    return rest


class _OneAtATime:
    """The state of a connection between requests, and within one."""

    def __init__(self, destination: ServerAddress) -> None:
        self._to = destination
        self._stream: Any = None
        # True when the next answer that comes is that to the next request.
        self.is_at_end = False
        self._is_shut = False
        self._expires_s = 0.0
        self._read_s = 0.0
        self._deadline: Deadline | None = None
        self._all_sent = False

    def _begun(self, request: HttpRequest) -> list[bytes]:
        """Returns what is to be written, in pieces that are looked at the clock for."""
        self.is_at_end = self._all_sent = False
        self._read_s, self._deadline = request.read_s, request.deadline
        head, body = request.head(), request.body
        if len(body) <= _JOINED_BYTES:
            return [head + body]
        parts = range(0, len(body), _PART_BYTES)
        return [head, *(body[at : at + _PART_BYTES] for at in parts)]

    def _to_read_s(self) -> float:
        """Returns how long the next read may take."""
        if self._deadline is None:
            return self._read_s
        return self._deadline.within(self._read_s)

    def _came(self, answer: AnswerParser, data: bytes) -> None:
        answer.feed(data)
        if answer.is_complete:
            self.is_at_end = self._all_sent and answer.keeps_open
            self._expires_s = time.monotonic() + KEEP_IDLE_S

    def has_expired(self) -> bool:
        """Tells whether it was idle for long, or the server has closed it."""
        if time.monotonic() > self._expires_s:
            return True
        return bool(self._stream.get_extra_info("is_readable"))


def _tcp(to: ServerAddress, deadline: Deadline) -> dict[str, Any]:
    given = to.tcp()
    return given | {"timeout": deadline.within(given["timeout"])}


def _tls(to: ServerAddress, deadline: Deadline) -> dict[str, Any]:
    given = to.tls()
    return given | {"timeout": deadline.within(given["timeout"])}


class HttpConnection(_OneAtATime):
    """A connection for one thread at a time; it connects with the first request."""

    def __init__(
        self,
        destination: ServerAddress,
        backend: httpcore.NetworkBackend | None = None,
    ) -> None:
        super().__init__(destination)
        self._backend = backend or httpcore.SyncBackend()

    def ask(self, request: HttpRequest) -> AnswerParser:
        """Sends a request, and returns its whole answer."""
        answer = self.begin(request)
        while not answer.is_complete:
            self.read_more(answer)
        return answer

    def begin(self, request: HttpRequest, *, streams: bool = False) -> AnswerParser:
        """Sends a request; its answer is complete when enough was read.

        A server that takes no more may have answered all the same.
        """
        deadline = request.deadline
        stream: httpcore.NetworkStream = self._stream or self._connect(deadline)
        pieces = self._begun(request)
        with suppress(httpcore.WriteError):
            for piece in pieces:
                stream.write(piece, deadline.within(request.write_s))
            self._all_sent = True
        return AnswerParser(request.answer_bytes, streams=streams)

    def upgrade(self, request: HttpRequest) -> tuple[httpcore.NetworkStream, bytes]:
        """Asks for another protocol; returns the stream, and what came behind.

        Raises `NotGranted` where the answer is another one; the connection goes on in
        HTTP then, if that is at its end.
        """
        self.begin(request)
        came = b""
        while b"\r\n\r\n" not in came:
            data = self._stream.read(READ_BYTES, self._to_read_s())
            came += data
            if not data or len(came) > MOST_BYTES_WITHOUT_BODY:
                raise httpcore.RemoteProtocolError("it ended without an answer")
        try:
            return self._stream, granted(came)
        except NotGranted:
            self._read_refusal(came)
            raise

    def _read_refusal(self, came: bytes) -> None:
        """Reads an answer to its end, if that is short and comes soon."""
        answer = AnswerParser(MOST_BYTES_WITHOUT_BODY)
        self._read_s = min(self._read_s, self._to.connect_timeout_s)
        with suppress(
            httpcore.ProtocolError, httpcore.NetworkError, httpcore.TimeoutException
        ):
            self._came(answer, came)
            while not answer.is_complete:
                self.read_more(answer)

    def read_more(self, answer: AnswerParser) -> None:
        """Waits for the next piece of an answer that is not complete."""
        self._came(answer, self._stream.read(READ_BYTES, self._to_read_s()))

    def lift_deadline(self) -> None:
        """Reads on for as long as there are signs of life."""
        self._deadline = None

    def _connect(self, deadline: Deadline) -> httpcore.NetworkStream:
        # From here on it is closed with this connection, whatever comes of the rest.
        stream = self._stream = self._backend.connect_tcp(**_tcp(self._to, deadline))
        if self._to.ssl_context is not None:
            stream = self._stream = stream.start_tls(**_tls(self._to, deadline))
        if self._is_shut:  # by another thread, which has not seen it
            raise httpcore.ConnectError("this client is closed")
        return stream

    def shut_down(self) -> None:
        """Has the thread that uses it fail at once, also one that only connects.

        It does not notice when another one closes the socket.
        """
        self._is_shut = True
        if self._stream is not None:
            self._stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes it; the thread that uses it does."""
        self.is_at_end = False
        if self._stream is not None:
            self._stream.close()


class AsyncHttpConnection(_OneAtATime):
    """A connection for one task at a time; it connects with the first request."""

    def __init__(
        self,
        destination: ServerAddress,
        backend: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        super().__init__(destination)
        self._backend = backend or httpcore.AnyIOBackend()
        self._answer: AnswerParser | None = None

    async def ask(self, request: HttpRequest) -> AnswerParser:
        """Sends a request, and returns its whole answer."""
        deadline = request.deadline
        stream: httpcore.AsyncNetworkStream = self._stream or await self._connect(
            deadline
        )
        pieces = self._begun(request)
        answer = self._answer = AnswerParser(request.answer_bytes)
        with suppress(httpcore.WriteError):
            for piece in pieces:
                await stream.write(piece, deadline.within(request.write_s))
            self._all_sent = True
        while not answer.is_complete:
            self._came(answer, await stream.read(READ_BYTES, self._to_read_s()))
        return answer

    def taken_over(self) -> "AsyncHttpConnection | None":
        """Returns a connection with the request under way, which leaves this one.

        None where none was begun.
        """
        if self._stream is None or self._answer is None:
            return None
        other = copy(self)
        self._stream = None
        return other

    async def rest(self) -> AnswerParser:
        """Returns the answer under way, and tells the server to begin none any more."""
        answer = self._answer
        if answer is None:
            raise httpcore.LocalProtocolError("no answer is under way")
        self._stream.get_extra_info("socket").shutdown(socket.SHUT_WR)
        while not answer.is_complete:
            self._came(answer, await self._stream.read(READ_BYTES, self._to_read_s()))
        return answer

    async def _connect(self, deadline: Deadline) -> httpcore.AsyncNetworkStream:
        tcp = _tcp(self._to, deadline)
        stream = self._stream = await self._backend.connect_tcp(**tcp)
        if self._to.ssl_context is not None:
            tls = _tls(self._to, deadline)
            stream = self._stream = await stream.start_tls(**tls)
        if self._is_shut:
            raise httpcore.ConnectError("this client is closed")
        return stream

    async def aclose(self) -> None:
        """Closes it; a task that uses it fails."""
        self.is_at_end, self._is_shut = False, True
        if self._stream is not None:
            await self._stream.aclose()
