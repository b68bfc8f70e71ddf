"""Requests that are repeated with an Idempotency-Key: one answer, one message."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.concurrency import in_threads, until
from tests.support.http_raw import (
    AVRO,
    PUBLISH,
    TOPIC,
    Response,
    Served,
    one,
    publish,
    request,
    serving,
)
from txaware.errors import (
    BadRequest,
    KeeperNotFound,
    NotWritten,
    TopicNotFound,
    Unavailable,
)
from txaware.model.producers import KeyReused
from txaware.server import idempotency as repeats
from txaware.server.exchange import DONE, Reply
from txaware.server.idempotency import (
    Idempotency,
    KeyedRequest,
    OutcomeUnknown,
)

KEY = "Idempotency-Key: k1"
IN_TX = bytes.fromhex("000a02026100")
STORE = TOPIC + "/store"


@pytest.fixture
def here() -> Iterator[Served]:
    with serving(accept_unknown_pointers=True) as opened:
        yield opened
        assert opened.is_well()


def to(here: Served) -> str:
    """The header of a repeat, which names where the first request went."""
    return f"Txaware-Instance: {here.server.instance}"


def test_a_repeat_gets_the_same_answer_and_stores_nothing(here: Served) -> None:
    keyed = publish(IN_TX, KEY), publish(IN_TX, KEY, to(here))
    first, *again = [here.ask(data) for data in (*keyed, *keyed)]
    assert {one.body for one in again} == {first.body} != {b""}
    assert here.payloads() == [b"a"]


def test_keys_tell_requests_apart(here: Served) -> None:
    here.messaging.create_topic("u")
    assert here.ask(publish()).status == here.ask(publish()).status == 200
    for key in ("a", "b", "x" * 64):
        assert here.ask(publish(one(b"k"), f"Idempotency-Key: {key}")).status == 200
    other = PUBLISH.replace("/t/", "/u/")
    assert here.ask(request("POST", other, one(b"u"), *AVRO, "Idempotency-Key: a"))
    assert here.payloads() == [b"a", b"a", b"k", b"k", b"k"]
    assert here.payloads("u") == [b"u"]


@pytest.mark.parametrize("body", [IN_TX, one(b"a")])
def test_another_request_with_the_same_key_is_422(here: Served, body: bytes) -> None:
    assert here.ask(publish(body, KEY)).status == 200
    for other in (one(b"b"), body + b"?", b""):
        answer = here.ask(publish(other, KEY, to(here)))
        assert (answer.status, answer.json()["error"]) == (422, "BadRequest")
        assert "has been used for another request" in answer.json()["message"]
    assert here.ask(publish(body, KEY)).status == 200
    assert here.payloads() == [b"a"]


BEGIN = ("POST", "/v1/transactions")
SHORT, OTHER = b'{"type":"short"}', b'{"type":"long"}'
JSON = ("Content-Type: application/json", "Accept: application/json")


def test_a_begin_that_is_repeated_begins_once(here: Served) -> None:
    keyed = request(*BEGIN, SHORT, *JSON, KEY)
    first, *again = [here.ask(data).json() for data in [keyed] * 3]
    assert again == [first] * 2
    assert [*here.messaging.coordinator.snapshot().in_progress] == [
        first["transactionId"]
    ]
    answer = here.ask(request(*BEGIN, OTHER, *JSON, KEY))
    assert (answer.status, answer.json()["error"]) == (422, "BadRequest")
    unkeyed = here.ask(request(*BEGIN, SHORT, *JSON)).json()
    assert unkeyed["transactionId"] != first["transactionId"]


def test_a_checkpoint_that_is_repeated_is_one(here: Served) -> None:
    pointer = here.ask(request(*BEGIN, SHORT, *JSON)).json()["transactionId"]
    checkpoint = ("POST", f"/v1/transactions/{pointer}/checkpoint")
    keyed = request(*checkpoint, b"{}", *JSON, KEY)
    first, again = here.ask(keyed).json(), here.ask(keyed).json()
    assert first == again
    answer = here.ask(request(*checkpoint, b'{"checkpoints":[]}', *JSON, KEY))
    assert answer.status == 422


def test_a_begin_that_was_refused_may_go_better(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = request(*BEGIN, SHORT, *JSON, KEY)

    def fail(*_: Any, **__: Any) -> None:
        raise Unavailable("not now")

    with monkeypatch.context() as patched:
        patched.setattr(here.messaging.coordinator, "start_short", fail)
        assert here.ask(keyed).status == 503
    assert here.ask(keyed).status == 200


def test_a_push_with_another_query_is_another_request(here: Served) -> None:
    here.messaging.create_queue("q")
    path = "/v1/namespaces/default/queues/q/push"
    for query, status in (("", 200), ("?priority=1", 422), ("", 200)):
        push = request("POST", path + query, one(b"a"), *AVRO, KEY)
        assert here.ask(push).status == status
    assert here.messaging.queue("q").stats().depth == 1


@pytest.mark.parametrize("key", ["", "x" * 65])
def test_a_key_of_the_wrong_length_is_400(here: Served, key: str) -> None:
    assert here.ask(publish(IN_TX, f"Idempotency-Key: {key}")).status == 400
    assert here.payloads() == []


def test_two_keys_are_400(here: Served) -> None:
    assert here.ask(publish(IN_TX, KEY, "Idempotency-Key: k2")).status == 400
    assert here.payloads() == []


def test_a_repeat_at_another_instance_is_refused_and_not_tried(here: Served) -> None:
    elsewhere = "Txaware-Instance: 0123456789abcdef"
    answer = here.ask(publish(IN_TX, KEY, elsewhere))
    assert (answer.status, answer.json()["error"]) == (503, "Unavailable")
    assert answer.headers["txaware-outcome"] == "unknown"
    assert here.payloads() == []
    known = here.ask(publish(IN_TX, KEY))
    assert here.ask(publish(IN_TX, KEY, elsewhere)).body == known.body


def test_every_answer_names_the_instance(here: Served) -> None:
    for data in (publish(), request("GET", "/nowhere"), publish(b"?")):
        assert here.ask(data).headers["txaware-instance"] == here.server.instance


def test_a_refused_request_may_be_repeated_when_it_goes_better(here: Served) -> None:
    new = PUBLISH.replace("/t/", "/new/")
    keyed = request("POST", new, one(b"a"), *AVRO, KEY)
    assert [here.ask(keyed).status for _ in range(2)] == [404, 404]
    here.messaging.create_topic("new")
    assert [here.ask(keyed).status for _ in range(2)] == [200, 200]
    assert here.payloads("new") == [b"a"]
    assert here.ask(publish(b"?", KEY)).status == 400
    assert here.ask(publish(one(b"b"), KEY)).status == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_topics_are_made_and_deleted_once(here: Served, method: str) -> None:
    topic = TOPIC + ("2" if method == "PUT" else "")
    keyed = request(method, topic, b"", KEY)
    assert [here.ask(keyed).status for _ in range(3)] == [200] * 3
    status = here.ask(request(method, topic, b"")).status
    assert status == (409 if method == "PUT" else 404)
    assert here.ask(keyed).status == 200


def test_a_store_is_repeated_with_its_receipt(here: Served) -> None:
    body = b'{"transactionWritePointer": 5, "messages": ["a"]}'
    kind = "Content-Type: application/json"
    keyed = request("POST", STORE, body, kind, KEY)
    first, again = here.ask(keyed), here.ask(keyed)
    assert first.json()["count"] == 1
    assert first.body == again.body
    assert here.ask(publish(bytes.fromhex("000a00"))).status == 200
    assert here.payloads() == [b"a"]


def test_many_repeats_at_once_are_one_message(here: Served) -> None:
    answers: list[Response] = []

    def ask() -> None:
        answers.append(here.ask(publish(IN_TX, KEY, to(here))))

    in_threads(lambda _: ask(), range(30))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert here.payloads() == [b"a"]


def test_a_repeat_whose_first_client_is_gone_gets_its_answer(here: Served) -> None:
    for number in range(20):
        data = publish(IN_TX, f"Idempotency-Key: gone{number}", to(here))
        with here.connect() as raw:
            raw.send(data)
        assert here.ask(data).status == 200
    assert until(lambda: not here.in_flight)
    assert len(here.payloads()) == 20


class Remembering:
    """Answers by key, with a clock that is told the time, and requests that wait."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.tries = 0
        self.repeats = Idempotency("here", lambda: self.now_s)

    def ask(
        self, key: bytes = b"k", *, instance: bytes | None = None, body: int = 0
    ) -> Reply:
        """A request that is carried out at once, if it is."""
        return asyncio.run(self._once(key, instance, self._perform, body))

    async def _perform(self) -> Reply:
        self.tries += 1
        return Reply(200, b"%d" % self.tries)

    async def _once(
        self, key: bytes, instance: bytes | None, perform: Any, body: int = 0
    ) -> Reply:
        keyed = KeyedRequest(("p", "POST", "/", key), instance, body)
        return await self.repeats.once(keyed, perform)

    def fail(self, error: BaseException, key: bytes = b"k") -> None:
        """A request that fails."""

        async def perform() -> Reply:
            raise error

        with pytest.raises(type(error)):
            asyncio.run(self._once(key, None, perform))


