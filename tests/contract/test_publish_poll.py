"""Publish, poll and roll back: who sees what, from where, and how much of it."""

import threading
from functools import partial
from typing import Any

import pytest

from coordinator.transaction import Transaction
from tests.support.messagings import Site, commit, payloads, publish, seen_by
from txaware.errors import (
    BadRequest,
    RequestTooLarge,
    TransactionNotInProgress,
    TransactionRefused,
)
from txaware.messaging import Messaging
from txaware.model.messages import (
    BlockedBy,
    MessageId,
    Outgoing,
    PublishResponse,
    Receipt,
)
from txaware.model.rows import RowChange

ALL = [b"m0", b"m1", b"m2", b"m3", b"m4"]
outgoing: Any = Outgoing


@pytest.fixture
def five(messaging: Messaging) -> PublishResponse:
    """m2 of transaction 2, m4 of transaction 3, the others of none."""
    messaging.publish("t", [b"m0"])
    messaging.publish("t", [b"m1"])
    response = publish(messaging, b"m2", transaction=2)
    messaging.publish("t", [b"m3"])
    publish(messaging, b"m4", transaction=3)
    return response


def test_a_plain_publish_and_a_store_have_messages(messaging: Messaging) -> None:
    """Scenario 13."""
    with pytest.raises(BadRequest, match="without a transaction has messages"):
        messaging.publish("t", [])
    with pytest.raises(BadRequest):
        messaging.store("t", [b"a"], transaction=None)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="a store has messages"):
        messaging.store("t", [], transaction=5)
    assert payloads(messaging.poll("t")) == []


@pytest.mark.parametrize(
    "options",
    [{"limit": limit} for limit in (0, -1, 1.5, "1", True, None)]
    + [{"start": start} for start in (-1, 2**63, 1.5, "00" * 20, True, b"x" * 19)]
    + [{"start": MessageId(b"x" * 19)}, {"start": MessageId(b"")}]
    + [{"isolation": "none"}, {"isolation": None}, {"transaction": 5}]
    + [{"transaction": seen_by(5, read=5), "wait_s": 1}]
    + [{"wait_s": wait_s} for wait_s in (float("nan"), "1", None, True)],
    ids=repr,
)
def test_a_poll_that_makes_no_sense_is_refused(
    messaging: Messaging, options: Any
) -> None:
    """Scenario 17."""
    with pytest.raises(BadRequest):
        messaging.poll("t", **options)


@pytest.mark.parametrize("pointer", [0, -1, 2**63, True, 1.5, "5", b"5"], ids=repr)
def test_a_pointer_is_from_one_up(messaging: Messaging, pointer: Any) -> None:
    for messages in ([b"a"], []):
        with pytest.raises(BadRequest):
            messaging.publish("t", messages, transaction=pointer)
    with pytest.raises(BadRequest):
        messaging.store("t", [b"a"], transaction=pointer)
    with pytest.raises(BadRequest):
        messaging.rollback("t", PublishResponse(pointer, 0, 0, 2**62, 0))
    assert payloads(messaging.poll("t")) == []


@pytest.mark.parametrize(
    "messages",
    [b"ab", "ab", ["a"], [None], [b"a", 5], [outgoing("a")], [bytearray(b"a")]]
    + [[outgoing(b"a", after)] for after in (0, -1, "1", True, float("nan"), 1e300)],
    ids=repr,
)
def test_messages_are_a_list_of_bytes(messaging: Messaging, messages: Any) -> None:
    for pointer in (None, 5):
        with pytest.raises(BadRequest):
            messaging.publish("t", messages, transaction=pointer)
    assert payloads(messaging.poll("t")) == []


@pytest.mark.foreign_pointers
def test_with_a_lifetime_set_older_pointers_are_refused(site: Site) -> None:
    """Scenario 21; CDAP takes the store."""
    messaging = site.open(max_transaction_lifetime_s=90_000, transaction_timeout_s=9e5)
    messaging.create_topic("t")
    tx = messaging.coordinator.start_short()
    old = (site.clock() - 90_000_000) * 1_000_000
    for pointer in (5, old):
        with pytest.raises(TransactionRefused, match="began more than 90000 s ago"):
            messaging.publish("t", [b"a"], transaction=pointer)
        with pytest.raises(TransactionRefused):
            messaging.store("t", [b"a"], transaction=pointer)
    messaging.publish("t", [b"a"], transaction=old + 1_000_000)
    site.clock.now_ms = tx.start_ms + 89_999_999
    messaging.publish("t", [b"b"], transaction=tx)
    site.clock.now_ms += 1
    with pytest.raises(TransactionRefused):
        messaging.publish("t", [b"c"], transaction=tx)


