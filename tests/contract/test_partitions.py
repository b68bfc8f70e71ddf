"""Topics of several partitions: an order in each, one commit over all."""

import threading
import zlib
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.messagings import Site, payloads
from txaware.errors import (
    BadRequest,
    PartitionNeeded,
    TopicExists,
    TopicNotFound,
    TransactionConflict,
)
from txaware.messaging import Messaging
from txaware.model.messages import Message, MessageId, Outgoing


@pytest.fixture
def parts(site: Site) -> Messaging:
    """Every implementation in turn, with a topic of three partitions."""
    site.messaging.create_topic("orders", partitions=3)
    return site.messaging


def keyed(number: int, key: str) -> Outgoing:
    return Outgoing(b"%d" % number, key.encode())


KEYS = [f"key-{number}" for number in range(20)]
SENT = [keyed(number, KEYS[number % 20]) for number in range(60)]


def place_of(message: Outgoing, partitions: int = 3) -> int:
    return zlib.crc32(message.key or b"") % partitions


def wanted(messages: list[Outgoing], partitions: int = 3) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    for message in messages:
        found[place_of(message, partitions)].append(message.payload)
    return found


def by_partition(
    messaging: Messaging, partitions: int = 3, **options: Any
) -> dict[int, list[bytes]]:
    """What is in each partition, polled by its name."""
    found = {}
    for number in range(partitions):
        page = messaging.poll(f"orders.{number}", limit=1000, **options)
        assert {one.partition for one in page} <= {number}
        found[number] = payloads(page)
    return found


def whole(messaging: Messaging, limit: int = 7, **options: Any) -> list[Message]:
    """All messages of the topic, page by page."""
    found: list[Message] = []
    start: Any = None
    while page := messaging.poll("orders", start=start, limit=limit, **options):
        found += page
        start = page.next
        options["inclusive"] = False
        assert len(page) <= limit
    return found


def split(messages: list[Message], partitions: int = 3) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    for message in messages:
        found[message.partition].append(message.payload)
    return found


def test_a_topic_says_how_many_partitions_it_has(parts: Messaging) -> None:
    assert parts.partitions("orders") == 3
    assert parts.topic("orders").properties["partitions"] == "3"
    assert parts.topic("orders").partitions == 3


def test_a_topic_has_one_partition_and_does_not_say_so(parts: Messaging) -> None:
    for options in ({}, {"partitions": 1}, {"properties": {"partitions": "1"}}):
        parts.create_topic("t", **options)
        assert parts.partitions("t") == 1
        assert "partitions" not in parts.topic("t").properties
        parts.delete_topic("t")


def test_a_key_stays_in_one_partition_and_in_order(parts: Messaging) -> None:
    for begin in range(0, 60, 10):
        parts.publish("orders", [*SENT[begin : begin + 10]])
    assert by_partition(parts) == wanted(SENT)
    assert split(whole(parts)) == wanted(SENT)


