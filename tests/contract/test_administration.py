"""Looking inside without consuming, counters, and an orderly end."""

import random
import threading
from typing import Any

import pytest

from tests.support.concurrency import until
from tests.support.messagings import Site, commit, payloads, publish, table_of
from txaware.errors import TransactionRefused, Unavailable
from txaware.messaging import Messaging
from txaware.model.messages import Message, MessageId


def test_peek_shows_every_row_and_what_became_of_it(messaging: Messaging) -> None:
    done, undone, invalid, running = (
        messaging.coordinator.start_short() for _ in range(4)
    )
    messaging.publish("t", [b"plain"])
    publish(messaging, b"done", transaction=done)
    response = publish(messaging, b"undone", transaction=undone)
    publish(messaging, b"invalid", transaction=invalid)
    messaging.store("t", [b"stored"], transaction=running)
    messaging.publish("t", [], transaction=running)
    commit(messaging, done)
    messaging.rollback("t", response)
    messaging.coordinator.abort(undone)
    messaging.coordinator.invalidate(invalid)
    rows = messaging.peek("t")
    assert [(row.payload, row.state) for row in rows] == [
        (b"plain", "plain"),
        (b"done", "committed"),
        (b"undone", "rolled back"),
        (b"invalid", "invalid"),
        (None, "in progress"),
    ]
    assert rows[2].pointer == undone.transaction_id
    assert [row.size_bytes for row in messaging.peek("t", limit=2)] == [5, 4]
    assert messaging.peek("t", start=rows[3].id)[0] == rows[3]
    assert messaging.position("g", "t") is None


def test_sizes_of_topics_say_which_is_the_largest(messaging: Messaging) -> None:
    """A store on disk tells of what it has put into files, which it does by itself."""
    messaging.create_topic("audit:other")
    messaging.create_topic("small")
    messaging.create_topic("parts", partitions=2)
    messaging.create_topic("gone")
    messaging.delete_topic("gone")
    tx = messaging.coordinator.start_short()
    for _ in range(10):  # so much that no store keeps all of it back
        large = [random.randbytes(64 << 10) for _ in range(10)]
        messaging.store("t", large, transaction=tx)
        messaging.publish("parts.1", large)
    assert until(lambda: messaging.topic_sizes()["parts"] > 1 << 20)
    assert until(lambda: messaging.topic_sizes()["t"] > 1 << 20)
    sizes = messaging.topic_sizes()
    assert sizes.keys() == {"t", "small", "parts"}
    assert sizes["small"] < 100
    assert messaging.topic_sizes("audit").keys() == {"other"}


def test_inspect_counts_a_topic(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    oldest = site.clock()
    messaging.publish("t", [b"abc"])
    running, undone = (messaging.coordinator.start_short() for _ in range(2))
    messaging.store("t", [b"de", b"f"], transaction=running)
    messaging.publish("t", [], transaction=running)
    messaging.rollback("t", publish(messaging, b"ghi", transaction=undone))
    site.clock.advance_s(3)
    messaging.publish("t", [b"j"])
    report = messaging.inspect("t")
    assert (report.messages, report.references, report.stored) == (3, 1, 2)
    assert (report.bytes, report.rolled_back) == (10, 1)
    assert report.in_progress == [running.transaction_id]
    assert report.blocked_by is not None
    assert report.blocked_by.pointer == running.transaction_id
    assert report.newest_ms == site.clock()
    assert report.oldest_ms == oldest
    assert report.bounds == messaging.bounds("t")


@pytest.mark.in_process
def test_a_check_beside_everybody_finds_what_is_wrong(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"m"])
    publish(messaging, b"open", transaction=messaging.coordinator.start_short())
    told: list[object] = []
    report = messaging.check(lambda *progress: told.append(progress))
    assert report.is_clean, report.problems
    # HBase is read beside its owner: what waits for its commit is not there yet.
    assert report.counts["messages"] == (1 if site.kind == "hbase" else 2)
    assert told
    table: Any = table_of(messaging)
    table.submit([(b"?odd", b"value")])()
    assert "no table has such keys" in str(messaging.check().problems[0])


def test_inspect_of_an_empty_topic(messaging: Messaging) -> None:
    report = messaging.inspect("t")
    assert (report.messages, report.bytes, report.oldest_ms) == (0, 0, None)
    assert report.blocked_by is None


def test_metrics_count_what_went_in_and_out(messaging: Messaging) -> None:
    messaging.publish("t", [b"ab", b"c"])
    messaging.poll("t")
    assert messaging.wait("t", start=None, timeout_s=0)
    tx = messaging.coordinator.start_short()
    messaging.rollback("t", publish(messaging, b"d", transaction=tx))
    messaging.store("t", [b"e"], transaction=tx)
    counts = messaging.metrics().topics["t"]
    assert (counts.messages_in, counts.bytes_in) == (3, 4)
    assert (counts.messages_out, counts.bytes_out) == (2, 3)  # waiting delivers nothing
    assert (counts.messages_stored, counts.rollbacks) == (1, 1)
    assert counts.publish.count == 2
    assert counts.poll.mean_s > 0
    assert messaging.metrics().open_transactions == 1


