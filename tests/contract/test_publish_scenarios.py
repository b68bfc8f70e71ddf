"""Scenarios 72 to 77 through `connect`: what readers see of what is published."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import txaware
from coordinator.context import TransactionContext
from coordinator.errors import ParticipantFailed, TransactionConflict, Unavailable
from coordinator.transaction import Status
from tests.support.doubles import Recorder, Watched, failing, lost
from tests.support.publishing import ROOM_BYTES
from txaware.errors import TopicNotFound
from txaware.model.messages import Outgoing
from txaware.publish import AsyncPublisher, DirectPublisher, Publisher


class Setting:
    """A store with topics a, b and c, whose coordinator and service can be tricked."""

    def __init__(self, url: str) -> None:
        self.messaging = txaware.connect(url)
        self.watched = Watched(self.messaging.coordinator)
        self.coordinator: Any = self.watched
        self.service: Any = Tricked(self.messaging)
        for topic in "abc":
            self.messaging.create_topic(topic)

    def transaction(self, *participants: Any) -> TransactionContext:
        return TransactionContext(self.coordinator, *participants)

    def publisher(self, topic: str, *, buffer_limit_bytes: int = 1 << 20) -> Publisher:
        return Publisher(
            self.service,
            self.coordinator,
            topic,
            buffer_limit_bytes=buffer_limit_bytes,
            message_limit_bytes=1 << 20,
            shares_journal=True,
        )

    def seen(self, topic: str) -> list[bytes]:
        """What a transaction that begins now reads."""
        snapshot = self.messaging.coordinator.snapshot()
        page = self.messaging.poll(topic, transaction=snapshot, limit=10_000)
        assert page.blocked_by is None
        return [message.payload for message in page]

    def rows(self, topic: str) -> list[bytes]:
        """What anybody reads who does not care for transactions."""
        page = self.messaging.poll(topic, limit=10_000)
        return [message.payload for message in page]


class Tricked:
    """A service whose calls can be replaced, as those of `Watched` can."""

    carrier = None  # a commit would not call what is replaced

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls: list[str] = []
        self.instead: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def call(topic: str, *args: Any, **options: Any) -> Any:
            self.calls.append(f"{name} {topic}")
            replaced = self.instead.get(name, lambda write: write())
            return replaced(lambda: method(topic, *args, **options))

        return call


@pytest.fixture(params=["memory", "leveldb"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
    memory = request.param == "memory"
    setting = Setting("memory:" if memory else f"leveldb:{tmp_path / 'data'}")
    with setting.messaging:
        yield setting
        assert not setting.messaging.coordinator.snapshot().in_progress


def publish_all(here: Setting, *topics: str) -> None:
    for topic in topics:
        here.publisher(topic).publish(topic.encode())


def test_72_messages_are_seen_after_the_commit_and_not_before(here: Setting) -> None:
    table = Recorder("table", log=here.service.calls)
    with here.transaction(table):
        here.publisher("a").publish_all([b"a0", b"a1", b"a2"])
        here.publisher("b").publish_all([b"b0", b"b1"])
        assert here.rows("a") == here.rows("b") == []
    assert here.seen("a") == [b"a0", b"a1", b"a2"]
    assert here.seen("b") == [b"b0", b"b1"]
    writes = [call for call in here.service.calls if call.split()[0] != "topic"]
    assert writes[2:] == [
        "commit_tx table",
        "publish a",
        "publish b",
        "post_tx_commit table",
    ]


def test_73_an_exception_in_the_body_leaves_no_row(here: Setting) -> None:
    def body() -> None:
        publish_all(here, "a")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), here.transaction():
        body()
    assert "publish a" not in here.service.calls
    assert here.rows("a") == []


@pytest.mark.parametrize("why", ["commit refused", "later participant"])
def test_74_what_was_published_is_rolled_back_in_each_topic(
    here: Setting, why: str
) -> None:
    position = Recorder("position", flushes_last=True)
    error: type[Exception] = TransactionConflict
    if why == "commit refused":
        here.watched.instead["commit"] = failing(TransactionConflict("other"))
    else:
        position = Recorder("position", flushes_last=True, commit_tx=False)
        error = ParticipantFailed
    tx = here.transaction()
    with pytest.raises(error), tx:
        publish_then_join(here, tx, position)
    assert tx.status is Status.ABORTED
    assert here.service.calls[-2:] == ["rollback a", "rollback b"]
    assert here.rows("a") == [b"a"]
    assert here.seen("a") == here.seen("b") == []


def publish_then_join(here: Setting, tx: Any, participant: Recorder) -> None:
    publish_all(here, "a", "b")
    tx.join(participant)


def test_75_what_was_stored_is_delivered_in_order(here: Setting) -> None:
    publisher = here.publisher("a", buffer_limit_bytes=3 * ROOM_BYTES)
    wanted = [b"%010d" % number for number in range(100)]
    with here.transaction():
        publisher.publish_all(wanted)
        assert here.rows("a") == []
    assert here.seen("a") == wanted
    assert here.service.calls.count("publish a") == 1
    assert here.service.calls.count("store a") == 34


def test_76_a_lost_answer_is_skipped_and_blocks_nobody(here: Setting) -> None:
    here.service.instead["publish"] = lost(Unavailable("cut"))
    tx = here.transaction()
    with pytest.raises(Unavailable), tx:
        publish_all(here, "a")
    here.service.instead.clear()
    assert tx.status is Status.INVALIDATED
    with here.transaction():
        here.publisher("a").publish(b"later")
    assert here.rows("a") == [b"a", b"later"]
    assert here.seen("a") == [b"later"]


def test_76_a_lost_answer_to_a_store_leaves_nothing_to_see(here: Setting) -> None:
    publisher = here.publisher("a", buffer_limit_bytes=1)
    here.service.instead["store"] = lost(Unavailable("cut"))
    with pytest.raises(Unavailable), here.transaction():
        publisher.publish_all([b"1", b"2"])
    assert here.rows("a") == here.seen("a") == []


def test_77_a_direct_message_stays_whatever_becomes_of_the_transaction(
    here: Setting,
) -> None:
    direct = DirectPublisher(here.service, "a", message_limit_bytes=100)
    with here.transaction() as tx:
        direct.publish(b"stays")
        tx.abort()
    assert here.seen("a") == [b"stays"]


@pytest.mark.parametrize("spills", [True, False])
def test_a_checkpoint_between_messages_changes_nothing(
    here: Setting, spills: bool
) -> None:
    publisher = here.publisher("a", buffer_limit_bytes=1 if spills else 1000)
    with here.transaction() as tx:
        publisher.publish(b"1")
        tx.checkpoint()
        publisher.publish_all([b"2", b"3"])
        tx.checkpoint()
        here.publisher("b").publish(b"joined late")
    assert here.seen("a") == [b"1", b"2", b"3"]
    assert here.seen("b") == [b"joined late"]


def test_a_topic_deleted_before_the_commit_refuses_it(here: Setting) -> None:
    tx = here.transaction()
    with pytest.raises(TopicNotFound), tx:
        delete_before_commit(here)
    assert tx.status is Status.ABORTED
    assert here.seen("a") == []


def delete_before_commit(here: Setting) -> None:
    publish_all(here, "a", "b")
    here.messaging.delete_topic("b")


@pytest.mark.parametrize("spills", [True, False])
def test_a_topic_made_anew_before_the_commit_gets_all_or_nothing(
    here: Setting, spills: bool
) -> None:
    publisher = here.publisher("a", buffer_limit_bytes=1 if spills else 1000)

    def body() -> None:
        publisher.publish_all([b"1", b"2", b"3"])
        here.messaging.delete_topic("a")
        here.messaging.create_topic("a")

    if spills:
        with pytest.raises(txaware.TransactionRefused), here.transaction():
            body()
        assert here.seen("a") == here.rows("a") == []
    else:
        with here.transaction():
            body()
        assert here.seen("a") == [b"1", b"2", b"3"]


def test_messages_that_expire_may_be_stored(here: Setting) -> None:
    publisher = here.publisher("a", buffer_limit_bytes=1)
    with here.transaction():
        publisher.publish(Outgoing(b"lasting", expire_after_s=1000))
        publisher.publish(Outgoing(b"gone at once", expire_after_s=1e-9))
        publisher.publish(b"plain")
    assert here.seen("a") == [b"lasting", b"plain"]


def test_the_asynchronous_publisher_publishes_here_too(here: Setting) -> None:
    with AsyncPublisher(here.service, "a", message_limit_bytes=100) as publisher:
        for number in range(500):
            publisher.publish(b"%d" % number)
    assert here.seen("a") == [b"%d" % number for number in range(500)]


Steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 200), st.sampled_from("pppc")),
    max_size=25,
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(transactions=st.lists(st.tuples(Steps, st.integers(1, 900), st.booleans())))
def test_all_of_a_committed_transaction_is_seen_in_order_and_of_others_nothing(
    here: Setting, transactions: list[tuple[list[tuple[str, int, str]], int, bool]]
) -> None:
    wanted = {topic: here.seen(topic) for topic in "abc"}
    for number, (steps, limit, commits) in enumerate(transactions):
        with here.transaction() as tx:
            for place, (topic, size, kind) in enumerate(steps):
                payload = b"%d %d " % (number, place) + b"x" * size
                here.publisher(topic, buffer_limit_bytes=limit).publish(payload)
                if commits:
                    wanted[topic].append(payload)
                if kind == "c":
                    tx.checkpoint()
            if not commits:
                tx.abort()
    assert {topic: here.seen(topic) for topic in "abc"} == wanted
