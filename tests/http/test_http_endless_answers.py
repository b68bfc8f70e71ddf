"""Answers without an end: a call ends all the same, in time and with little memory."""

import asyncio
import itertools
import socket
import threading
from collections.abc import Callable, Iterator

import attrs
import pytest

import txaware
from coordinator.remote.client import RemoteCoordinator
from tests.support.http_served import served
from tests.support.scripted_server import Act, Received, ScriptedServer, answers
from txaware.client import (
    ClientSettings,
    CoordinatorSend,
    HttpAdministration,
    HttpService,
    Link,
    Transport,
)
from txaware.client.aio.async_service import AsyncService
from txaware.client.aio.async_transport import AsyncTransport
from txaware.errors import Unavailable
from txaware.model.messages import MessageId
from txaware.model.settings import Settings

LIMIT_BYTES = 100_000
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH, CHUNKED = b"Content-Length: %d\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"


@attrs.frozen
class Endless:
    """Sends a beginning, and then one thing for as long as anybody reads."""

    begins: bytes
    goes_on: bytes

    def __call__(self, connection: socket.socket, _: Received) -> bool:
        connection.sendall(self.begins)
        while True:  # until the other end is closed
            connection.sendall(self.goes_on or b" ")


# What the server does, and what the client says of it.
ATTACKS: dict[str, tuple[Act, str]] = {
    "a head without an end": (Endless(OK, b"A: b\r\n"), "bytes of an answer have no"),
    "one header without an end": (Endless(OK + b"A: ", b"b" * 100), "have no body"),
    "interim answers without an end": (
        Endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        "bytes of an answer have no body",
    ),
    "interim answers with headers": (
        Endless(b"", b"HTTP/1.1 103 Early\r\n" + b"Link: x\r\n" * 99 + b"\r\n"),
        "bytes of an answer have no body",
    ),
    "a body of 10^12 bytes": (
        Endless(OK + LENGTH % 10**12, bytes(1000)),
        "of 1000000000000 bytes or more is above the limit",
    ),
    "chunks without an end": (
        Endless(OK + CHUNKED, b"400\r\n" + bytes(1024) + b"\r\n"),
        "is above the limit of 100000 bytes",
    ),
    "chunks of one byte": (
        Endless(OK + CHUNKED, b"1\r\na\r\n" * 99),
        "above the limit",
    ),
    "a chunk without an end": (
        Endless(OK + CHUNKED + b"fffffffffff\r\n", bytes(1000)),
        "is above the limit of 100000 bytes",
    ),
    "an extension of a chunk": (
        Endless(OK + CHUNKED + b"1;", b"x" * 99),
        "have no body",
    ),
    "trailers without an end": (
        Endless(OK + CHUNKED + b"0\r\n", b"A: b\r\n"),
        "have no body",
    ),
    "a body until the connection ends": (
        Endless(OK + b"\r\n", bytes(1000)),
        "is above the limit of 100000 bytes",
    ),
    "an error without an end": (
        Endless(b"HTTP/1.1 503 No\r\n" + CHUNKED, b"400\r\n" + bytes(1024) + b"\r\n"),
        "is above the limit of 100000 bytes",
    ),
}