@pytest.mark.foreign_pointers
def test_without_a_lifetime_any_foreign_pointer_is_taken(messaging: Messaging) -> None:
    publish(messaging, b"a", transaction=1)
    publish(messaging, b"b", transaction=2**63 - 1)
    assert len(messaging.poll("t")) == 2


@pytest.mark.foreign_pointers
def test_a_large_message_comes_back_as_it_was(messaging: Messaging) -> None:
    """Scenario 22."""
    large = bytes(range(256)) * (5 << 12)
    messaging.publish("t", [large])
    messaging.store("t", [large], transaction=5)
    messaging.publish("t", [], transaction=5)
    assert payloads(messaging.poll("t", limit=1)) == [large]
    assert payloads(messaging.poll("t", limit=2)) == [large]
    first = messaging.poll("t").next
    assert payloads(messaging.poll("t", start=first, inclusive=False)) == [large]


def test_a_message_above_the_limit_is_refused_with_all_of_its_request(
    site: Site,
) -> None:
    messaging = site.open(message_limit_bytes=10)
    messaging.create_topic("t")
    messaging.publish("t", [b"x" * 10])
    for pointer in (None, 5):
        with pytest.raises(RequestTooLarge, match="11 bytes is above the limit of 10"):
            messaging.publish("t", [b"x", b"x" * 11], transaction=pointer)
    assert payloads(messaging.poll("t")) == [b"x" * 10]


def test_the_same_list_may_be_published_again(messaging: Messaging) -> None:
    """Scenario 23."""
    messages: list[bytes | Outgoing] = [b"m1", Outgoing(b"m2")]
    messaging.publish("t", messages)
    messaging.publish("t", messages)
    messaging.publish("t", iter(messages))
    assert payloads(messaging.poll("t")) == [b"m1", b"m2"] * 3


def test_a_poll_begins_where_it_is_told(site: Site) -> None:
    """Scenarios 24, 25 and 26."""
    messaging, clock = site.messaging, site.clock
    messaging.create_topic("t")
    messaging.publish("t", [b"m0"])
    clock.advance_s(1)
    messaging.publish("t", [b"m1"])

    def poll(**options: Any) -> list[bytes]:
        return payloads(messaging.poll("t", **options))

    one, two = messaging.poll("t")
    assert poll() == [b"m0", b"m1"]
    assert poll(start=0) == [b"m0", b"m1"]
    assert poll(start=one.id) == [b"m0", b"m1"]
    assert poll(start=bytes(one.id) + b"ignored") == [b"m0", b"m1"]
    assert poll(start=one.id, inclusive=False) == [b"m1"]
    assert poll(limit=1) == [b"m0"]
    assert poll(start=clock(), inclusive=False) == [b"m1"]
    assert poll(start=clock() - 999) == [b"m1"]
    assert poll(start=clock() + 1) == []
    between = MessageId.of(clock() - 1, 7, 3, 2)
    assert poll(start=between, inclusive=False) == [b"m1"]
    assert poll(start=MessageId(one.id[:19] + b"\x01")) == [b"m1"]
    assert poll(start=two.id.before(), inclusive=False) == [b"m1"]
    assert poll(start=two.id, inclusive=False) == []
    assert one.id == MessageId.of(clock() - 1000)