@pytest.fixture
def memory() -> Remembering:
    return Remembering()


def test_an_answer_is_remembered_for_a_minute(memory: Remembering) -> None:
    assert memory.ask().body == b"1"
    memory.now_s += 59.9
    assert memory.ask().body == b"1"
    memory.now_s += 0.2
    assert memory.ask().body == b"2"


def test_the_minute_begins_with_the_answer(memory: Remembering) -> None:
    """A first request that takes long is not forgotten while it is under way."""

    async def run() -> list[Reply]:
        going = asyncio.Event()

        async def perform() -> Reply:
            memory.tries += 1
            await going.wait()
            return DONE

        first = asyncio.create_task(memory._once(b"k", None, perform))
        await asyncio.sleep(0)
        memory.now_s += 100
        second = asyncio.create_task(memory._once(b"k", b"here", perform))
        await asyncio.sleep(0)
        with pytest.raises(KeyReused):  # while the first one is under way
            await memory._once(b"k", b"here", perform, 1)
        going.set()
        return [await first, await second]

    assert asyncio.run(run()) == [DONE, DONE]
    memory.now_s += 59
    assert memory.ask() is DONE
    with pytest.raises(KeyReused):
        memory.ask(body=1)
    assert memory.tries == 1


@pytest.mark.parametrize(
    "error",
    [BadRequest("no"), TopicNotFound("no"), KeeperNotFound("no"), NotWritten("no")],
)
def test_what_was_refused_is_tried_again(memory: Remembering, error: Exception) -> None:
    memory.fail(error)
    assert memory.ask(instance=b"here", body=1).body == b"1"


