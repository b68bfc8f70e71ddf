"""Our client in frames: one connection for all, with the meaning that HTTP has."""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

import txaware
from coordinator.optional_ports import KnowsLives
from coordinator.outcome import Outcome
from coordinator.prepared_transactions import two_phases
from coordinator.remote import calls
from coordinator.transaction_status import OPEN, standing, standings
from tests.support.certificates import certificate
from tests.support.concurrency import until
from tests.support.http_access import guarded
from tests.support.http_raw import Served, lines_of, serving
from tests.support.interrupts import interrupted_after
from tests.support.lossy_proxy import LossyProxy
from tests.support.scripted_server import (
    Received,
    ScriptedServer,
    answers,
    loses_answer,
    sleeps,
)
from txaware.client import ClientSettings, HttpService, Link, Transport
from txaware.client.calls.call import Call, done
from txaware.client.frame_streams import FramedAnswer, FrameStreams, nothing
from txaware.client.service import coordinator_call
from txaware.errors import NotAuthenticated, TopicNotFound, Unavailable
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.protocol.frames import ANY_ROUTE, RequestHead
from txaware.protocol.verb import Repeat
from txaware.server.frame_connection import FrameConnection

IN_FRAMES = ClientSettings(frames=True, retry_for_s=2)
EMPTY = Call("POST", "/ping", done)
WAITS_ONCE = Call(
    "POST",
    "/v1/namespaces/default/topics/t/poll",
    done,
    b'{"waitMs": 30000, "page": true}',
    repeat=Repeat.NEVER,
    longer_s=30,
)


# Servers of before have no number for these: they go as requests of HTTP.
BY_REQUEST = {"enter", "hello", "leave", "ends"}


@pytest.fixture
def messaging(served: Served) -> Iterator[Messaging]:
    with txaware.connect(served.server.url, frames=True) as opened:
        yield opened


@pytest.fixture
def transport(served: Served) -> Iterator[Transport]:
    opened = Transport(Link(served.server.url, settings=IN_FRAMES))
    yield opened
    opened.close()


# ---- one connection
def test_all_threads_share_one_connection(served: Served) -> None:
    with txaware.connect(served.server.url, frames=True) as messaging:

        def work(number: int) -> None:
            with messaging.transaction():
                messaging.publisher("t").publish(b"%d" % number)
            list(messaging.poll("t"))
            assert messaging.topic("t").name == "t"

        with ThreadPoolExecutor(16) as threads:
            list(threads.map(work, range(200)))
        assert (served.connections, len(lines_of(served))) == (1, 1)
        assert len(served.messaging.poll("t", limit=1000)) == 200


def test_calls_that_wait_keep_no_other_call_waiting(messaging: Messaging) -> None:
    with ThreadPoolExecutor(9) as threads:
        waiting = [threads.submit(messaging.poll, "t", wait_s=30) for _ in range(8)]
        for _ in range(50):
            messaging.topic("t")
        messaging.publish("t", [b"a"])
        assert [len(one.result()) for one in waiting] == [1] * 8


def test_a_large_request_and_a_large_answer_come_whole(messaging: Messaging) -> None:
    large = [bytes([number]) * 1_500_000 for number in range(5)]
    messaging.publish("t", large)
    assert [one.payload for one in messaging.poll("t")] == large


def test_many_large_calls_at_once_go_on(messaging: Messaging) -> None:
    def work(number: int) -> int:
        messaging.publish("t", [bytes([number]) * 3_000_000])
        return len(messaging.poll("t"))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(16)))
    assert len(messaging.poll("t", limit=100)) > 1


def test_a_backup_is_streamed(tmp_path: object) -> None:
    with (
        serving(f"leveldb:{tmp_path}/data") as here,
        txaware.connect(here.server.url, frames=True) as messaging,
    ):
        messaging.publish("t", [bytes(100_000)] * 50)
        pieces = messaging._administration.backup()
        first = next(pieces)
        assert messaging.topic("t").name == "t"  # meanwhile
        assert len(first) + sum(map(len, pieces)) > 5_000_000