def test_what_has_no_key_goes_round_by_request(parts: Messaging) -> None:
    for number in range(30):
        parts.publish("orders", [b"%d" % number, b"and"])
    found = by_partition(parts)
    assert all(page[1::2] == [b"and"] * (len(page) // 2) for page in found.values())
    assert min(map(len, found.values())) > 0


def test_a_named_partition_takes_any_key(parts: Messaging) -> None:
    parts.publish("orders.1", [*SENT])
    assert by_partition(parts)[1] == [one.payload for one in SENT]


def test_a_message_says_its_partition_key_and_headers(parts: Messaging) -> None:
    sent = Outgoing(b"a", b"ann", {"h": b"x"})
    parts.publish("orders", [sent])
    [named] = parts.poll(f"orders.{place_of(sent)}")
    [found] = parts.poll("orders")
    assert named == found
    assert (found.partition, found.key, found.headers) == (
        place_of(sent),
        b"ann",
        {"h": b"x"},
    )


def test_a_topic_of_one_partition_can_be_named_by_it(parts: Messaging) -> None:
    parts.create_topic("t")
    parts.publish("t.0", [b"a"])
    parts.publish("t", [b"b"])
    assert payloads(parts.poll("t")) == payloads(parts.poll("t.0")) == [b"a", b"b"]
    assert [one.partition for one in parts.poll("t")] == [0, 0]


def test_a_transaction_over_partitions_commits_as_one(parts: Messaging) -> None:
    with parts.transaction():
        publisher = parts.publisher("orders")
        for message in SENT:
            publisher.publish(message)
        assert by_partition(parts, isolation="committed") == wanted([])
    assert by_partition(parts, isolation="committed") == wanted(SENT)
    assert split(whole(parts, isolation="committed")) == wanted(SENT)


def rolled_back(messaging: Messaging, limit_bytes: int) -> None:
    """Publishes all before the commit, and fails."""
    publisher = messaging.publisher("orders", buffer_limit_bytes=limit_bytes)
    with suppress(ZeroDivisionError), messaging.transaction():
        for message in SENT:
            publisher.publish(message)
        publisher.flush()
        raise ZeroDivisionError


def test_a_transaction_that_fails_leaves_nothing_in_any(parts: Messaging) -> None:
    rolled_back(parts, 8 << 20)
    assert by_partition(parts, isolation="committed") == wanted([])
    parts.publish("orders", [*SENT])
    assert by_partition(parts, isolation="committed") == wanted(SENT)


def test_what_is_stored_ahead_comes_in_each_partition(parts: Messaging) -> None:
    publisher = parts.publisher("orders", buffer_limit_bytes=100)
    with parts.transaction():
        for message in SENT:
            publisher.publish(message)
    assert by_partition(parts, isolation="committed") == wanted(SENT)
    assert split(whole(parts, limit=4, isolation="committed")) == wanted(SENT)


def test_what_is_stored_ahead_and_rolled_back_is_gone(parts: Messaging) -> None:
    rolled_back(parts, 100)
    assert by_partition(parts, isolation="committed") == wanted([])


def test_receipts_of_a_whole_topic_are_published(parts: Messaging) -> None:
    with parts.transaction() as tx:
        receipts = [
            parts.store("orders", [*SENT[:30]], transaction=tx.transaction),
            parts.store("orders.1", [b"own"], transaction=tx.transaction, attempt=b"x"),
        ]
        assert [one.count for one in receipts] == [30, 1]
        parts.publish("orders", [], transaction=tx.transaction, receipts=receipts)
    found = by_partition(parts, isolation="committed")
    expected = wanted(SENT[:30])
    expected[1].append(b"own")
    assert {n: sorted(each) for n, each in found.items()} == {
        n: sorted(each) for n, each in expected.items()
    }


def test_a_transaction_reads_its_own_and_what_others_have_committed(
    parts: Messaging,
) -> None:
    parts.publish("orders", [*SENT[:30]])
    with parts.transaction() as tx:
        parts.publish("orders", [*SENT[30:]], transaction=tx.transaction)
        assert split(whole(parts, transaction=tx.transaction)) == wanted(SENT)


def test_an_open_transaction_holds_up_its_partitions_alone(parts: Messaging) -> None:
    first = next(one for one in SENT if place_of(one) == 0)
    with parts.transaction() as tx:
        parts.publish("orders", [first], transaction=tx.transaction)
        others = [one for one in SENT if place_of(one) != 0]
        parts.publish("orders", [*others])
        page = parts.poll("orders", limit=1000, isolation="committed")
        assert split([*page]) == wanted(others)
        assert page.blocked_by is not None
        assert page.blocked_by.pointer == tx.transaction.transaction_id


def test_who_polls_decides_what_is_seen_of_all_partitions(parts: Messaging) -> None:
    """A snapshot sees nothing later, and a look at the uncommitted sees all."""
    parts.publish("orders", [*SENT[:20]])
    early = parts.coordinator.start_short()
    with parts.transaction() as between:
        parts.publish("orders", [*SENT[20:30]], transaction=between.transaction)
    with parts.transaction() as tx:
        parts.publish("orders", [*SENT[30:]], transaction=tx.transaction)
        assert split(whole(parts, transaction=early)) == wanted(SENT[:20])
        assert split(whole(parts, isolation="uncommitted")) == wanted(SENT)
    parts.coordinator.abort(early)


def test_a_poll_goes_on_in_each_partition(parts: Messaging) -> None:
    parts.publish("orders", [*SENT[:30]])
    page = parts.poll("orders", limit=1000)
    assert sorted(page.next) == [0, 1, 2]
    parts.publish("orders", [*SENT[30:]])
    more = parts.poll("orders", start=page.next, inclusive=False, limit=1000)
    assert split([*page, *more]) == wanted(SENT)
    as_text = {str(number): str(place) for number, place in page.next.items()}
    again = parts.poll("orders", start=as_text, inclusive=False, limit=1000)  # type: ignore[arg-type]
    assert again == more
    assert parts.poll("orders", start=more.next, inclusive=False) == []


def test_a_poll_starts_at_a_time_in_each_partition(parts: Messaging) -> None:
    parts.publish("orders", [*SENT])
    [last] = parts.poll("orders.0", limit=1000)[-1:]
    later = last.id.publish_time_ms + 1
    assert parts.poll("orders", start=later) == []
    assert len(parts.poll("orders", start=0, limit=1000)) == 60


def test_no_partition_starves(parts: Messaging) -> None:
    parts.publish("orders.0", [b"0"] * 500)
    parts.publish("orders.2", [b"2"])
    first = parts.poll("orders", limit=10)
    second = parts.poll("orders", start=first.next, inclusive=False, limit=10)
    assert 2 in {one.partition for one in [*first, *second]}


def test_a_poll_of_a_topic_waits_for_any_partition(parts: Messaging) -> None:
    assert parts.poll("orders", wait_s=0.01) == []
    assert not parts.wait("orders", timeout_s=0.01)
    parts.publish("orders.2", [b"a"])
    assert parts.wait("orders", timeout_s=10)
    assert payloads(parts.poll("orders", wait_s=10)) == [b"a"]


def test_partitions_are_added_and_never_taken_away(parts: Messaging) -> None:
    parts.publish("orders", [*SENT])
    before = by_partition(parts)
    parts.update_topic("orders", partitions=5)
    assert parts.partitions("orders") == 5
    assert by_partition(parts, 5) == {**before, 3: [], 4: []}
    parts.publish("orders", [*SENT])
    assert by_partition(parts, 5)[4] == wanted(SENT, 5)[4] != []
    parts.update_topic("orders", ttl_s=500)
    assert parts.partitions("orders") == 5
    for fewer in (4, 1, 3):
        with pytest.raises(BadRequest, match="has 5 partitions, which are only added"):
            parts.update_topic("orders", partitions=fewer)
    with pytest.raises(BadRequest):
        parts.update_topic("orders", properties={"partitions": None})
    assert parts.partitions("orders") == 5


def test_a_topic_of_one_partition_gets_more(parts: Messaging) -> None:
    parts.create_topic("t")
    parts.publish("t", [b"a"])
    page = parts.poll("t")
    parts.update_topic("t", partitions=2)
    assert [(one.payload, one.partition) for one in parts.poll("t")] == [(b"a", 0)]
    parts.publish("t.1", [b"b"])
    more = parts.poll("t", start={0: page.next}, inclusive=False)
    assert [(one.payload, one.partition) for one in more] == [(b"b", 1)]


def test_a_topic_made_anew_never_shows_what_was_there(site: Site) -> None:
    messaging = site.messaging
    for partitions in (12, 3, None, 12):
        messaging.create_topic("orders", partitions=partitions)
        count = partitions or 1
        assert whole(messaging) == []
        assert messaging.partitions("orders") == count
        messaging.publish("orders", [*SENT])
        assert len(whole(messaging)) == 60
        with pytest.raises(TopicNotFound):
            messaging.poll(f"orders.{count}")
        messaging.clean_up()
        assert len(whole(messaging)) == 60
        messaging.delete_topic("orders")
        with pytest.raises(TopicNotFound):
            messaging.poll("orders.0")
        messaging.clean_up()
        assert messaging.check().problems == ()


@pytest.mark.parametrize("fewer", [1, 2])
@pytest.mark.parametrize("group", [None, "g"])
def test_a_consumer_goes_on_in_a_topic_made_anew_with_fewer_partitions(
    parts: Messaging, fewer: int, group: str | None
) -> None:
    keyed = [Outgoing(b"old", key=b"%d" % number) for number in range(9)]
    parts.publish("orders", keyed)
    consumer = parts.consumer("orders", group=group)
    assert len(consumer.poll()) == 9
    parts.delete_topic("orders")
    parts.create_topic("orders", partitions=fewer)
    assert consumer.poll() == []
    assert not consumer.wait(0)
    new = [b"new%d" % number for number in range(6)]
    parts.publish("orders", [Outgoing(one, key=one) for one in new])
    assert consumer.wait(0)
    assert sorted(one.payload for one in consumer.poll()) == new
    assert consumer.poll() == []


def test_a_place_that_a_program_names_in_no_partition_is_refused(
    parts: Messaging,
) -> None:
    consumer = parts.consumer("orders", start={7: MessageId.of(1)})
    with pytest.raises(TopicNotFound, match="partition 7 does not exist"):
        consumer.poll()


def test_a_partition_that_is_not_there_says_how_many_there_are(
    parts: Messaging,
) -> None:
    parts.create_topic("t")
    sentence = (
        "orders.3 does not exist: topic orders has 3 partitions, orders.0 to orders.2"
    )
    calls: list[Any] = [
        lambda: parts.poll("orders.3"),
        lambda: parts.publish("orders.3", [b"a"]),
        lambda: parts.topic("orders.3"),
        lambda: parts.position("g", "orders.3"),
        lambda: parts.bounds("orders.3"),
    ]
    for call in calls:
        with pytest.raises(TopicNotFound, match=sentence):
            call()
    with pytest.raises(TopicNotFound, match=r"topic t has 1 partition, t\.0"):
        parts.poll("t.1")
    with pytest.raises(TopicNotFound, match=r"topic absent does not exist"):
        parts.poll("absent.1")


def test_what_is_for_one_partition_asks_for_its_name(parts: Messaging) -> None:
    calls: list[Any] = [
        lambda: parts.bounds("orders"),
        lambda: parts.position("g", "orders"),
        lambda: parts.inspect("orders"),
    ]
    for call in calls:
        with pytest.raises(BadRequest, match=r"3 partitions; name one of them, as ord"):
            call()


@pytest.mark.parametrize("partitions", [0, -1, 65_536, "x", 2.5, True, "0"])
def test_a_wrong_number_of_partitions_is_refused(
    parts: Messaging, partitions: Any
) -> None:
    for call in (parts.create_topic, parts.update_topic):
        with pytest.raises(BadRequest, match="partitions"):
            call("orders", partitions=partitions)
    assert parts.partitions("orders") == 3


def test_no_topic_has_the_name_of_a_partition(parts: Messaging) -> None:
    with pytest.raises(BadRequest):
        parts.create_topic("orders.3")
    with pytest.raises(BadRequest):
        parts.delete_topic("orders.1")
    with pytest.raises(BadRequest):
        parts.update_topic("orders.1", ttl_s=5)


def test_a_topic_that_exists_has_to_have_as_many_partitions(parts: Messaging) -> None:
    assert parts.create_topic("orders", exist_ok=True).partitions == 3
    assert parts.create_topic("orders", partitions=3, exist_ok=True).partitions == 3
    for other in (1, 4):
        with pytest.raises(TopicExists, match=f"partitions is '3', not '{other}'"):
            parts.create_topic("orders", partitions=other, exist_ok=True)


def test_a_consumer_of_a_partition_has_its_position(parts: Messaging) -> None:
    parts.publish("orders", [*SENT])
    consumer = parts.consumer("orders", partition=2, group="billing")
    with parts.transaction():
        page = consumer.poll(1000)
    assert payloads(page) == wanted(SENT)[2]
    assert parts.position("billing", "orders.2") == page[-1].id
    assert parts.position("billing", "orders.1") is None
    assert parts.consumer("orders", partition=2, group="billing").poll() == []


def test_positions_of_partitions_are_moved_by_hand(parts: Messaging) -> None:
    place = MessageId.of(5)
    with parts.transaction() as tx:
        parts.save_positions(
            "g", {"orders.0": place, "orders.2": place}, transaction=tx.transaction
        )
    assert parts.position("g", "orders.0") == parts.position("g", "orders.2") == place
    assert parts.position("g", "orders.1") is None


def test_what_has_expired_goes_from_each_partition(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("orders", ttl_s=10, partitions=3)
    messaging.publish("orders", [*SENT])
    site.clock.now_ms += 11_000
    assert whole(messaging) == []
    page = messaging.poll("orders", start=0)
    assert page.skipped_before == site.clock.now_ms - 10_000
    assert messaging.clean_up().expired_messages == 60
    assert messaging.check().problems == ()


def test_all_is_there_after_a_restart(site: Site) -> None:
    if site.kind == "memory":
        pytest.skip("memory begins anew")
    site.messaging.create_topic("orders", partitions=3)
    site.messaging.publish("orders", [*SENT])
    again = site.open()
    assert again.partitions("orders") == 3
    assert by_partition(again) == wanted(SENT)
    assert again.check().problems == ()


def test_a_check_counts_what_has_partitions(parts: Messaging) -> None:
    parts.publish("orders", [*SENT])
    report = parts.check()
    assert report.problems == ()
    assert report.counts["partitioned topics"] == 1
    assert report.counts["topics"] == 1


def test_messages_by_partition_are_counted(parts: Messaging) -> None:
    parts.publish("orders", [*SENT])
    counted = Counter(place_of(one) for one in SENT)
    metrics = parts.metrics().topics
    assert metrics["orders.1"].messages_in == counted[1]


def test_the_ends_of_each_partition_are_told(parts: Messaging) -> None:
    assert parts.offsets("orders", at="first") == {0: None, 1: None, 2: None}
    assert parts.offsets("orders") == parts.offsets("orders", at="stable")
    parts.publish("orders.0", [b"a", b"b"])
    parts.publish("orders.2", [b"c"])
    pages = [parts.poll(f"orders.{number}") for number in range(3)]
    ids = [[one.id for one in page] for page in pages]
    assert parts.offsets("orders", at="first") == {0: ids[0][0], 1: None, 2: ids[2][0]}
    assert parts.offsets("orders", at="last") == {0: ids[0][1], 1: None, 2: ids[2][0]}
    assert parts.offsets("orders", at="stable") == parts.offsets("orders", at="last")
    assert parts.offsets("orders.2", at="last") == {2: ids[2][0]}


def test_a_partition_is_stable_up_to_what_is_open(parts: Messaging) -> None:
    parts.publish("orders.0", [b"a"])
    parts.publish("orders.1", [b"a"])
    before = parts.offsets("orders", at="last")
    with parts.transaction() as tx:
        parts.publish("orders.0", [b"b"], transaction=tx.transaction)
        parts.publish("orders.0", [b"c"])
        parts.publish("orders.1", [b"c"])
        stable, last = (parts.offsets("orders", at=at) for at in ("stable", "last"))
        assert stable == {0: before[0], 1: last[1], 2: None}
        assert last[0] != before[0]
    assert parts.offsets("orders", at="stable") == parts.offsets("orders", at="last")


def test_the_last_message_may_be_one_that_was_stored_ahead(parts: Messaging) -> None:
    publisher = parts.publisher("orders.1", buffer_limit_bytes=20)
    with parts.transaction():
        for number in range(9):
            publisher.publish(b"message %d" % number)
    page = parts.poll("orders.1", isolation="committed")
    for at, place in (("first", 0), ("last", -1), ("stable", -1)):
        assert parts.offsets("orders.1", at=at) == {1: page[place].id}  # type: ignore[arg-type]


def test_a_time_finds_the_first_message_from_then_on(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("orders", partitions=2)
    messaging.publish("orders.0", [b"early"])
    messaging.publish("orders.1", [b"early"])
    site.clock.now_ms += 5000
    messaging.publish("orders.1", [b"late"])
    late = messaging.poll("orders.1")[1]
    found = {0: None, 1: late.id}
    assert messaging.offsets("orders", at=late.id.publish_time_ms) == found
    assert messaging.offsets("orders", at=late.time) == found
    assert messaging.offsets("orders", at=late.time.replace(tzinfo=None)) == found
    long_ago = datetime(1900, 1, 1, tzinfo=UTC)
    firsts = messaging.offsets("orders", at="first")
    assert messaging.offsets("orders", at=long_ago) == firsts
    nothing = {0: None, 1: None}
    assert messaging.offsets("orders", at=late.id.publish_time_ms + 1) == nothing


def test_a_time_finds_no_message_that_has_expired_or_was_removed(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("orders", ttl_s=10, partitions=3)
    for name in ("orders.0", "orders.1"):
        messaging.publish(name, [b"early"])
    [early] = messaging.poll("orders.1")
    site.clock.now_ms += 6000
    messaging.publish("orders.1", [b"late"])
    late = messaging.poll("orders.1")[1]
    site.clock.now_ms += 6000
    left = {0: None, 1: late.id, 2: None}
    for removed in (2, 0):
        for at in (early.time, late.time, "first", "last"):
            assert messaging.offsets("orders", at=at) == left
        assert messaging.clean_up().expired_messages == removed
    site.clock.now_ms += 6000
    assert messaging.clean_up().expired_messages == 1
    assert messaging.offsets("orders", at=early.time) == {0: None, 1: None, 2: None}


def test_a_topic_of_one_partition_has_ends_as_well(parts: Messaging) -> None:
    parts.create_topic("t")
    parts.publish("t", [b"a", b"b"])
    [first, last] = parts.poll("t")
    assert parts.offsets("t", at="first") == {0: first.id}
    assert parts.offsets("t", at="stable") == {0: last.id}


@pytest.mark.parametrize("at", ["next", "", None, -1, 1.5, True, b"x"])
def test_a_wrong_place_is_refused(parts: Messaging, at: Any) -> None:
    with pytest.raises(BadRequest, match=r"at is first, last, stable|a time is "):
        parts.offsets("orders", at=at)


def test_a_consumer_of_a_topic_reads_each_partition_in_order(parts: Messaging) -> None:
    consumer = parts.consumer("orders")
    found: list[Message] = []
    for begin in range(0, 60, 20):
        parts.publish("orders", [*SENT[begin : begin + 20]])
        while page := consumer.poll(7):
            found += page
    assert split(found) == wanted(SENT)
    assert sorted(consumer.position) == [0, 1, 2]
    again = parts.consumer("orders", start=consumer.position, inclusive=False)
    assert again.poll() == []


def test_a_group_has_a_position_in_each_partition(parts: Messaging) -> None:
    parts.publish("orders", [*SENT[:40]])
    consumer = parts.consumer("orders", group="billing")
    found: list[Message] = []
    for _ in range(3):
        with parts.transaction():
            found += consumer.poll(7)
    with suppress(ZeroDivisionError), parts.transaction():
        assert consumer.poll(7)
        raise ZeroDivisionError
    other = parts.consumer("orders", group="billing")
    while page := other.poll(7):
        found += page
        other.commit()
    assert split(found) == wanted(SENT[:40])
    for number in range(3):
        last = parts.poll(f"orders.{number}", limit=1000)[-1].id
        assert parts.position("billing", f"orders.{number}") == last
    parts.update_topic("orders", partitions=4)
    parts.publish("orders.3", [b"new"])
    assert payloads(other.poll()) == [b"new"]


def test_members_of_a_group_conflict_where_they_read_the_same(
    parts: Messaging,
) -> None:
    parts.publish("orders", [*SENT])
    whole_one = parts.consumer("orders", group="g")
    named = parts.consumer("orders", partition=1, group="g")

    def both() -> list[Message]:
        with parts.transaction():
            named.poll(1)
            return tx_poll(parts, whole_one)

    with pytest.raises(TransactionConflict):
        both()
    assert parts.position("g", "orders.1") is not None
    parts.publish("orders", [*SENT])
    other = parts.consumer("orders", partition=0, group="g")
    with parts.transaction():  # nobody else moves that partition
        named.poll(1)
        assert tx_poll(parts, other)


def tx_poll(messaging: Messaging, consumer: Any) -> list[Message]:
    """Polls in a transaction of another thread."""
    found: list[Message] = []

    def poll() -> None:
        with messaging.transaction():
            found.extend(consumer.poll(1000))

    thread = threading.Thread(target=poll)
    thread.start()
    thread.join()
    return found


@pytest.mark.parametrize("start", ["next", "last", "first", 1])
def test_a_group_begins_in_each_partition(parts: Messaging, start: Any) -> None:
    parts.publish("orders", [*SENT])
    consumer = parts.consumer("orders", group="g", start=start)
    with parts.transaction():
        count = len(consumer.poll(1000))
    assert count == {"next": 0, "last": 3, "first": 60, 1: 60}[start]
    parts.publish("orders", [*SENT])
    again = parts.consumer("orders", group="g")
    with parts.transaction():
        assert len(again.poll(1000)) == 60


def test_a_consumer_of_a_topic_waits_for_any_partition(parts: Messaging) -> None:
    for group in (None, "g"):
        consumer = parts.consumer("orders", start="next", group=group)
        assert not consumer.wait(0.01)
        parts.publish("orders.2", [b"a"])
        assert consumer.wait(10)
        assert payloads(consumer.poll()) == [b"a"]


def test_a_subscriber_names_a_partition(parts: Messaging) -> None:
    parts.publish("orders.1", [b"a", b"b"])
    seen: list[Message] = []
    subscriber = parts.subscribe("orders.1", seen.append, group="g")
    assert subscriber.run_once() == 2
    assert [(one.partition, one.payload) for one in seen] == [(1, b"a"), (1, b"b")]
    with pytest.raises(BadRequest, match="several partitions; name one"):
        parts.subscribe("orders", seen.append).run_once()


def test_a_producer_has_a_sequence_in_each_partition(parts: Messaging) -> None:
    with parts.producer() as producer:
        for number in (0, 2):
            ids = producer.publish(f"orders.{number}", [b"a", b"b"])
            assert producer.publish(f"orders.{number}", [b"a", b"b"], sequence=0) == ids
    assert [len(page) for page in by_partition(parts).values()] == [2, 0, 2]
    described = parts.describe_producer(producer.producer_id)
    assert {one.topic for one in described.topics} == {"orders", "orders.2"}
    assert parts.check().problems == ()


def test_a_producer_splits_what_it_publishes_to_a_topic(parts: Messaging) -> None:
    with parts.producer() as producer:
        ids = producer.publish("orders", [*SENT])
        assert by_partition(parts) == wanted(SENT)
        found = {(one.partition, one.id): one.payload for one in whole(parts)}
        pairs = zip(SENT, ids, strict=True)
        assert [found[place_of(one), place] for one, place in pairs] == [
            one.payload for one in SENT
        ]
        for _ in range(3):
            producer.publish("orders", b"no key")
        counts = Counter(one.partition for one in whole(parts) if one.key is None)
        assert counts == {0: 1, 1: 1, 2: 1}
        parts.publish("orders.1", [b"x"])
        assert len(producer.publish("orders.1", [b"named"])) == 1
        with pytest.raises(BadRequest, match=r"name one of topic orders, as orders\.0"):
            producer.publish("orders", b"a", sequence=0)
    assert parts.check().problems == ()


def test_the_newest_by_key_say_their_partitions(parts: Messaging) -> None:
    parts.publish("orders", SENT)
    found = parts.latest("orders")
    assert {key.decode() for key in found} == {*KEYS}
    for message in found.values():
        assert message.partition == zlib.crc32(message.key or b"") % 3
    assert {one.partition for one in parts.latest("orders.2").values()} == {2}


def test_a_loop_without_a_group_reads_one_partition_by_its_name(
    parts: Messaging,
) -> None:
    """With the name of all it would try for ever in vain."""
    parts.publish("orders.1", [b"a"])
    loop = parts.subscribe("orders", print, start="first")
    with pytest.raises(PartitionNeeded, match=r"name one of them here, as orders\.0"):
        loop.run()
    got: list[bytes] = []
    one = parts.subscribe(
        "orders.1", lambda each: got.append(each.payload), group="b", start="first"
    )
    assert (one.run_once(), got) == (1, [b"a"])
    assert parts.groups() == []  # nobody shares what is named
