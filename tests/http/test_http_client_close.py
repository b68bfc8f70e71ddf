"""Connections of the client: closed under calls, forked, shared, at an end."""

import asyncio
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpcore
import pytest

from tests.support.concurrency import until
from tests.support.http_served import served
from tests.support.scripted_server import Act, ScriptedServer, answers
from txaware.client import ClientSettings, HttpService, Link, Transport, transport
from txaware.client.aio.async_messaging import connect_async
from txaware.client.calls.call import Deadline
from txaware.client.connections import ConnectionPool, destination
from txaware.client.http_connection import HttpConnection
from txaware.errors import TxAwareError, Unavailable

PATIENCE_S = 30.0
WAITING = 200


Connect = Callable[..., HttpService]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens clients, which are closed at the end at the latest."""
    with ExitStack() as opened:

        def connected(url: str, backend: Any = None, **settings: Any) -> HttpService:
            link = Link(url, settings=ClientSettings(**{"retry_for_s": 0, **settings}))
            service = HttpService(Transport(link, network_backend=backend))
            opened.callback(service.close)
            return service

        yield connected


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Threads take turns a thousand times as often."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval_s)


def begun(calls: list[Callable[[], object]]) -> list[threading.Thread]:
    """Each in a thread of its own, which does not keep a failed run from its end."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    return threads