# ---- which way
def test_the_status_says_the_way(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    version = served.messaging.status().version
    url = served.server.url
    assert str(served.messaging.status()) == f"embedded, txaware {version}"
    with caplog.at_level(logging.INFO, "txaware.client"):
        for frames, way in ((True, "frames"), (False, "http")):
            with txaware.connect(url, frames=frames) as messaging:
                assert messaging.status().transport == way
                assert str(messaging.status()) == f"{way} to {url}, txaware {version}"
                messaging.topics()
    assert [record.message for record in caplog.records] == [
        f"calls go to {url} by frames: it is txaware {version}",
        f"calls go to {url} by HTTP/1.1: frames are not asked for",
    ]


def test_a_setting_keeps_a_client_at_http(served: Served) -> None:
    settings = Settings(frames=False)
    with txaware.connect(served.server.url, settings=settings) as messaging:
        assert messaging.status().transport == "http"


def test_a_server_without_frames_is_asked_by_http(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.INFO, "txaware.client"),
        serving(frames=False) as here,
        txaware.connect(here.server.url, frames=True) as messaging,
    ):
        assert messaging.status().transport == "http"
        assert messaging.topics() == ["t"]
    assert "by HTTP/1.1: it answered 404 to the upgrade" in caplog.text


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 426, 431])
def test_any_answer_below_500_means_http_until_the_next_reconnect(status: int) -> None:
    with ScriptedServer(scripted=True) as server:
        server.script = [answers(status, b"no frames here")]
        transport = Transport(Link(server.url, settings=IN_FRAMES))
        for _ in range(3):
            transport.perform(EMPTY)
        assert server.lines == ["GET /v1/frames", *["POST /ping"] * 3]
        assert server.connections == 1  # the upgrade's own request included
        server.close_idle()
        server.script = [loses_answer, answers(404)]
        transport.perform(EMPTY)
        assert server.lines[4:] == ["POST /ping", "GET /v1/frames", "POST /ping"]
        transport.close()


def test_another_server_at_the_place_is_asked_anew() -> None:
    with ScriptedServer() as server:
        transport = Transport(Link(server.url))
        for instance in ("one", "one", "two", "two"):
            server.instance = instance
            transport.perform(EMPTY)
        transport.close()
        asked = [one.path for one in server.received]
        assert asked == [
            *("/v1/frames", "/ping", "/ping", "/ping"),  # which tells of the second
            *("/v1/frames", "/ping"),
        ]


def test_copies_of_requests_that_reach_a_later_life_are_not_done(
    served: Served,
) -> None:
    many = [b"%d" % number for number in range(20)]
    with (
        served.messaging.serve() as later,
        LossyProxy(
            served.server.url,
            seed=1,
            one_in=0,
            double_one_in=1,
            again_url=later.url,
        ) as proxy,
        txaware.connect(proxy.url, frames=True) as messaging,
    ):
        for payload in many:
            with messaging.transaction():
                messaging.publisher("t").publish(payload)
        assert proxy.doubled >= len(many)
        until(lambda: proxy.answered_again == proxy.doubled)
    assert served.payloads() == many


def test_threads_that_wait_for_a_connection_fail_with_its_one_attempt() -> None:
    waits, go_on, looked = threading.Event(), threading.Event(), list[object]()

    class Failures(dict[Any, Exception]):
        def get(self, *given: Any) -> Any:
            looked.append(given)
            return super().get(*given)

    def loses_it_later(connection: socket.socket, received: Received) -> bool:
        waits.set()
        go_on.wait(20)
        return False

    with ScriptedServer(scripted=True) as server, ThreadPoolExecutor(8) as threads:
        server.script = [loses_it_later]
        settings = ClientSettings(retry_for_s=0)
        transport = Transport(Link(server.url, settings=settings))
        transport._not_made = Failures()
        calls = [threads.submit(transport.perform, EMPTY)]
        assert waits.wait(20)
        calls += [threads.submit(transport.perform, EMPTY) for _ in range(7)]
        assert until(lambda: len(looked) == 8)
        go_on.set()
        for one in calls:
            with pytest.raises(Unavailable, match="no connection"):
                one.result()
        assert server.lines == ["GET /v1/frames"]
        transport.close()


