"""Rows never come without the records that judge them; pointers without one are dead.

A pointer that a crash left without any record never committed, whoever reads its rows.
"""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator import EmbeddedCoordinator
from coordinator.transaction_status import INVALID, standing
from tests.support.check_setting import SETTINGS, as_after_a_crash, checked, write
from tests.support.doubles import Clock
from tests.support.fake_leveldb import DONE, OPEN, WRITE, Crash, FakeDirectory, io_error
from tests.support.store_load import Store
from txaware.errors import NotWritten, TransactionNotInProgress, Unavailable
from txaware.messaging import Messaging
from txaware.messaging.store_copy import copy
from txaware.model.messages import MessageId, PublishResponse
from txaware.model.topics import TopicName, data_prefix
from txaware.service.check.checking import check
from txaware.store.columns import value_head
from txaware.store.keys import MESSAGE
from txaware.store.kinds import POSITIONS
from txaware.store.leveldb import LevelDbTable

GROUP, AT = "g", MessageId(bytes(19) + b"\1")
LOST = "lost in a crash and not marked"


def opened(directory: FakeDirectory, clock: Clock) -> Store:
    return Store(LevelDbTable("fake", directory.open, clock_ms=clock), clock)


def begun_and_timed_out(store: Store, clock: Clock) -> None:
    """One that publishes and moves a group, and of which nobody hears any more."""
    tx = store.coordinator.start_short(timeout_s=5)
    store.service.publish("a", [b"uncommitted"], transaction=tx)
    store.service.save_position(GROUP, "a", AT, transaction=tx)
    clock.advance_s(6)
    store.coordinator.invalid_size()  # whoever asks next times it out


def assert_nothing_of_it_is_there(directory: FakeDirectory, clock: Clock) -> None:
    """Whatever a crash leaves: the first line holds without the second one."""
    found = list(directory.after_a_crash())
    assert found
    for after in found:
        store = opened(after, clock)
        try:
            page = store.service.poll("a", isolation="committed")
            payloads = [message.payload for message in page]
            assert payloads[:1] == [b"kept"]
            assert b"uncommitted" not in payloads
            assert store.service.position(GROUP, "a") is None
            assert not check(store.table).counts.get(LOST)
        finally:
            store.close()


def test_a_transaction_that_ran_while_the_store_was_repaired_is_not_seen() -> None:
    """A write fails, and so does the first opening; during the next one it all ran."""
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock)
    store.service.publish("a", [b"kept"])
    opens: list[str] = []

    def before(_: int, step: str) -> None:
        if step == WRITE and not opens:
            raise io_error()
        if step == OPEN:
            opens.append(step)
            if len(opens) == 1:
                raise io_error("fake: cannot be opened")
            if len(opens) == 2:
                begun_and_timed_out(store, clock)
        if step == DONE and len(opens) >= 2:
            raise Crash

    directory.before = before
    with pytest.raises(Unavailable):
        store.service.publish("a", [b"failed"])
    with suppress(Crash, Unavailable):
        store.service.publish("a", [b"crashed"])
    assert directory.crashed
    with suppress(Crash, Unavailable):
        store.close()
    assert_nothing_of_it_is_there(directory, clock)


def test_what_came_after_the_records_were_chosen_waits_for_the_next_batch() -> None:
    """The moment between the choice of the records and the write, whatever is there."""
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock)
    store.service.publish("a", [b"kept"])
    batches: Any = store.table._batches
    write_batch = batches.write

    def late(*args: Any) -> None:
        del batches.write
        begun_and_timed_out(store, clock)
        write_batch(*args)

    batches.write = late
    store.service.publish("a", [b"answered"])
    assert_nothing_of_it_is_there(directory, clock)
    store.service.publish("a", [b"next"])
    assert not store.table._held
    assert_nothing_of_it_is_there(directory, clock)
    store.close()