@pytest.mark.foreign_pointers
@pytest.mark.parametrize(
    ("tx", "expected"),
    [
        (seen_by(3, read=3, in_progress=[2]), ALL[:2]),
        (seen_by(3, read=3, invalids=[2]), [b"m0", b"m1", b"m3", b"m4"]),
        (seen_by(3, read=3), ALL),
        (None, ALL),
        (seen_by(2, read=1), ALL[:4]),
        (seen_by(4, read=1), ALL[:2]),
        (seen_by(4, read=2), ALL[:4]),
        (seen_by(9, read=8, invalids=[2, 3]), [b"m0", b"m1", b"m3"]),
        (Transaction(9, 1, checkpoint_write_pointers=[2, 3]), ALL),
    ],
    ids=["27", "28", "29", "30", "31", "newer", "newer-later", "two-invalid", "own"],
)
@pytest.mark.usefixtures("five")
def test_a_snapshot_decides_row_by_row_and_stops_at_what_it_cannot(
    messaging: Messaging, tx: Transaction | None, expected: list[bytes]
) -> None:
    """Scenarios 27 to 31."""
    for _ in range(2):  # from the table, then from the cache
        assert payloads(messaging.poll("t", transaction=tx)) == expected


@pytest.mark.foreign_pointers
@pytest.mark.usefixtures("five")
def test_a_page_says_who_stopped_it_and_where_to_go_on(site: Site) -> None:
    messaging = site.messaging
    ids = [message.id for message in messaging.poll("t")]
    page = messaging.poll("t", transaction=seen_by(9, read=9, in_progress=[2]))
    assert page.blocked_by == BlockedBy(2, ids[2].publish_time_ms)
    assert page.next == ids[1]
    page = messaging.poll("t", limit=2, transaction=seen_by(9, read=9, in_progress=[2]))
    assert (page.blocked_by, page.next) == (None, ids[1])
    page = messaging.poll(
        "t", start=ids[2], transaction=seen_by(9, read=9, in_progress=[2])
    )
    assert page == []
    assert page.next == ids[2].before()
    tx = seen_by(9, read=9, invalids=[3])
    page = messaging.poll("t", start=ids[3], inclusive=False, transaction=tx)
    assert (page, page.next, page.blocked_by) == ([], ids[4], None)
    assert page.skipped_before is None
    page = messaging.poll("t", start=ids[4], inclusive=False)
    assert (page, page.next) == ([], ids[4])
    behind = MessageId(ids[4][:19] + b"\1")
    for inclusive, expected in ((False, behind), (True, behind.before())):
        page = messaging.poll("t", start=behind, inclusive=inclusive)
        assert (page, page.next) == ([], expected)
    # A start behind a row is not stopped by it, whatever the snapshot thinks of it.
    tx = seen_by(9, read=9, in_progress=[2])
    page = messaging.poll("t", start=ids[2], inclusive=False, transaction=tx)
    assert payloads(page) == [b"m3", b"m4"]


@pytest.mark.foreign_pointers
def test_what_is_rolled_back_is_skipped_even_while_in_progress(
    messaging: Messaging, five: PublishResponse
) -> None:
    """Scenarios 32 and 33."""
    for tx in (seen_by(3, read=3, in_progress=[2]), seen_by(2, read=1)):
        messaging.poll("t", transaction=tx)
    messaging.poll("t")
    for _ in range(2):
        messaging.rollback("t", five)
        tx = seen_by(3, read=3, in_progress=[2])
        expected = [b"m0", b"m1", b"m3", b"m4"]
        assert payloads(messaging.poll("t", transaction=tx)) == expected
        own = seen_by(2, read=9)
        assert payloads(messaging.poll("t", transaction=own)) == expected
        assert payloads(messaging.poll("t")) == ALL


@pytest.mark.foreign_pointers
def test_a_rollback_changes_only_rows_of_its_own_pointer(messaging: Messaging) -> None:
    """Scenario 50."""
    mine = publish(messaging, b"a", b"b", transaction=5)
    publish(messaging, b"c", transaction=6)
    messaging.publish("t", [b"d"])
    messaging.rollback("t", PublishResponse(5, 0, 0, 2**63 - 1, 65_535))
    tx = seen_by(9, read=9)
    assert payloads(messaging.poll("t", transaction=tx)) == [b"c", b"d"]
    again = publish(messaging, b"e", b"f", transaction=5)
    assert mine.end_sequence_id < again.start_sequence_id
    messaging.rollback("t", mine)
    backwards = PublishResponse(
        5, again.end_timestamp, 65_535, again.start_timestamp, 0
    )
    messaging.rollback("t", backwards)
    assert payloads(messaging.poll("t", transaction=tx)) == [b"c", b"d", b"e", b"f"]
    for wrong in (PublishResponse(5, -1, 0, 0, 0), PublishResponse(5, 0, 0, 0, 65_536)):
        with pytest.raises(BadRequest, match="names no rows"):
            messaging.rollback("t", wrong)
    with pytest.raises(BadRequest, match="rollback takes"):
        messaging.rollback("t", 5)  # type: ignore[arg-type]