def test_a_client_that_is_closed_waits_for_no_upgrade() -> None:
    with ScriptedServer(scripted=True) as server, ThreadPoolExecutor(1) as threads:
        server.script = [sleeps]
        transport = Transport(Link(server.url))
        asking = threads.submit(transport.perform, EMPTY)
        assert until(lambda: server.lines)
        transport.close()
        with pytest.raises(Unavailable):
            asking.result(20)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_gateway_without_its_server_means_that_it_is_away(status: int) -> None:
    with ScriptedServer(scripted=True) as server:
        server.script = [answers(status)] * 3
        settings = ClientSettings(frames=True, retry_for_s=0)
        transport = Transport(Link(server.url, settings=settings))
        with pytest.raises(Unavailable, match=f"upgrade was answered {status}"):
            transport.perform(EMPTY)
        assert server.lines == ["GET /v1/frames"]
        transport.close()


# ---- what is lost
def test_a_harmless_call_is_repeated_over_a_new_connection(
    served: Served, transport: Transport
) -> None:
    service = HttpService(transport)
    assert service.topics() == ["t"]
    (line,) = lines_of(served)
    line.loop.call_soon_threadsafe(line.cut)
    assert until(lambda: not lines_of(served))
    assert service.topics() == ["t"]
    assert len(lines_of(served)) == 1


def test_answers_that_are_lost_are_known_again_by_their_key(served: Served) -> None:
    with LossyProxy(served.server.url, seed=1, one_in=4) as proxy:
        link = Link(proxy.url, settings=ClientSettings(frames=True, retry_for_s=20))
        transport = Transport(link, sleep=lambda _: None)
        service = HttpService(transport)
        for ttl_s in range(1, 31):
            assert service.update_topic("t", ttl_s=ttl_s).ttl_s == ttl_s
        transport.close()
    assert served.messaging.topic("t").ttl_s == 30


def test_a_request_that_comes_twice_is_performed_once_by_its_key(
    served: Served,
) -> None:
    served.messaging.create_queue("q")
    with (
        LossyProxy(served.server.url, seed=1, one_in=0, double_one_in=1) as proxy,
        txaware.connect(proxy.url, frames=True) as messaging,
    ):
        for number in range(5):
            messaging.queue("q").push(b"%d" % number)
        assert messaging.status().transport == "frames"
        assert proxy.doubled >= 5
        assert until(lambda: proxy.answered_again == proxy.doubled)
    items = served.messaging.queue("q").peek(100)
    assert [item.payload for item in items] == [b"%d" % number for number in range(5)]


def test_a_page_whose_connection_dies_within_it_is_asked_again(
    served: Served, transport: Transport
) -> None:
    payloads = [bytes([number]) * (1 << 20) for number in range(8)]
    served.messaging.publish("t", payloads)
    cut: list[FrameConnection] = []

    def cut_within_the_answer() -> None:
        for line in lines_of(served):
            if line.queue.waiting_bytes:
                line.cut()
                cut.append(line)
                return
        if not over.is_set():
            loop.call_soon(cut_within_the_answer)

    over = threading.Event()
    service = HttpService(transport)
    service.topics()
    loop = lines_of(served)[0].loop
    loop.call_soon_threadsafe(cut_within_the_answer)
    assert [one.payload for one in service.poll("t")] == payloads
    over.set()
    assert cut
    assert lines_of(served) != cut


def test_a_token_that_is_withdrawn_is_told_at_the_next_call(tmp_path: Path) -> None:
    with (
        guarded(tmp_path) as here,
        txaware.connect(here.server.url, token=here.tokens["manager"]) as messaging,
    ):
        messaging.topics()
        here.without("manager")
        for _ in range(3):
            with pytest.raises(NotAuthenticated):
                messaging.topics()


@contextmanager
def waits(served: Served, transport: Transport) -> Iterator[Future[Any]]:
    """A call that may be made once, which the server has and does not answer."""
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(transport.perform, WAITS_ONCE)
        assert until(lambda: [one for one in lines_of(served) if one._streams])
        yield waiting


def test_a_call_that_may_not_be_repeated_is_unknown(
    served: Served, transport: Transport
) -> None:
    with waits(served, transport) as waiting:
        (line,) = lines_of(served)
        line.loop.call_soon_threadsafe(line.cut)
        with pytest.raises(Unavailable, match="connection was lost"):
            waiting.result()