def test_metrics_tell_how_far_groups_are_behind(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.create_topic("other")
    for number in range(3):
        messaging.publish("t", [b"%d" % number])
        site.clock.advance_s(1)
    with messaging.transaction():
        messaging.consumer("t", group="g").poll(limit=1)
    (lag,) = messaging.metrics().groups
    assert (lag.group, lag.topic, lag.lag_ms, lag.rows) == ("g", "t", 2000, 2)
    assert messaging.lag_ms("g", "t") == 2000
    assert messaging.lag_ms("nobody", "t") == 2000
    assert messaging.lag_ms("nobody", "other") == 0
    with messaging.transaction():  # before the first message there ever was
        reset = messaging.consumer("t", group="g")
        reset.seek(MessageId(bytes(20)), inclusive=False)
    assert messaging.lag_ms("g", "t") == 2000
    assert messaging.metrics().groups[0].lag_ms == 2000
    messaging.delete_topic("t")
    assert messaging.metrics().groups == []


def test_namespaces_are_those_with_a_topic(messaging: Messaging) -> None:
    messaging.create_topic("b:one")
    messaging.create_topic("a:two")
    messaging.create_topic("c:gone")
    messaging.delete_topic("c:gone")
    assert messaging.namespaces() == ["a", "b", "default"]


@pytest.mark.parametrize("kind", ["async_publisher", "at_most_once_publisher"])
def test_a_close_publishes_what_still_waits(lasting: Site, kind: str) -> None:
    messaging = lasting.messaging
    messaging.create_topic("t")
    publisher = getattr(messaging, kind)("t", linger_ms=60_000)
    publisher.publish(b"waits")
    messaging = lasting.open()
    assert payloads(messaging.poll("t")) == [b"waits"]


def test_a_close_ends_subscribers(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"m"])
    handled: list[bytes] = []

    def handle(message: Message) -> None:
        handled.append(message.payload)

    subscriber = messaging.subscribe("t", handle, group="g")
    thread = threading.Thread(target=subscriber.run)
    thread.start()
    while not handled:
        threading.Event().wait(0.001)
    messaging.close()
    thread.join(10)
    assert not thread.is_alive()
    assert handled == [b"m"]


def test_what_comes_after_a_close_is_refused(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.close()
    with pytest.raises(Unavailable, match="closed"):
        messaging.publish("t", [b"late"])
    with pytest.raises(Unavailable, match="closed"):
        messaging.poll("t")
    with pytest.raises(Unavailable, match="closed"):
        messaging.create_topic("u")


@pytest.mark.in_process
def test_a_reference_whose_answer_was_lost_is_not_followed_by_an_empty_one(
    messaging: Messaging,
) -> None:
    tx = messaging.coordinator.start_short()
    messaging.store("t", [b"a"], transaction=tx)
    service: Any = messaging._service
    writer = service.place("t").writer
    publish_rows = writer.publish

    def lose(*args: Any, **options: Any) -> None:
        publish_rows(*args, **options)
        raise Unavailable("the answer is lost")

    writer.publish = lose
    with pytest.raises(Unavailable):
        messaging.publish("t", [], transaction=tx)
    writer.publish = publish_rows
    with pytest.raises(TransactionRefused, match="answer was lost"):
        messaging.publish("t", [], transaction=tx)


@pytest.mark.in_process
def test_a_store_whose_answer_was_lost_is_counted_before_it_is_named(
    messaging: Messaging,
) -> None:
    tx = messaging.coordinator.start_short()
    service: Any = messaging._service
    writer = service.place("t").writer
    store_rows = writer.store

    def lose(*args: Any, **options: Any) -> None:
        wait = store_rows(*args, **options)
        if wait is not None:
            wait()
        raise Unavailable("the answer is lost")

    writer.store = lose
    with pytest.raises(Unavailable):
        messaging.store("t", [b"a"], transaction=tx, attempt=b"1")
    writer.store = store_rows
    receipt = messaging.store("t", [b"a"], transaction=tx, attempt=b"1")
    with pytest.raises(TransactionRefused, match="name 1 rows in t, and 2 are stored"):
        messaging.publish("t", [], transaction=tx, receipts=[receipt])
    again = messaging.store("t", [b"a"], transaction=tx, attempt=b"2")
    messaging.publish("t", [], transaction=tx, receipts=[again])
    commit(messaging, tx)
    assert payloads(messaging.poll("t", isolation="committed")) == [b"a"]


def test_a_position_has_twenty_bytes(messaging: Messaging) -> None:
    tx = messaging.coordinator.start_short()
    with pytest.raises(ValueError, match="a position is a MessageId"):
        messaging.save_position("g", "t", MessageId(b"x"), transaction=tx)