@pytest.mark.parametrize("error", [Unavailable("?"), OSError("?"), KeyError("?")])
def test_what_may_have_been_done_is_not_done_again(
    memory: Remembering, error: Exception
) -> None:
    memory.fail(error)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            memory.ask(instance=b"here")
    assert memory.tries == 0
    assert memory.ask(b"another").body == b"1"


def test_those_who_wait_for_a_first_request_get_its_end(memory: Remembering) -> None:
    async def run(error: BaseException | None) -> list[object]:
        async def perform() -> Reply:
            memory.tries += 1
            await asyncio.sleep(0.01)  # all of them have asked by then
            if error is not None:
                raise error
            return DONE

        asked = [memory._once(b"k", None, perform) for _ in range(5)]
        return [*await asyncio.gather(*asked, return_exceptions=True)]

    for error, kinds in (
        (TopicNotFound("no"), {TopicNotFound}),
        (Unavailable("?"), {Unavailable, OutcomeUnknown}),
        (None, {OutcomeUnknown}),
    ):
        assert {type(one) for one in asyncio.run(run(error))} == kinds
    assert memory.tries == 2


def test_one_who_goes_takes_nothing_from_the_others(memory: Remembering) -> None:
    async def run() -> Reply:
        async def perform() -> Reply:
            await asyncio.sleep(0.02)  # the others ask, and one goes
            return DONE

        first = asyncio.create_task(memory._once(b"k", None, perform))
        await asyncio.sleep(0)
        gone = asyncio.create_task(memory._once(b"k", None, perform))
        stays = asyncio.create_task(memory._once(b"k", None, perform))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert await first is DONE
        return await stays

    assert asyncio.run(run()) is DONE


def test_memory_is_bounded_and_says_what_it_forgot(
    memory: Remembering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "MOST", 10)
    for number in range(30):
        memory.ask(b"%d" % number)
    assert len(memory.repeats._remembered) <= 11
    assert memory.ask(b"29").body == b"30"
    with pytest.raises(OutcomeUnknown):  # perhaps it came, and was forgotten
        memory.ask(b"5", instance=b"here")
    assert memory.ask(b"new").body == b"31"  # no repeat: that one is new for sure
    memory.now_s += 61
    assert memory.ask(b"5", instance=b"here").body == b"32"
    assert len(memory.repeats._remembered) == 1


def test_what_is_over_leaves_nothing_behind(memory: Remembering) -> None:
    fails: list[Callable[[], object]] = [
        lambda: memory.ask(b"a"),
        lambda: memory.fail(Unavailable("?"), b"b"),
        lambda: memory.fail(BadRequest("no"), b"c"),
    ]
    for fail in fails:
        fail()
    assert memory.repeats._under_way == {}
    memory.now_s += 61
    memory.ask(b"d")
    assert len(memory.repeats._remembered) == 1