def test_an_error_is_the_one_of_the_server(messaging: Messaging) -> None:
    with pytest.raises(TopicNotFound, match="nowhere"):
        messaging.topic("nowhere")
    with pytest.raises(TopicNotFound, match="nowhere"):
        messaging.poll("nowhere")


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_cancels_the_call_and_no_other(
    served: Served, messaging: Messaging
) -> None:
    messaging.topics()
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(messaging.poll, "t", wait_s=30)
        assert until(lambda: [one for one in lines_of(served) if one._streams])
        interrupted_after(0.1, lambda: messaging.poll("t", wait_s=30))
        assert until(lambda: len(lines_of(served)[0]._streams) == 1)
        messaging.publish("t", [b"a"])
        assert len(other.result()) == 1
    assert served.connections == 1


def test_a_client_that_is_closed_tells_those_who_wait(served: Served) -> None:
    transport = Transport(Link(served.server.url, settings=IN_FRAMES))
    service = HttpService(transport)
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(service.poll, "t", wait_s=30) for _ in range(2)]
        assert until(lambda: [one for one in lines_of(served) if len(one._streams) > 1])
        transport.close()
        for one in waiting:
            with pytest.raises(Unavailable):
                one.result()
    with pytest.raises(Unavailable, match="closed"):
        service.topics()
    assert until(lambda: not lines_of(served))


def test_a_request_that_was_sent_is_not_repeated_when_its_connection_is_closed(
    served: Served, transport: Transport
) -> None:
    with waits(served, transport) as waiting:
        (connection,) = transport._framed.values()
        connection.close()
        with pytest.raises(Unavailable, match="connection was lost"):
            waiting.result()
    assert [*transport._framed.values()] == [connection]


def test_a_request_that_waits_to_be_written_goes_out_on_another_connection(
    served: Served, transport: Transport
) -> None:
    transport.run(EMPTY)
    (connection,) = transport._framed.values()
    once = attrs.evolve(EMPTY, repeat=Repeat.NEVER)
    with ThreadPoolExecutor(1) as threads:
        with connection._writing:
            waiting = threads.submit(transport.perform, once)
            assert until(lambda: connection._streams.under_way)
            connection.close()
        connection._close_socket()  # as whoever wrote does
        waiting.result(timeout=20)
    assert [*transport._framed.values()] != [connection]


def test_a_call_that_begins_as_its_connection_closes_ends_at_once(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw the connection open, and is under way on it just behind the close."""
    transport.run(EMPTY)
    (connection,) = transport._framed.values()
    begin = FrameStreams.begin

    def late(streams: FrameStreams, *given: Any, **options: Any) -> FramedAnswer:
        transport.close()
        return begin(streams, *given, **options)

    monkeypatch.setattr(FrameStreams, "begin", late)
    with pytest.raises(Unavailable, match="this Messaging is closed"):
        transport.run(EMPTY)
    assert connection._streams.under_way == []


class LetGoMeanwhile:
    """A lock that its holder lets go of just after another thread found it taken."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.held = threading.Lock()
        self.held.acquire()
        self.locked = self.held.locked
        self.release = self.held.release

    def acquire(self, blocking: bool = True) -> bool:
        taken = self.held.acquire(blocking=False)
        if not taken:
            self.held.release()
            self.connection._close_socket()  # as whoever wrote does at its end
        return taken


def test_two_threads_that_close_one_connection_do_not_leave_it_to_each_other(
    transport: Transport,
) -> None:
    transport.run(EMPTY)
    (connection,) = transport._framed.values()
    opened: Any = connection._socket
    connection._writing = LetGoMeanwhile(connection)  # type: ignore[assignment]
    connection.close()
    assert opened.fileno() == -1


def test_an_answer_above_the_limit_ends_that_call_alone(served: Served) -> None:
    served.messaging.publish("t", [bytes(1_000_000)])
    settings = ClientSettings(frames=True, answer_limit_bytes=500_000)
    transport = Transport(Link(served.server.url, settings=settings))
    service = HttpService(transport)
    with pytest.raises(Unavailable, match="above the limit"):
        service.poll("t")
    assert service.topics() == ["t"]
    assert served.connections == 1
    transport.close()


def test_a_call_has_its_time(served: Served) -> None:
    settings = ClientSettings(frames=True, answer_timeout_s=0.2, retry_for_s=0)
    transport = Transport(Link(served.server.url, settings=settings))
    waits = Call(
        "POST",
        "/v1/namespaces/default/topics/t/poll",
        done,
        b'{"waitMs": 30000, "page": true}',
    )
    with pytest.raises(Unavailable, match=r"no answer in 0\.2 s"):
        transport.perform(waits)
    transport.perform(EMPTY)
    assert served.connections == 1
    transport.close()


def test_a_connection_that_stays_silent_for_two_calls_is_given_up(
    served: Served,
) -> None:
    settings = ClientSettings(frames=True, answer_timeout_s=0.2, retry_for_s=0)
    with LossyProxy(served.server.url, seed=1, one_in=0) as proxy:
        transport = Transport(Link(proxy.url, settings=settings))

        def is_answered() -> bool:
            try:
                transport.perform(EMPTY)
            except Unavailable:
                return False
            return True

        assert until(is_answered)
        proxy.silence()
        assert not is_answered()
        assert not is_answered()
        assert until(is_answered)
        assert proxy.swallowed >= 2
        transport.close()


def test_threads_that_wait_read_for_each_other(messaging: Messaging) -> None:
    """Whoever reads for all hands that on when it has its own answer."""
    done_at = threading.Barrier(9)

    def call_often() -> None:
        done_at.wait()
        for _ in range(100):
            messaging.topic("t")

    with ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(call_often) for _ in range(8)]
        done_at.wait()
        for one in calls:
            one.result()


