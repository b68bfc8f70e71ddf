"""A connection of the client over a stream in memory: its writes and its end."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import httpcore
import pytest

from txaware.client.calls.call import Deadline
from txaware.client.http11 import AnswerParser, HttpRequest
from txaware.client.http_connection import (
    KEEP_IDLE_S,
    AsyncHttpConnection,
    HttpConnection,
    ServerAddress,
)

IN_TIME = Deadline(math.inf, time.monotonic)
TO = ServerAddress("h", 1, connect_timeout_s=1)
REFUSED = b"HTTP/1.1 413 No\r\nContent-Length: 3\r\n\r\nbig"
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Stream(httpcore.NetworkStream):
    """A stream that answers what it was given, and notes what is written."""

    def __init__(self, *answers: bytes, takes_bytes: int = 1 << 30) -> None:
        self.answers = list(answers)
        self.written: list[bytes] = []
        self.takes_bytes = takes_bytes
        self.is_readable = False

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self.answers.pop(0) if self.answers else b""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.takes_bytes -= len(buffer)
        if self.takes_bytes < 0:
            raise httpcore.WriteError("broken pipe")
        self.written.append(buffer)

    def close(self) -> None:
        self.is_readable = True

    def get_extra_info(self, info: str) -> Any:
        return self.is_readable if info == "is_readable" else None


class AsyncStream(httpcore.AsyncNetworkStream):
    """The same for asyncio."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.get_extra_info = stream.get_extra_info  # type: ignore[method-assign]

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self.stream.read(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.stream.write(buffer)

    async def aclose(self) -> None:
        self.stream.close()


class Backend(httpcore.NetworkBackend):
    """Connects to one stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def connect_tcp(self, *_: Any, **__: Any) -> httpcore.NetworkStream:
        return self.stream


class AsyncBackend(Backend):
    """The same for asyncio."""

    async def connect_tcp(self, *_: Any, **__: Any) -> Any:  # type: ignore[override]
        return AsyncStream(self.stream)


Connection = HttpConnection | AsyncHttpConnection
Connect = Callable[[Stream], Connection]


@pytest.fixture(params=[False, True], ids=["threads", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """Makes a connection over a stream."""

    def connected(stream: Stream) -> Connection:
        if request.param:
            backend: Any = AsyncBackend(stream)
            return AsyncHttpConnection(TO, backend)
        return HttpConnection(TO, Backend(stream))

    return connected


def ask(connection: Connection, body: bytes = b"") -> AnswerParser:
    request = HttpRequest("POST", "/", [(b"Host", b"h")], body, 1, 1, IN_TIME, 1 << 30)
    if isinstance(connection, HttpConnection):
        return connection.ask(request)
    return asyncio.run(connection.ask(request))


def test_a_small_request_goes_out_in_one_piece(connect: Connect) -> None:
    stream = Stream(EMPTY, EMPTY)
    connection = connect(stream)
    ask(connection, b"abc")
    assert stream.written == [b"POST / HTTP/1.1\r\nHost: h\r\n\r\nabc"]
    ask(connection, b"a" * 100_000)
    assert [len(piece) for piece in stream.written[2:]] == [100_000]


@pytest.mark.parametrize("takes_bytes", [0, 100])
def test_an_answer_to_what_was_not_all_taken_is_the_last_one(
    connect: Connect, takes_bytes: int
) -> None:
    connection = connect(Stream(REFUSED, takes_bytes=takes_bytes))
    answer = ask(connection, b"a" * 100_000)
    assert (answer.status, answer.body()) == (413, b"big")
    assert not connection.is_at_end


def test_a_connection_is_at_an_end_of_an_answer_or_is_not_used_again(
    connect: Connect,
) -> None:
    connection = connect(Stream(EMPTY, EMPTY[:-1], EMPTY[-1:] + b"x"))
    assert not connection.is_at_end
    ask(connection)
    assert connection.is_at_end
    ask(connection)
    assert not connection.is_at_end
    with pytest.raises(httpcore.RemoteProtocolError, match="without an answer"):
        ask(connection)
    assert not connection.is_at_end


def test_what_is_idle_for_long_or_closed_by_the_server_has_expired(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(EMPTY)
    connection = connect(stream)
    ask(connection)
    assert not connection.has_expired()
    stream.is_readable = True
    assert connection.has_expired()
    stream.is_readable = False
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + KEEP_IDLE_S + 1)
    assert connection.has_expired()