QUARTER_S = 900
# A beginning, and what comes behind it, a byte at a time.
DRIPS = {
    "body": (OK + LENGTH % 90_000, b"["),
    "chunks": (OK + CHUNKED, b"1\r\na\r\n"),
    "head": (OK, b"A: b\r\n"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


class SteppedClock:
    """A clock on which each look takes a quarter; a byte drips whenever one looks."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._looks = threading.Semaphore(0)

    def __call__(self) -> float:
        self.now_s += QUARTER_S
        self._looks.release()
        return self.now_s

    def dripping(self, begins: bytes, goes_on: bytes) -> Act:
        """Sends a beginning, and then bytes without an end."""

        def act(connection: socket.socket, _: Received) -> bool:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(begins)
            for byte in itertools.cycle(goes_on):
                if not self._looks.acquire(timeout=60):
                    break
                connection.sendall(bytes([byte]))
            return False

        return act


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as made:
        yield made


Ask = Callable[[Link], object]


def in_thread(link: Link) -> object:
    transport = Transport(link)
    try:
        return HttpService(transport).poll("t")
    finally:
        transport.close()


def in_loop(link: Link) -> object:
    async def asked() -> object:
        transport = AsyncTransport(link)
        try:
            return await AsyncService(transport).poll("t")
        finally:
            await transport.close()

    return asyncio.run(asked())


def beginning(link: Link) -> object:
    transport = Transport(link)
    try:
        return RemoteCoordinator(CoordinatorSend(transport)).start_short()
    finally:
        transport.close()


BOTH: dict[str, Ask] = {"threads": in_thread, "asyncio": in_loop}
ALL = BOTH | {"coordinator": beginning}


@pytest.mark.parametrize("ask", ALL.values(), ids=ALL)
@pytest.mark.parametrize("name", ATTACKS)
def test_an_answer_that_does_not_end_is_left(
    server: ScriptedServer, name: str, ask: Ask
) -> None:
    act, message = ATTACKS[name]
    server.script = [act]
    settings = ClientSettings(answer_limit_bytes=LIMIT_BYTES, retry_for_s=0)
    with pytest.raises(Unavailable, match=message):
        ask(Link(server.url, settings=settings))


@pytest.mark.parametrize("ask", ALL.values(), ids=ALL)
@pytest.mark.parametrize("name", DRIPS)
def test_an_answer_that_drips_ends_with_the_time_of_the_call(
    server: ScriptedServer, name: str, ask: Ask
) -> None:
    clock = SteppedClock()
    server.script = [clock.dripping(*DRIPS[name])]
    settings = ClientSettings(call_timeout_s=50 * QUARTER_S, retry_for_s=50)
    link = Link(server.url, settings=settings, clock_s=clock)
    with pytest.raises(Unavailable, match="no whole answer in 45000 s"):
        ask(link)
    assert len(server.lines) == 1  # and there is no time for another try
    assert clock.now_s < 100 * QUARTER_S


@pytest.mark.parametrize("ask", BOTH.values(), ids=BOTH)
def test_an_answer_that_is_too_large_is_asked_for_once(
    server: ScriptedServer, ask: Ask
) -> None:
    server.script = [Endless(OK + LENGTH % 10**12, b"")] * 5
    with pytest.raises(Unavailable, match="answer_limit_bytes"):
        ask(Link(server.url))
    assert len(server.lines) == 1


def test_what_a_call_waits_for_comes_on_top(server: ScriptedServer) -> None:
    clock = SteppedClock()
    server.script = [clock.dripping(*DRIPS["body"])]
    settings = ClientSettings(call_timeout_s=10 * QUARTER_S, retry_for_s=0)
    transport = Transport(Link(server.url, settings=settings, clock_s=clock))
    with pytest.raises(Unavailable, match="no whole answer in 9030 s"):
        HttpService(transport).poll("t", wait_s=40 * QUARTER_S)
    transport.close()


def test_repeats_end_with_the_time_of_the_call(server: ScriptedServer) -> None:
    now_s = [0.0]

    def loses(_: socket.socket, __: Received) -> bool:
        now_s[0] += 2
        return False

    server.script = [loses] * 20
    settings = ClientSettings(call_timeout_s=5, retry_for_s=50)
    link = Link(server.url, settings=settings, clock_s=lambda: now_s[0])
    transport = Transport(link, sleep=lambda _: None)
    with pytest.raises(Unavailable):
        HttpService(transport).topics()
    assert len(server.lines) == 3
    transport.close()


def test_a_backup_may_take_any_time_and_any_size(server: ScriptedServer) -> None:
    clock, parts = SteppedClock(), 300

    def in_parts(connection: socket.socket, _: Received) -> bool:
        connection.sendall(OK + CHUNKED)
        for _number in range(parts):
            connection.sendall(b"3e8\r\n" + bytes(1000) + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        return True

    server.script = [in_parts, Endless(b"HTTP/1.1 503 N\r\n" + CHUNKED, b"1\r\na\r\n")]
    settings = ClientSettings(
        answer_limit_bytes=LIMIT_BYTES, call_timeout_s=30, frames=False
    )
    link = Link(server.url, settings=settings, clock_s=clock)
    transport = Transport(link)
    administration = HttpAdministration(transport)
    assert sum(map(len, administration.backup())) == parts * 1000
    with pytest.raises(Unavailable, match="above the limit"):
        list(administration.backup())
    transport.close()


def test_a_program_says_the_limits_in_its_settings(server: ScriptedServer) -> None:
    settings = Settings(call_timeout_s=7, answer_limit_bytes=LIMIT_BYTES)
    with txaware.connect(server.url, settings=settings) as messaging:
        server.script = [answers(200, b"[" + b" " * LIMIT_BYTES + b"]")]
        with pytest.raises(Unavailable, match="answer_limit_bytes"):
            messaging.topics()
        link: Link = messaging._parts.service._transport.link  # type: ignore[attr-defined]
        assert link.settings.call_timeout_s == 7


def test_the_largest_page_that_a_server_makes_is_below_the_limit() -> None:
    with served() as store, txaware.connect(store.url) as messaging:
        messaging.create_topic("t")
        store.messaging.publish("t", [bytes(60 << 20)])
        assert len(messaging.poll("t")[0].payload) == 60 << 20
        messaging.table("v").put(b"k", bytes(9 << 20))
        assert len(messaging.table("v").get(b"k") or b"") == 9 << 20
        assert messaging.bounds("t").next > MessageId.of(0)