@pytest.mark.foreign_pointers
def test_an_answer_names_the_first_and_the_last_row(site: Site) -> None:
    site.messaging.create_topic("t")
    now_ms = site.clock()
    response = publish(site.messaging, b"a", b"b", b"c", transaction=5)
    assert response == PublishResponse(5, now_ms, 0, now_ms, 2)
    ids = [message.id for message in site.messaging.poll("t")]
    assert ids == [MessageId.of(now_ms, number) for number in range(3)]
    assert site.messaging.publish("t", [b"d"]) is None


def test_a_transaction_of_the_coordinator_is_seen_with_its_commit(
    messaging: Messaging,
) -> None:
    before = messaging.coordinator.snapshot()
    tx = messaging.coordinator.start_short()
    publish(messaging, b"a", transaction=tx)
    during = messaging.coordinator.snapshot()
    assert payloads(messaging.poll("t", transaction=tx)) == [b"a"]
    assert payloads(messaging.poll("t", isolation="committed")) == []
    commit(messaging, tx)
    assert payloads(messaging.poll("t", isolation="committed")) == [b"a"]
    for old in (before, during):
        assert messaging.poll("t", transaction=old).blocked_by is not None


@pytest.mark.parametrize("end", ["commit", "abort", "invalidate"])
def test_a_pointer_of_a_transaction_that_has_ended_is_refused(
    messaging: Messaging, end: str
) -> None:
    tx = messaging.coordinator.start_short()
    if end == "commit":
        commit(messaging, tx)
    else:
        getattr(messaging.coordinator, end)(tx)
    for pointer in (tx, tx.transaction_id, tx.transaction_id + 1_000):
        with pytest.raises(TransactionNotInProgress):
            messaging.publish("t", [b"a"], transaction=pointer)
        with pytest.raises(TransactionNotInProgress):
            messaging.publish("t", [], transaction=pointer)
        with pytest.raises(TransactionNotInProgress):
            messaging.store("t", [b"a"], transaction=pointer)
    assert payloads(messaging.poll("t")) == []


def never_given_out(messaging: Messaging) -> list[int]:
    """Pointers before the first that was given out, and behind the last."""
    given = messaging.coordinator.snapshot().transaction_id
    return [1, 12345, given - 10**15, given + 10**6, given + 10**15, 2**62, 2**63 - 1]


def test_a_pointer_that_was_never_given_out_is_refused_for_every_write(
    messaging: Messaging,
) -> None:
    messaging.create_queue("q")
    queues, tables = messaging._parts.queues, messaging._parts.tables
    queues.push("q", [b"item"])
    [popped] = queues.pop("q")
    queues.push("q", [b"waits"])
    own = messaging.coordinator.start_short()
    pipe = queues.pipe_for("q", transaction=own)
    change = RowChange(b"k", b"v")
    for pointer in never_given_out(messaging):
        receipt = Receipt(pointer, "t", b"", 1)
        tx = Transaction(pointer, pointer)
        for write in (
            partial(messaging.publish, "t", [b"a"], transaction=pointer),
            partial(messaging.publish, "t", [b"a"], transaction=tx),
            partial(messaging.publish, "t", [], transaction=pointer),
            partial(messaging.publish, "t", [], transaction=pointer, receipts=[]),
            partial(messaging.publish, "t", [], transaction=tx, receipts=[receipt]),
            partial(messaging.store, "t", [b"a"], transaction=pointer),
            partial(
                messaging.save_position, "g", "t", MessageId.of(1), transaction=pointer
            ),
            partial(messaging.publish, pipe, [b"a"], transaction=pointer),
            partial(queues.pipe_for, "q", transaction=pointer),
            partial(queues.pop, "q", transaction=tx),
            partial(queues.commit_job, "q", popped.id, popped.lease, transaction=tx),
            partial(tables.save_rows, "rows", [change], transaction=pointer),
        ):
            with pytest.raises(TransactionNotInProgress, match="never given out here"):
                write()
    messaging.publish("t", [b"plain"])
    assert payloads(messaging.poll("t", isolation="committed")) == [b"plain"]
    stats = queues.queue_stats("q")
    assert (stats.depth, stats.in_work, stats.pushed) == (1, 1, 2)
    assert tables.scan_rows("rows").rows == []
    assert messaging.position("g", "t") is None
    assert not messaging.check().problems