def test_a_thread_that_reads_waits_for_none_that_writes(
    served: Served, messaging: Messaging
) -> None:
    """The latter may wait until the server is read from."""
    messaging.poll("t", wait_s=0.01)
    (connection,) = messaging._parts.service._transport._framed.values()  # type: ignore
    with ThreadPoolExecutor(2) as threads:
        reads = threads.submit(messaging.poll, "t", wait_s=30)
        assert until(
            lambda: connection._streams.under_way and connection._reading.locked()
        )
        with connection._writing:
            written = threads.submit(messaging.topic, "t")
            assert until(lambda: connection._streams.queue.is_ready)
            served.messaging.publish("t", [b"a"])
            assert len(reads.result(timeout=20)) == 1
        connection._flush(None, 20)  # as whoever wrote does
        assert written.result(timeout=20).name == "t"


def test_a_thread_waits_for_none_that_writes_which_sends_its_request_too(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So what many threads ask at once goes out in a few pieces."""
    transport.run(EMPTY)
    (connection,) = transport._framed.values()
    write, writers = connection._write_some, list[int]()
    asked: list[Future[None]] = []

    def others_wait() -> bool:
        told = [one for one in connection._streams.under_way if one.notify != nothing]
        return connection._reading.locked() and len(told) == 2

    with ThreadPoolExecutor(3) as threads:

        def write_late() -> bool:
            writers.append(threading.get_ident())
            is_all = write()
            if not asked:  # they are asked while this thread writes
                asked.extend(threads.submit(transport.perform, EMPTY) for _ in range(3))
                assert until(others_wait)
            return is_all

        monkeypatch.setattr(connection, "_write_some", write_late)
        transport.run(EMPTY)
        for one in asked:
            one.result(timeout=20)
    assert set(writers) == {threading.get_ident()}


def test_an_interrupt_behind_a_write_leaves_no_request_of_others_unsent(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport.run(EMPTY)
    (connection,) = transport._framed.values()
    release = connection._writing.release
    asked: list[Future[None]] = []
    with ThreadPoolExecutor(1) as threads:

        class Interrupted:
            """The lock of whoever writes; a signal comes as it is let go of."""

            acquire = connection._writing.acquire
            locked = connection._writing.locked

            def release(self) -> None:
                connection._writing = self.lock
                asked.append(threads.submit(transport.perform, EMPTY))
                assert until(lambda: connection._streams.queue.is_ready)
                release()
                raise KeyboardInterrupt

            lock = connection._writing

        connection._writing = Interrupted()  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            transport.run(EMPTY)
        asked[0].result(timeout=20)


def test_a_look_at_a_connection_leaves_no_call_without_a_reader(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looked may have nothing to ask after all."""
    transport.run(EMPTY)
    (connection,) = transport._framed.values()
    with ThreadPoolExecutor(1) as threads:
        asked: list[Future[None]] = []

        def look(_: float) -> None:
            monkeypatch.undo()
            asked.append(threads.submit(transport.perform, EMPTY))
            assert until(
                lambda: any(
                    one.notify is not nothing for one in connection._streams.under_way
                )
            )

        monkeypatch.setattr(connection, "_read", look)
        assert connection.is_usable()
        asked[0].result(timeout=20)


def test_it_goes_over_tls(tmp_path: Path) -> None:
    made = certificate(tmp_path, "server")
    with serving(access={"certificate": made}) as here:
        settings = ClientSettings(frames=True, certificate=made.read_text())
        transport = Transport(Link(here.server.url, settings=settings))
        service = HttpService(transport)

        def work(number: int) -> int:
            service.publish("t", [bytes([number]) * 400_000])
            return len(service.poll("t"))

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(work, range(24)))
        assert (here.connections, len(lines_of(here))) == (1, 1)
        transport.close()
        asyncio.run(over_tls(here.server.url, settings))