def ended(threads: list[threading.Thread]) -> bool:
    """Whether all came to an end in time."""
    deadline_s = time.monotonic() + PATIENCE_S
    for thread in threads:
        thread.join(max(0, deadline_s - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def when(event: threading.Event, act: Act) -> Act:
    """An answer that comes once something has happened."""

    def later(connection: Any, received: Any) -> bool:
        return event.wait(PATIENCE_S) and act(connection, received)

    return later


def strange_at_a_close(service: HttpService) -> list[BaseException]:
    """Closes while 16 threads call: what they raise that is no error of ours."""
    strange: list[BaseException] = []
    answered: list[object] = []
    asked = threading.Barrier(17)

    def ask_until_closed() -> None:
        try:
            service.topics()
            asked.wait(PATIENCE_S)
            while True:
                answered.append(service.topics())
        except TxAwareError:
            return
        except BaseException as error:
            strange.append(error)

    threads = begun([ask_until_closed] * 16)
    asked.wait(PATIENCE_S)
    assert until(lambda: len(answered) > 50 or strange)
    service.close()
    assert ended(threads)
    return strange


def test_calls_under_way_at_a_close_all_end_with_an_error_of_ours(
    connect: Connect, frequent_switches: None
) -> None:
    with served() as store:
        for _ in range(40):
            assert strange_at_a_close(connect(store.url, retry_for_s=10)) == []


def test_a_connection_closed_before_its_request_is_sent_is_a_lost_one(
    server: ScriptedServer,
) -> None:
    link = Link(server.url)
    connections = ConnectionPool(1, partial(HttpConnection, destination(link)))
    in_time = Deadline(math.inf, time.monotonic)
    request = link.request("GET", "/x", [], b"", longer_s=0, deadline=in_time)
    with connections.one(1) as connection:
        assert connection.ask(request).status == 200
    assert connections.idle == 1
    with connections.one(1) as connection:
        connections.close()
        with pytest.raises((httpcore.NetworkError, httpcore.ProtocolError)):
            connection.ask(request)
    assert (connections.in_use, connections.idle) == (0, 0)


class ClosingWhenAsked:
    """An idle connection; the client is closed while somebody looks at its age."""

    def __init__(self, connections: ConnectionPool) -> None:
        self.connections = connections
        self.is_closed = False

    def has_expired(self) -> bool:
        self.connections.close()
        return False

    def close(self) -> None:
        self.is_closed = True


def test_a_connection_whose_age_is_looked_at_during_a_close_is_closed_too() -> None:
    connections = ConnectionPool(
        1, partial(HttpConnection, destination(Link("http://h")))
    )
    oldest: Any = ClosingWhenAsked(connections)
    connections._idle.append(oldest)
    connections._let_go_of_oldest()
    assert oldest.is_closed
    assert connections.idle == 0


class SlowToConnect(httpcore.SyncBackend):
    """Connects, and hands the connection out later."""

    def __init__(self) -> None:
        self.connecting = threading.Event()
        self.go_on = threading.Event()

    def connect_tcp(self, *given: Any, **options: Any) -> httpcore.NetworkStream:
        stream = super().connect_tcp(*given, **options)
        self.connecting.set()
        self.go_on.wait(PATIENCE_S)
        return stream


def test_who_was_connecting_at_a_close_does_not_wait_for_an_answer(
    server: ScriptedServer, connect: Connect
) -> None:
    backend, raised, never = SlowToConnect(), list[Exception](), threading.Event()
    service = connect(server.url, backend, answer_timeout_s=2 * PATIENCE_S)
    server.script = [when(never, answers(200, []))]

    def ask() -> None:
        try:
            service.topics()
        except Unavailable as error:
            raised.append(error)

    asking = begun([ask])
    assert backend.connecting.wait(PATIENCE_S)
    service.close()  # which does not wait for it
    backend.go_on.set()
    assert ended(asking)
    assert len(raised) == 1
    never.set()


def test_a_call_that_begins_during_a_close_leaves_no_connection(
    server: ScriptedServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw the client open, and has its first connections just behind the close."""
    service = connect(server.url, frames=False)

    def late(*given: Any) -> ConnectionPool:
        service.close()
        return ConnectionPool(*given)

    monkeypatch.setattr(transport, "ConnectionPool", late)
    with pytest.raises(Unavailable, match="this Messaging is closed"):
        service.topics()
    assert server.connections == 0


class FailsAtTLS(httpcore.SyncBackend):
    """Connects, and is interrupted as TLS begins."""

    def connect_tcp(self, *given: Any, **options: Any) -> httpcore.NetworkStream:
        self.stream = super().connect_tcp(*given, **options)
        self.stream.start_tls = self.start_tls  # type: ignore[method-assign]
        return self.stream

    def start_tls(self, *_: object, **__: object) -> httpcore.NetworkStream:
        raise KeyboardInterrupt


def test_an_interrupt_as_tls_begins_leaves_no_connection(
    server: ScriptedServer, connect: Connect
) -> None:
    backend = FailsAtTLS()
    service = connect(server.url.replace("http:", "https:"), backend)
    with pytest.raises(KeyboardInterrupt):
        service.topics()
    assert backend.stream.get_extra_info("socket").fileno() == -1


def test_a_forked_child_that_closes_leaves_its_parent_the_answer(
    server: ScriptedServer, connect: Connect
) -> None:
    service = connect(server.url)
    child_is_gone, answered = threading.Event(), list[object]()
    server.script = [when(child_is_gone, answers(200, ["t"]))]

    def ask() -> None:
        try:
            answered.append(service.topics())
        except TxAwareError as error:
            answered.append(error)

    asking = begun([ask])
    assert until(lambda: server.lines)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            service.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    child_is_gone.set()
    assert ended(asking)
    assert answered == [["t"]]


def test_threads_that_share_a_connection_take_turns(
    server: ScriptedServer, connect: Connect
) -> None:
    service = connect(server.url, pool_connections=1, connect_timeout_s=PATIENCE_S)
    calls, threads = 500, 5
    server.script = [answers(200, [])] * (calls + threads)
    all_ready, answered = threading.Barrier(threads), list[int]()

    def ask() -> None:
        all_ready.wait(PATIENCE_S)
        while len(answered) < calls:
            service.topics()
            answered.append(threading.get_ident())

    assert ended(begun([ask] * threads))
    turns = sorted(Counter(answered).values())
    assert len(turns) == threads
    assert turns[0] > calls / threads / 4, turns


def twice(first: object, second: object) -> Act:
    """Two answers to one request, in one piece."""

    def act(connection: Any, received: Any) -> bool:
        pieces: list[bytes] = []

        class Gathered:
            sendall = pieces.append

        answers(200, first)(Gathered, received)  # type: ignore[arg-type]
        answers(200, second)(Gathered, received)  # type: ignore[arg-type]
        connection.sendall(b"".join(pieces))
        return True

    return act


def test_an_answer_to_nothing_is_not_taken_for_that_to_the_next_request(
    server: ScriptedServer, connect: Connect
) -> None:
    service = connect(server.url)
    server.script = [twice(["1"], ["not yours"]), *(answers(200, [n]) for n in "23")]
    assert [service.topics() for _ in range(3)] == [["1"], ["2"], ["3"]]
    assert server.connections == 2  # the first one cannot be trusted any more


def test_an_answer_to_nothing_is_not_taken_for_another_by_asyncio(
    server: ScriptedServer,
) -> None:
    async def main() -> list[list[str]]:
        async with connect_async(server.url, frames=False) as messaging:
            return [await messaging.topics() for _ in range(3)]

    server.script = [twice(["1"], ["not yours"]), *(answers(200, [n]) for n in "23")]
    assert asyncio.run(main()) == [["1"], ["2"], ["3"]]
    assert server.connections == 2


def script_that_needs_all(server: ScriptedServer) -> None:
    """Nobody is answered before all wait at the server."""
    all_wait, ready = threading.Barrier(WAITING), answers(200, {"ready": True})

    def together(connection: Any, received: Any) -> bool:
        all_wait.wait(PATIENCE_S)
        return ready(connection, received)

    server.script = [together] * WAITING


def test_more_threads_wait_at_the_server_than_there_are_connections_for_others(
    server: ScriptedServer, connect: Connect
) -> None:
    service = connect(server.url, pool_connections=8)
    ready: list[object] = []

    def wait() -> None:
        try:
            ready.append(service.wait("t", start=None, timeout_s=25))
        except TxAwareError as error:
            ready.append(error)

    service.info()
    script_that_needs_all(server)
    assert ended(begun([wait] * WAITING))
    assert ready == [True] * WAITING


def test_more_tasks_wait_at_the_server_than_there_are_connections_for_others(
    server: ScriptedServer,
) -> None:
    settings = ClientSettings(pool_connections=8, retry_for_s=0)

    async def main() -> list[bool]:
        async with connect_async(server.url, settings=settings) as messaging:
            await messaging.info()
            script_that_needs_all(server)
            waits = (messaging.wait("t", timeout_s=25) for _ in range(WAITING))
            return await asyncio.gather(*waits)

    assert asyncio.run(main()) == [True] * WAITING


def test_too_many_that_wait_are_told_how_many_may(
    server: ScriptedServer, connect: Connect
) -> None:
    service = connect(server.url, waiting_connections=1, connect_timeout_s=0.05)
    service.info()
    release = threading.Event()
    server.script = [when(release, answers(200, {"ready": True}))]

    def wait() -> bool:
        return service.wait("t", start=None, timeout_s=25)

    first = begun([wait])
    assert until(lambda: server.lines)
    with pytest.raises(Unavailable, match="all 1 connections are in use"):
        wait()
    release.set()
    assert ended(first)