@pytest.mark.foreign_pointers
def test_what_came_with_an_unknown_pointer_is_rolled_back_where_none_is_accepted(
    lasting: Site,
) -> None:
    messaging = lasting.messaging
    messaging.create_topic("t")
    response = publish(messaging, b"foreign", transaction=12345)
    messaging.publish("t", [b"behind"])
    messaging = lasting.open(accept_unknown_pointers=False)
    with pytest.raises(TransactionNotInProgress, match="never given out here"):
        messaging.publish("t", [b"more"], transaction=12345)
    assert payloads(messaging.poll("t", isolation="committed")) == []
    messaging.rollback("t", response)
    assert payloads(messaging.poll("t", isolation="committed")) == [b"behind"]


def test_a_committed_transaction_is_not_rolled_back(messaging: Messaging) -> None:
    tx = messaging.coordinator.start_short()
    response = publish(messaging, b"a", transaction=tx)
    commit(messaging, tx)
    with pytest.raises(TransactionRefused, match="stays"):
        messaging.rollback("t", response)
    assert payloads(messaging.poll("t", isolation="committed")) == [b"a"]


def test_an_invalid_transaction_may_still_be_rolled_back_and_then_forgotten(
    site: Site,
) -> None:
    """Scenario 62, for one transaction."""
    messaging = site.messaging
    messaging.create_topic("t")
    tx = messaging.coordinator.start_short()
    response = publish(messaging, b"a", transaction=tx)
    assert messaging.coordinator.invalidate(tx)
    messaging.rollback("t", response)
    site.clock.advance_s(90_000)
    assert messaging.coordinator.truncate_invalid_tx([tx.transaction_id])
    for isolation in ("committed", "uncommitted"):
        found = payloads(messaging.poll("t", isolation=isolation))
        assert found == ([] if isolation == "committed" else [b"a"])


@pytest.mark.foreign_pointers
def test_a_pointer_of_nobody_stops_who_reads_what_is_committed(
    messaging: Messaging,
) -> None:
    messaging.publish("t", [b"a"])
    publish(messaging, b"b", transaction=5)
    messaging.publish("t", [b"c"])
    page = messaging.poll("t", isolation="committed")
    assert payloads(page) == [b"a"]
    assert page.blocked_by is not None
    assert page.blocked_by.pointer == 5


def test_a_poll_while_others_publish_sees_a_prefix(messaging: Messaging) -> None:
    """Scenario 48."""
    done = threading.Event()

    def write() -> None:
        for number in range(100):
            messaging.publish("t", [b"%d.%d" % (number, part) for part in range(20)])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[list[bytes]] = []
    while not done.is_set():
        seen.append(payloads(messaging.poll("t", limit=10_000)))
    writer.join()
    everything = payloads(messaging.poll("t", limit=10_000))
    assert len(everything) == 2000
    for page in seen:
        assert page == everything[: len(page)]
        assert not len(page) % 20


@pytest.mark.foreign_pointers
def test_a_limit_counts_what_is_delivered(messaging: Messaging) -> None:
    """Scenario 57."""
    for pointer in (100, 101, 102):
        publish(messaging, *[b"%d" % pointer] * 50, transaction=pointer)
    for tx, limit, expected in [
        (seen_by(200, read=199), 85, 85),
        (seen_by(200, read=199, invalids=[101]), 150, 100),
        (seen_by(200, read=199, in_progress=[101]), 150, 50),
        (seen_by(200, read=199, in_progress=[101]), 10, 10),
    ]:
        assert len(messaging.poll("t", transaction=tx, limit=limit)) == expected