async def over_tls(url: str, settings: ClientSettings) -> None:
    async with txaware.connect_async(url, settings=settings, frames=True) as messaging:
        pages = await asyncio.gather(*(messaging.poll("t") for _ in range(5)))
        assert all(pages)
        assert (await messaging.status()).transport == "frames"


def test_a_forked_child_has_a_connection_of_its_own(served: Served) -> None:
    transport = Transport(Link(served.server.url, settings=IN_FRAMES))
    service = HttpService(transport)
    service.publish("t", [b"before"])
    child = os.fork()
    if not child:
        code = 1
        try:
            service.publish("t", [b"child"])
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0
    service.publish("t", [b"after"])
    assert [one.payload for one in service.poll("t")] == [b"before", b"child", b"after"]
    assert until(lambda: len(lines_of(served)) == 1)
    transport.close()


@pytest.mark.parametrize("call", calls.CALLS, ids=lambda call: call.name or call.method)
def test_calls_of_a_coordinator_that_are_declared_go_by_their_number(
    call: calls.RemoteCall,
) -> None:
    pointer = 5 if call.of_one else None
    asked = coordinator_call(calls.CallRequest(call, pointer, {"waitMs": 0}))
    assert (asked.framed is None) == (call.name in BY_REQUEST)


def test_a_transaction_goes_by_numbers(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[RequestHead] = []
    begin = FrameStreams.begin

    def noted(
        streams: FrameStreams, head: RequestHead, *more: Any, **named: Any
    ) -> Any:
        sent.append(head)
        return begin(streams, head, *more, **named)

    coordinator = messaging.coordinator
    monkeypatch.setattr(FrameStreams, "begin", noted)
    tx = coordinator.start_short()
    assert tx.transaction_id in coordinator.snapshot().in_progress
    assert coordinator.status() == "OK"
    assert tx.transaction_id in [
        *(one.transaction_id for one in standings(coordinator, OPEN)),
    ]
    assert standing(coordinator, tx.transaction_id).type == "short"
    coordinator.can_commit(tx, [b"\xff", b"key"])
    coordinator.persist(tx)
    more = coordinator.checkpoint(tx)
    assert [*more.checkpoint_write_pointers] == [more.write_pointer]
    assert coordinator.invalidate(more)
    two_phases(coordinator).prepare(coordinator.start_short(), "p")
    assert [one.name for one in two_phases(coordinator).prepared()] == ["p"]
    two_phases(coordinator).commit_prepared("p")
    coordinator.abort(coordinator.start_short())
    assert isinstance(coordinator, KnowsLives)
    assert coordinator.outcome(5, life="") is Outcome.FORGOTTEN
    coordinator.decide(5, committed=True)
    assert not coordinator.truncate_invalid_tx([5])
    assert coordinator.invalid_size() == 2
    coordinator.commit(coordinator.start_short())
    numbers = [head.verb for head in sent]
    assert ANY_ROUTE not in numbers
    assert numbers[:5] == [93, 94, 97, 95, 96]
    assert numbers[5:16] == [83, 84, 87, 86, 93, 88, 90, 90, 91, 93, 85]
    assert numbers[16:] == [103, 104, 102, 101, 93, 105]
