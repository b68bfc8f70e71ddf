"""A publisher above its limit stores, and publishes one reference: order and memory."""

import tracemalloc
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.errors import (
    ParticipantFailed,
    TransactionConflict,
    TransactionRefused,
    Unavailable,
)
from coordinator.transaction import Status
from tests.support.doubles import failing, lost
from tests.support.fake_service import Call, FakeService
from tests.support.publishing import ROOM_BYTES, Setting, fail
from txaware.errors import BadRequest
from txaware.model.messages import Receipt
from txaware.publish import outbox as spill
from txaware.publish.outbox import TopicBuffer
from txaware.publish.publisher import OVERHEAD_BYTES


@pytest.fixture
def here() -> Iterator[Setting]:
    setting = Setting()
    yield setting
    assert not setting.embedded.snapshot().in_progress, "a transaction was left open"


def test_75_above_its_limit_it_stores_and_publishes_one_reference(
    here: Setting,
) -> None:
    publisher = here.publisher(buffer_limit_bytes=2 * ROOM_BYTES)
    with here.transaction():
        for number in range(5):
            publisher.publish(b"%010d" % number)
        assert here.writes() == ["store a", "store a"]
    assert here.writes() == ["store a", "store a", "store a", "publish a"]
    call: Call = here.service.calls[-1]
    assert call.messages == []
    assert [receipt.count for receipt in call.receipts or []] == [2, 2, 1]
    assert here.service.published("a") == [b"%010d" % n for n in range(5)]


def test_up_to_its_limit_it_stores_nothing(here: Setting) -> None:
    publisher = here.publisher(buffer_limit_bytes=2 * ROOM_BYTES)
    with here.transaction():
        publisher.publish_all([b"0123456789"] * 2)
    assert here.writes() == ["publish a"]


def test_a_message_above_the_buffer_is_held_alone(here: Setting) -> None:
    publisher = here.publisher(buffer_limit_bytes=ROOM_BYTES)
    with here.transaction():
        publisher.publish(b"x" * 500)
    with here.transaction():
        publisher.publish(b"first")
        publisher.publish(b"y" * 500)
    assert here.writes() == ["publish a", "store a", "store a", "publish a"]
    assert here.service.published("a") == [b"x" * 500, b"first", b"y" * 500]


def test_all_topics_together_stay_below_the_limit(here: Setting) -> None:
    with here.transaction() as tx:
        for number in range(6):
            for topic in ("a", "b", "c"):
                publisher = here.publisher(topic, buffer_limit_bytes=4 * ROOM_BYTES)
                publisher.publish(b"%010d" % number)
                here.measure(tx)
    for topic in ("a", "b", "c"):
        assert here.service.published(topic) == [b"%010d" % n for n in range(6)]
    assert here.held_bytes <= 4 * ROOM_BYTES


def test_a_publisher_with_a_small_limit_leaves_room_to_the_others(
    here: Setting,
) -> None:
    with here.transaction():
        here.publisher("a").publish_all([b"0123456789"] * 9)
        here.publisher("b", buffer_limit_bytes=ROOM_BYTES).publish(b"0123456789")
        here.publisher("a").publish(b"0123456789")
    assert here.writes() == ["publish a", "publish b"]


def test_a_topic_whose_first_message_was_not_taken_is_not_published_to(
    here: Setting,
) -> None:
    with here.transaction() as tx:
        here.publisher("a", buffer_limit_bytes=ROOM_BYTES).publish(b"0123456789")
        here.service.instead["store"] = failing(TransactionRefused("not now"))
        with pytest.raises(TransactionRefused):
            here.publisher("b", buffer_limit_bytes=ROOM_BYTES).publish(b"x")
    assert tx.status is Status.COMMITTED
    assert here.writes() == ["store a", "publish a"]


def test_all_stores_come_before_the_first_publish_at_the_commit(
    here: Setting,
) -> None:
    with here.transaction():
        for topic in ("a", "b"):
            publisher = here.publisher(topic, buffer_limit_bytes=2 * ROOM_BYTES)
            publisher.publish_all([b"0123456789"] * 3)
    kinds = [name.split()[0] for name in here.writes()]
    assert kinds == sorted(kinds, reverse=True)
    assert kinds.count("publish") == 2


def test_a_spilled_transaction_that_is_rolled_back_publishes_nothing(
    here: Setting,
) -> None:
    publisher = here.publisher(buffer_limit_bytes=ROOM_BYTES)
    publish = partial(publisher.publish_all, [b"0123456789"] * 3)
    tx = here.failed(ZeroDivisionError, publish, fail)
    assert here.writes() == ["store a", "store a"]
    assert tx.status is Status.ABORTED


def test_a_refused_commit_rolls_back_the_reference(here: Setting) -> None:
    here.coordinator.instead["commit"] = failing(TransactionConflict("other"))
    publisher = here.publisher(buffer_limit_bytes=ROOM_BYTES)
    publish = partial(publisher.publish_all, [b"0123456789"] * 3)
    here.failed(TransactionConflict, publish)
    assert here.writes()[-2:] == ["publish a", "rollback a"]
    assert here.service.published("a") == []


