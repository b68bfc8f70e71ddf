"""When the client asks again, and when it must not."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.remote.calls import COMMIT, CallRequest
from coordinator.remote.client import RemoteCoordinator
from coordinator.transaction import Transaction
from tests.support.concurrency import in_threads, until
from tests.support.scripted_server import (
    Act,
    Pauses,
    ScriptedServer,
    answers,
    answers_and_closes,
    cuts_body,
    cuts_head,
    loses_answer,
    refuses,
    sleeps,
)
from txaware.client import (
    ClientSettings,
    CoordinatorSend,
    HttpAdministration,
    HttpService,
    Link,
    Transport,
)
from txaware.client.calls.call import Call, done
from txaware.client.calls.service_calls import ServiceCalls
from txaware.client.calls.verb_calls import steps_of
from txaware.errors import Unavailable
from txaware.model.messages import MessageId, PublishResponse
from txaware.model.producers import ProducerIdentity
from txaware.protocol.topics import LIST_TOPICS
from txaware.protocol.verb import Repeat

NAMES = answers(200, ["t"], Txaware_Instance="one")
BUSY = refuses(503, "Unavailable", Retry_After="2", Txaware_Instance="one")
NOT_KNOWN = refuses(
    *(503, "Unavailable", "the server was started anew"),
    Txaware_Outcome="unknown",
    Txaware_Instance="two",
    Retry_After="1",
)
LOST: list[Act] = [loses_answer, cuts_head, cuts_body]
Verb = Callable[[HttpService], object]


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def transport(server: ScriptedServer, pauses: Pauses) -> Iterator[Transport]:
    opened = transport_to(server.url, pauses)
    yield opened
    opened.close()


@pytest.fixture
def service(transport: Transport) -> HttpService:
    return HttpService(transport)


def transport_to(url: str, pauses: Pauses, **settings: Any) -> Transport:
    link = Link(
        url,
        settings=ClientSettings(**settings),
        clock_s=pauses,
        jitter=lambda least, most: most,
    )
    return Transport(link, sleep=pauses.sleep)


@pytest.mark.parametrize("act", LOST)
def test_what_is_harmless_is_asked_again(
    server: ScriptedServer, service: HttpService, act: Act
) -> None:
    server.script = [act, act, NAMES]
    assert service.topics() == ["t"]
    assert len(server.lines) == 3


@pytest.mark.parametrize("act", LOST)
def test_a_publish_is_repeated_by_its_key_and_at_the_instance_of_the_first_try(
    server: ScriptedServer, service: HttpService, act: Act
) -> None:
    server.script = [act, act]
    service.publish("t", [b"a"])
    first, second, third = server.of("/publish")
    assert first.body == second.body == third.body
    assert first.headers["idempotency-key"] == third.headers["idempotency-key"]
    assert "txaware-instance" not in first.headers
    assert second.headers["txaware-instance"] == third.headers["txaware-instance"]
    assert second.headers["txaware-instance"] == "one"


def test_each_publish_has_a_key_of_its_own(
    server: ScriptedServer, service: HttpService
) -> None:
    service.publish("t", [b"a"])
    service.publish("t", [b"a"])
    keys = [one.headers["idempotency-key"] for one in server.of("/publish")]
    assert len(set(keys)) == 2
    assert all(len(key) <= 64 for key in keys)


KEYED: dict[str, Verb] = {
    "create": lambda s: s.create_topic("t"),
    "delete": lambda s: s.delete_topic("t"),
    "publish": lambda s: s.publish("t", [b"a"]),
    "store": lambda s: s.store("t", [b"a"], transaction=5),
    "save": lambda s: s.save_position("g", "t", MessageId(20), transaction=5),
}


@pytest.mark.parametrize("name", KEYED)
def test_an_unknown_outcome_is_raised_and_not_asked_for_again(
    server: ScriptedServer, service: HttpService, name: str
) -> None:
    server.script = [loses_answer, NOT_KNOWN]
    with pytest.raises(Unavailable, match=r"^the server was started anew$"):
        KEYED[name](service)
    assert len(server.lines) == 2


def test_a_producer_is_opened_anew_where_it_is_not_known_whether_it_was(
    server: ScriptedServer, service: HttpService
) -> None:
    opened = answers(201, {"producerId": 7, "epoch": 2}, Txaware_Instance="two")
    server.script = [loses_answer, NOT_KNOWN, loses_answer, opened]
    assert service.open_producer("p").identity == ProducerIdentity(7, 2)
    first, second, third, fourth = server.of("/producers")
    keys = [one.headers["idempotency-key"] for one in (first, second, third, fourth)]
    assert keys[0] == keys[1] != keys[2] == keys[3]
    assert "txaware-instance" not in third.headers
    assert [one.headers["txaware-instance"] for one in (second, fourth)] == [
        "one",
        "two",
    ]


def test_a_producer_is_not_opened_anew_for_ever(
    server: ScriptedServer, service: HttpService
) -> None:
    server.script = [loses_answer, NOT_KNOWN] * 100
    with pytest.raises(Unavailable):
        service.open_producer("p")
    assert server.script  # it gave up before


def test_after_a_restart_the_first_tries_are_meant_for_the_new_instance(
    server: ScriptedServer, service: HttpService
) -> None:
    service.publish("t", [b"a"])
    server.instance = "two"
    service.publish("t", [b"a"])
    server.script = [loses_answer]
    service.publish("t", [b"a"])
    assert server.of("/publish")[-1].headers["txaware-instance"] == "two"


NEVER: dict[str, Callable[[RemoteCoordinator], object]] = {
    "start long": lambda c: c.start_long(),
    "abort": lambda c: c.abort(transaction()),
    "checkpoint": lambda c: c.checkpoint(transaction()),
}
AGAIN: dict[str, Callable[[RemoteCoordinator], object]] = {
    "start": lambda c: c.start_short(),
    "can commit": lambda c: c.can_commit(transaction(), []),
    "persist": lambda c: c.persist(transaction()),
    "invalidate": lambda c: c.invalidate(5),
    "snapshot": lambda c: c.snapshot(),
    "status": lambda c: c.status(),
    "invalid size": lambda c: c.invalid_size(),
}


def transaction() -> Transaction:
    return Transaction(5, 4)


@pytest.mark.parametrize("name", NEVER)
def test_what_is_not_harmless_and_has_no_key_is_asked_once(
    server: ScriptedServer, transport: Transport, name: str
) -> None:
    server.script = [loses_answer]
    with pytest.raises(Unavailable, match="the connection was lost"):
        NEVER[name](RemoteCoordinator(CoordinatorSend(transport)))
    assert len(server.lines) == 1


@pytest.mark.parametrize("name", AGAIN)
def test_calls_of_a_coordinator_that_are_harmless_are_asked_again(
    server: ScriptedServer, transport: Transport, name: str
) -> None:
    server.script = [loses_answer, refuses(400, "BadRequest", "this one came")]
    with pytest.raises(ValueError, match="this one came"):
        AGAIN[name](RemoteCoordinator(CoordinatorSend(transport)))
    assert len(server.lines) == 2


def test_a_commit_is_sent_once_unless_it_says_that_it_is_a_repeat(
    server: ScriptedServer, transport: Transport
) -> None:
    send = CoordinatorSend(transport)
    server.script = [loses_answer]
    with pytest.raises(Unavailable):
        send.ask(CallRequest(COMMIT, 5, {"type": "short"}))
    assert len(server.lines) == 1
    server.script = [loses_answer, answers(200, {})]
    assert send.ask(CallRequest(COMMIT, 5, {"type": "short", "repeat": True})) == {}


def test_clean_up_and_prune_are_asked_once(
    server: ScriptedServer, transport: Transport
) -> None:
    administration = HttpAdministration(transport)
    for call in (administration.clean_up, administration.prune, administration.check):
        server.script = [loses_answer]
        with pytest.raises(Unavailable):
            call()
    assert len(server.lines) == 3


def test_too_much_to_do_is_waited_for_as_the_server_says(
    server: ScriptedServer, service: HttpService, pauses: Pauses
) -> None:
    server.script = [BUSY, BUSY]
    service.publish("t", [b"a"])
    assert pauses.slept_s == [2.5, 2.5]  # with the most that chance may add
    assert "txaware-instance" not in server.of("/publish")[-1].headers


def test_what_was_not_begun_may_be_asked_again_whatever_it_is(
    server: ScriptedServer, transport: Transport
) -> None:
    server.script = [BUSY, refuses(409, "TransactionNotInProgress", "it has ended")]
    coordinator = RemoteCoordinator(CoordinatorSend(transport))
    with pytest.raises(Exception, match="it has ended"):
        coordinator.abort(transaction())


def test_a_proxy_does_not_know_what_was_begun(
    server: ScriptedServer, service: HttpService
) -> None:
    proxy = answers(503, b"<html>busy</html>", Retry_After="1")
    server.script = [proxy]
    with pytest.raises(Unavailable, match="503, '<html>busy"):
        service.publish("t", [b"a"])
    server.script = [proxy, NAMES]
    assert service.topics() == ["t"]


def test_waiting_ends_with_the_time_for_repeats(
    server: ScriptedServer, service: HttpService, pauses: Pauses
) -> None:
    server.script = [BUSY] * 100
    with pytest.raises(Unavailable, match=r"^no$"):
        service.publish("t", [b"a"])
    assert pauses.now_s <= 10
    assert len(server.lines) == 5


def test_pauses_begin_with_none_and_grow_to_a_second(
    server: ScriptedServer, service: HttpService, pauses: Pauses
) -> None:
    server.script = [loses_answer] * 100
    with pytest.raises(Unavailable):
        service.topics()
    assert pauses.slept_s[:6] == [0, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert 9 <= pauses.now_s <= 10


def test_without_time_for_repeats_there_is_one_try(
    server: ScriptedServer, pauses: Pauses
) -> None:
    server.script = [BUSY]
    transport = transport_to(server.url, pauses, retry_for_s=0)
    with pytest.raises(Unavailable):
        HttpService(transport).topics()
    assert len(server.lines) == 1
    transport.close()


@pytest.mark.parametrize("status", [400, 404, 409, 413, 500, 502, 503])
def test_any_other_answer_is_an_answer(
    server: ScriptedServer, service: HttpService, status: int
) -> None:
    server.script = [answers(status, b"no")]
    with pytest.raises(Exception, match="no"):
        service.topics()
    assert len(server.lines) == 1


def test_a_request_that_never_left_is_always_tried_again(pauses: Pauses) -> None:
    server = ScriptedServer()
    server.close()
    transport = transport_to(server.url, pauses)
    coordinator = RemoteCoordinator(CoordinatorSend(transport))
    with pytest.raises(Unavailable, match="no connection") as caught:
        coordinator.start_long()
    assert caught.value.__cause__ is not None
    assert len(pauses.slept_s) > 5


def test_a_publish_whose_instance_nobody_knows_is_not_repeated(
    server: ScriptedServer, transport: Transport
) -> None:
    server.script = [loses_answer]
    with pytest.raises(Unavailable):
        transport.perform(Call("POST", "/x", done, repeat=Repeat.KEYED))
    assert server.lines == ["POST /x"]


def test_a_connection_that_was_closed_while_idle_is_not_noticed(
    server: ScriptedServer, service: HttpService
) -> None:
    for _ in range(20):
        service.publish("t", [b"a"])
        server.close_idle()
    service.publish("t", [b"a"])
    assert len(server.of("/publish")) == 21


def test_a_connection_that_closes_at_the_moment_of_sending_is_replaced(
    server: ScriptedServer, service: HttpService
) -> None:
    server.script = [answers_and_closes] * 50
    for _ in range(50):
        service.publish("t", [b"a"])


def test_a_slow_answer_is_given_up_and_the_next_call_has_a_connection_of_its_own(
    server: ScriptedServer, pauses: Pauses
) -> None:
    transport = transport_to(server.url, pauses, answer_timeout_s=0.05)
    service = HttpService(transport)
    service.publish("t", [b"a"])
    server.script = [sleeps, *[NAMES] * 50]  # more, where an answer comes late
    assert service.topics() == ["t"]
    server.script = [sleeps] * 50
    with pytest.raises(Unavailable, match=r"no answer in 0\.05 s"):
        RemoteCoordinator(CoordinatorSend(transport)).start_long()
    transport.close()


def test_a_rollback_is_asked_again(
    server: ScriptedServer, service: HttpService
) -> None:
    server.script = [loses_answer]
    service.rollback("t", PublishResponse(5, 1, 0, 1, 1))
    first, second = server.of("/rollback")
    assert first.body == second.body


def test_an_interrupt_is_not_taken_for_a_failure(
    server: ScriptedServer, pauses: Pauses
) -> None:
    class Interrupted(BaseException):
        pass

    def interrupted(_: float) -> None:
        raise Interrupted

    link = Link(server.url, clock_s=pauses)
    transport = Transport(link, sleep=interrupted)
    server.script = [loses_answer] * 3
    with pytest.raises(Interrupted):
        transport.run(steps_of(LIST_TOPICS)(ServiceCalls(transport.link), "default"))
    assert len(server.lines) == 1
    transport.close()


def test_what_is_called_after_the_close_is_unavailable(service: HttpService) -> None:
    service.close()
    service.close()
    with pytest.raises(Unavailable, match="closed"):
        service.topics()


def test_all_connections_in_use_is_said(server: ScriptedServer) -> None:
    settings = ClientSettings(pool_connections=1, connect_timeout_s=0.05, retry_for_s=0)
    transport = Transport(Link(server.url, settings=settings))
    server.script = [answers(200, b"a" * 100_000)]
    stream = transport.stream(Call("GET", "/x", done))
    next(stream)
    with pytest.raises(Unavailable, match="all 1 connections are in use"):
        HttpService(transport).topics()
    stream.close()
    transport.close()


def test_who_waits_for_an_answer_is_told_of_the_close(server: ScriptedServer) -> None:
    transport = Transport(Link(server.url))
    server.script = [lambda *_: bool(threading.Event().wait(5))]
    raised: list[Exception] = []

    def wait() -> None:
        try:
            HttpService(transport).wait("t", start=None, timeout_s=30)
        except Unavailable as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert until(lambda: server.of("/wait"))
    transport.close()
    waiting.join(3)
    assert not waiting.is_alive()
    assert "closed" in str(raised[0])


def test_those_that_wait_take_no_connection_from_the_others(
    server: ScriptedServer,
) -> None:
    settings = ClientSettings(pool_connections=1)
    transport = Transport(Link(server.url, settings=settings))
    service, go_on = HttpService(transport), threading.Event()
    service.publish("t", [b"a"])

    def later(*given: Any) -> bool:
        go_on.wait(5)
        return answers(200, {"ready": True})(*given)

    server.script = [later]
    waiting = threading.Thread(
        target=lambda: service.wait("t", start=None, timeout_s=30)
    )
    waiting.start()
    assert until(lambda: server.of("/wait"))
    service.publish("t", [b"b"])
    go_on.set()
    waiting.join(3)
    transport.close()


def test_of_many_idle_connections_the_latest_is_used_and_the_oldest_go(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = Transport(Link(server.url))
    service = HttpService(transport)
    meet = threading.Barrier(8)

    def together() -> None:
        meet.wait()
        service.publish("t", [b"a"])

    service.publish("t", [b"a"])
    server.script = [pausing] * 8
    in_threads(lambda _: together(), range(8))
    opened = server.connections
    assert opened > 1
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 20)
    service.publish("t", [b"a"])
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 30)
    for _ in range(10):
        service.publish("t", [b"a"])
    assert server.connections == opened
    assert repr(transport).endswith("0 connections in use, 1 idle>")
    transport.close()


def pausing(connection: Any, received: Any) -> bool:
    threading.Event().wait(0.05)
    return answers(200)(connection, received)