def test_a_close_whose_last_record_failed_writes_no_rows_without_theirs() -> None:
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock)
    store.service.publish("a", [b"kept"])
    begun_and_timed_out(store, clock)
    failed: list[int] = []

    def before(number: int, step: str) -> None:
        if step == WRITE and not failed:
            failed.append(number)
            raise io_error()

    directory.before = before
    with pytest.raises(NotWritten):
        store.coordinator.close()
    assert failed
    store.close()
    assert_nothing_of_it_is_there(directory, clock)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A crash left a message and a position, and of their transaction no record.

    Versions before this one could do that.
    """
    with txaware.connect(f"leveldb:{tmp_path / 'first'}", settings=SETTINGS) as first:
        first.create_topic("orders")
        with first.transaction() as tx:
            first.publish("orders", [b"kept"], transaction=tx.transaction)
            first.save_position(GROUP, "orders", AT, transaction=tx.transaction)
        lost = first.coordinator.start_short()
        after = first.bounds("orders").next
        as_after_a_crash(tmp_path / "first", tmp_path / "data")
        first.coordinator.invalidate(lost)
    name, pointer = TopicName("orders"), lost.transaction_id
    row = MESSAGE + data_prefix(name, 1) + after.row_key
    further = MessageId(bytes(19) + b"\2")
    message = (row, value_head(pointer) + b"uncommitted")
    position = POSITIONS.write((GROUP, name), pointer, further)
    write(tmp_path / "data", [message, position])
    return tmp_path / "data"


@pytest.fixture(params=["embedded", "http"])
def messaging(request: pytest.FixtureRequest, data: Path) -> Iterator[Messaging]:
    with txaware.connect(f"leveldb:{data}", settings=SETTINGS) as owner:
        if request.param == "embedded":
            yield owner
            return
        with owner.serve() as served, txaware.connect(served.url) as client:
            yield client


def test_every_reader_takes_a_lost_pointer_for_invalid(messaging: Messaging) -> None:
    def payloads(**how: Any) -> list[bytes]:
        return [m.payload for m in messaging.poll("orders", **how)]

    assert payloads(isolation="committed") == [b"kept"]
    assert messaging.position(GROUP, "orders") == AT
    with messaging.transaction() as tx:
        assert payloads(transaction=tx.transaction) == [b"kept"]
        at = messaging.position(GROUP, "orders", transaction=tx.transaction)
        assert at == AT
        consumer = messaging.consumer("orders", start=0)
        assert [m.payload for m in consumer.poll()] == [b"kept"]
    assert payloads() == [b"kept", b"uncommitted"], "plain polls deliver everything"
    assert messaging.check().counts[LOST] == 1


def test_a_lost_pointer_is_shown_as_invalid_and_its_rows_can_be_taken_back(
    messaging: Messaging,
) -> None:
    coordinator = messaging.coordinator
    kept, found = messaging.peek("orders")
    assert (kept.state, found.state) == ("committed", "invalid")
    pointer = found.pointer
    assert pointer is not None
    assert standing(coordinator, pointer).state == INVALID
    assert coordinator.invalidate(pointer)
    with pytest.raises(TransactionNotInProgress, match="was lost in a crash"):
        messaging.publish("orders", [b"more"], transaction=pointer)
    numbers = (found.id.publish_time_ms, found.id.sequence) * 2
    messaging.rollback("orders", PublishResponse(pointer, *numbers))
    assert messaging.peek("orders")[1].state == "rolled back"
    assert not messaging.check().counts.get(LOST)


def test_a_clean_up_keeps_the_position_before_a_lost_one(data: Path) -> None:
    with txaware.connect(f"leveldb:{data}", settings=SETTINGS) as messaging:
        messaging.clean_up()
        messaging.clean_up()
        assert messaging.position(GROUP, "orders") == AT


def test_a_copy_has_what_was_lost_rolled_back(data: Path, tmp_path: Path) -> None:
    target = f"leveldb:{tmp_path / 'target'}"
    copy(f"leveldb:{data}", target, settings=SETTINGS)
    with txaware.connect(target, settings=SETTINGS) as messaging:
        assert [row.state for row in messaging.peek("orders")] == [
            "committed",
            "rolled back",
        ]
        assert messaging.position(GROUP, "orders") == AT


def test_check_knows_what_a_crash_left_before_anybody_opened_the_data(
    data: Path,
) -> None:
    report = checked(data)
    assert report.is_clean, report.problems
    assert report.counts[LOST] == 1
    assert not report.needed, "nothing has to be remembered for it"


def test_many_crashes_make_no_snapshot_larger(data: Path, tmp_path: Path) -> None:
    for number in range(3):
        url = f"leveldb:{data}"
        with txaware.connect(url, settings=SETTINGS) as messaging:
            dead = messaging.coordinator.start_short()
            as_after_a_crash(data, tmp_path / str(number))
            messaging.coordinator.abort(dead)
        data = tmp_path / str(number)
    with txaware.connect(f"leveldb:{data}", settings=SETTINGS) as messaging:
        snapshot = messaging.coordinator.snapshot()
        assert len(snapshot.invalids) == 0
        assert not snapshot.is_visible(dead.transaction_id)
        with messaging.transaction() as tx:
            pointer = tx.transaction.transaction_id
        assert messaging.coordinator.snapshot().is_visible(pointer)


def test_check_beside_a_coordinator_elsewhere_counts_what_that_one_lost(
    tmp_path: Path,
) -> None:
    """Only its disk lost the last batch; that of the rows kept its own."""
    url, before = f"leveldb:{tmp_path / 'data'}", tmp_path / "before"
    with (
        EmbeddedCoordinator.open(before) as first,
        txaware.connect(url, coordinator=first, settings=SETTINGS) as messaging,
    ):
        messaging.create_topic("orders")
        messaging.publish("orders", [b"kept"])
        dead = first.start_short()
        shutil.copytree(before, tmp_path / "after")
        messaging.publish("orders", [b"uncommitted"], transaction=dead)
    with (
        EmbeddedCoordinator.open(tmp_path / "after") as reopened,
        txaware.connect(url, coordinator=reopened, settings=SETTINGS) as messaging,
    ):
        report = messaging.check()
    assert report.is_clean, report.problems
    assert report.counts[LOST] == 1
    assert not report.needed, "nothing has to be remembered for it"