def test_a_refused_store_takes_no_message_and_loses_none(here: Setting) -> None:
    publisher = here.publisher(buffer_limit_bytes=ROOM_BYTES)
    with here.transaction() as tx:
        publisher.publish(b"first.....")
        here.service.instead["store"] = failing(TransactionRefused("not now"))
        with pytest.raises(TransactionRefused):
            publisher.publish(b"not taken.")
        here.service.instead.clear()
        publisher.publish(b"second....")
    assert tx.status is Status.COMMITTED
    assert here.service.published("a") == [b"first.....", b"second...."]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_lost_answer_to_a_store_only_leaves_the_way_back(
    here: Setting, goes_on: bool
) -> None:
    publisher = here.publisher(buffer_limit_bytes=ROOM_BYTES)
    here.service.instead["store"] = lost(Unavailable("no answer"))

    def body() -> None:
        publisher.publish(b"first.....")
        with pytest.raises(Unavailable):
            publisher.publish(b"second....")
        here.service.instead.clear()
        if goes_on:
            publisher.publish(b"third.....")

    tx = here.failed(ParticipantFailed, body)
    assert "was lost" in str(here.caught)
    assert "publish a" not in here.writes()
    assert tx.status is Status.INVALIDATED


def test_a_lost_answer_stays_lost_whatever_comes_after_it(here: Setting) -> None:
    publisher = here.publisher(buffer_limit_bytes=ROOM_BYTES)

    def body() -> None:
        publisher.publish(b"first.....")
        publisher.publish(b"second....")
        here.service.instead["store"] = lost(Unavailable("no answer"))
        with pytest.raises(Unavailable):
            publisher.publish(b"third.....")
        here.service.instead.clear()
        with pytest.raises(ParticipantFailed):
            publisher.publish(b"fourth....")
        here.publisher("b").publish(b"other topic")

    tx = here.failed(ParticipantFailed, body)
    assert tx.status is Status.INVALIDATED


@given(
    sizes=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 300)), max_size=60),
    limits=st.fixed_dictionaries({t: st.integers(1, 1500) for t in "abc"}),
)
def test_delivered_is_what_was_published_whatever_the_limits(
    sizes: list[tuple[str, int]], limits: dict[str, int]
) -> None:
    here = Setting()
    wanted: dict[str, list[bytes]] = {topic: [] for topic in "abc"}
    with here.transaction():
        for number, (topic, size) in enumerate(sizes):
            payload = b"%d:" % number + b"x" * size
            publisher = here.publisher(topic, buffer_limit_bytes=limits[topic])
            publisher.publish(payload)
            wanted[topic].append(payload)
    for topic, payloads in wanted.items():
        assert here.service.published(topic) == payloads
        writes = [c for c in here.service.calls if c.topic == topic]
        publishes = [c for c in writes if c.name == "publish"]
        assert len(publishes) == bool(payloads)
        for call in publishes:
            assert bool(call.messages) is not bool(call.receipts), "both, or neither"
        for call in writes:
            room = sum(len(message) + OVERHEAD_BYTES for message in call.messages)
            assert room <= limits[topic] or len(call.messages) == 1


@pytest.mark.parametrize("size", [0, pytest.param(100, marks=pytest.mark.long)])
def test_a_million_messages_in_one_transaction_take_bounded_memory(
    here: Setting, size: int
) -> None:
    here.service = FakeService("a", keeps=False)
    publisher = here.publisher(buffer_limit_bytes=1 << 20)
    tracemalloc.start()
    try:
        with here.transaction(timeout_s=900):
            publisher.publish_all(bytes(size) for _ in range(1_000_000))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20
    assert here.writes().count("publish a") == 1


def test_what_is_stored_at_once_is_of_about_that_many_bytes() -> None:
    buffer = TopicBuffer()
    for number in range(10):
        buffer.add(b"%d" % number * 100, 100)
    assert len(buffer.first(350)) == 3
    assert len(buffer.first(1)) == 1
    assert buffer.first(5000) == buffer.messages
    kept = buffer.messages[3:]
    buffer.drop(3)
    assert (buffer.messages, buffer.size_bytes) == (kept, 700)


def test_much_is_stored_in_pieces_and_comes_once_in_order(
    here: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "STORE_BYTES", 2 * ROOM_BYTES)
    publisher = here.publisher(buffer_limit_bytes=5 * ROOM_BYTES)
    sent = [b"%010d" % number for number in range(8)]
    with here.transaction():
        publisher.publish_all(sent)
    stores = [call for call in here.service.calls if call.name == "store"]
    assert all(len(call.messages) <= 2 for call in stores)
    assert here.service.published("a") == sent
    receipts = here.service.calls[-1].receipts or []
    assert len({receipt.attempt for receipt in receipts}) == len(stores)


def test_a_piece_that_is_refused_leaves_only_what_was_not_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spill, "STORE_BYTES", 200)
    stored: list[bytes] = []
    no: list[Exception] = []

    def store(topic: str, messages: list[bytes], **options: object) -> Receipt:
        if len(stored) == 2 and not no:
            no.append(BadRequest("no"))
            raise no[0]
        stored.extend(messages)
        return Receipt(5, topic, b"", len(messages))

    service: Any = SimpleNamespace(store=store)
    tx: Any = SimpleNamespace(transaction_id=5)
    outbox = spill.TopicOutbox(service, "a", tx)
    sent = [b"%d" % number for number in range(5)]
    for message in sent:
        outbox.buffer.add(message, 100)
    with pytest.raises(BadRequest):
        outbox.store()
    assert outbox.buffer.size_bytes == 300
    outbox.store()
    assert stored == sent
