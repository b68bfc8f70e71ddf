"""What is answered when the disk fails is true then, and after it was opened again."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from coordinator.directory_lock import DirectoryLock
from coordinator.embedded.records import Reserved
from tests.support.doubles import Clock
from tests.support.fake_leveldb import (
    DONE,
    OPEN,
    SYNC,
    WRITE,
    FakeDirectory,
    io_error,
)
from tests.support.store_lives import close, opened
from txaware.errors import NotWritten, TransactionNotInProgress, Unavailable
from txaware.model.messages import MessageId
from txaware.store.leveldb import LevelDbTable


@pytest.mark.parametrize("at", [WRITE, SYNC, DONE])
def test_a_plain_publish_tells_whether_it_is_written(at: str) -> None:
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock)
    directory.before = lambda number, step: fail_once(directory, step, at)
    if at == WRITE:
        with pytest.raises(NotWritten):
            store.service.publish("a", [b"one"])
    else:
        store.service.publish("a", [b"one"])  # found when it was opened again
    store.service.publish("a", [b"two"])
    expected = [b"two"] if at == WRITE else [b"one", b"two"]
    assert [m.payload for m in store.service.poll("a")] == expected
    store.close()
    store = opened(directory, clock)
    assert [m.payload for m in store.service.poll("a")] == expected
    store.close()


def fail_once(directory: FakeDirectory, step: str, at: str) -> None:
    if step == at:
        directory.before = lambda number, step: None
        raise io_error()


@pytest.mark.parametrize("at", [WRITE, SYNC, DONE])
@pytest.mark.parametrize("limit_bytes", [0, 1 << 20])
def test_a_commit_that_nobody_can_tell_is_undecided_until_the_disk_is_back(
    at: str, limit_bytes: int
) -> None:
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock, sync_limit_bytes=limit_bytes)
    tx = store.coordinator.start_short()
    store.service.publish("a", [b"one"], transaction=tx)
    down = [3]

    def before(_: int, step: str) -> None:
        if step == at or (step == OPEN and down[0]):
            down[0] -= step == OPEN
            raise io_error()

    directory.before = before
    with pytest.raises(Unavailable) as caught:
        store.coordinator.commit(tx)
    assert not isinstance(caught.value, NotWritten)
    assert "No space left" in store.table.status()
    with pytest.raises(Unavailable):
        store.service.poll("a", isolation="committed")
    assert down[0] > 0
    while down[0]:
        with suppress(Unavailable):
            store.service.publish("b", [b"other"])
    directory.before = lambda number, step: None
    store.service.publish("b", [b"works again"])
    first = store.service.poll("a", isolation="committed")
    answer = store.coordinator.invalidate(tx)
    seen = [m.payload for m in store.service.poll("a", isolation="committed")]
    assert seen == ([] if answer else [b"one"])
    assert not first or not answer
    store.close()
    store = opened(directory, clock)
    later = store.service.poll("a", isolation="committed")
    assert [m.payload for m in later] == seen
    store.close()


@pytest.mark.parametrize("limit_bytes", [0, 1 << 20])
@pytest.mark.parametrize("opens", [0, 1])
@pytest.mark.parametrize("at", [WRITE, SYNC])
@pytest.mark.parametrize("persisted", [False, True])
def test_a_commit_that_was_not_written_can_be_asked_for_again(
    at: str, opens: int, limit_bytes: int, persisted: bool
) -> None:
    """And has all its rows, in memory or on disk, once."""
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock, sync_limit_bytes=limit_bytes)
    tx = store.coordinator.start_short()
    store.service.publish("a", [b"one"], transaction=tx)
    if persisted:
        store.coordinator.persist(tx)
    directory.before = fail_from(directory.steps, at, opens=opens)
    with suppress(Unavailable):
        store.coordinator.commit(tx)
    with suppress(Unavailable, TransactionNotInProgress):
        store.coordinator.commit(tx)
    store.service.publish("a", [b"next"])
    assert not store.table._held
    for _ in range(2):
        page = store.service.poll("a", isolation="committed")
        assert [message.payload for message in page] == [b"one", b"next"]
        close(store)
        store = opened(directory, clock)
    store.close()


def fail_from(first: int, at: str, *, opens: int) -> Callable[[int, str], None]:
    """Fails one step of that name, and then so many openings."""
    left = {at: 1, OPEN: opens}

    def before(number: int, step: str) -> None:
        if number >= first and left.get(step) and (step == at or not left[at]):
            left[step] -= 1
            raise io_error()

    return before


def test_a_journal_written_anew_of_which_nobody_can_tell_forgets_nothing() -> None:
    """An error after all of it was written; what comes next is in the history too."""
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock)
    batches, journal = store.table._batches, store.table.journal
    writes = [0]

    def before(_: int, step: str) -> None:
        writes[0] += step == DONE
        if step == DONE and writes[0] == 2:
            directory.before = lambda number, step: None
            raise io_error()

    directory.before, batches._compact_at = before, 0
    journal.append(Reserved(0))
    batches._compact_at = 1 << 30
    assert writes == [2], "the journal was not written anew"
    tx = store.coordinator.start_short()
    store.service.publish("a", [b"aborted"], transaction=tx)
    store.coordinator.invalidate(tx)
    batches._compact_at = 0
    journal.append(Reserved(0))
    store.close()
    store = opened(directory, clock)
    assert not store.service.poll("a", isolation="committed")
    assert len(store.service.poll("a")) == 1
    store.close()


@pytest.mark.parametrize("limit_bytes", [0, 60, 100, 150, 1 << 20])
def test_the_last_of_several_positions_of_a_transaction_counts(
    limit_bytes: int,
) -> None:
    """Also where the first was held for the commit and the last is written at once."""
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock, sync_limit_bytes=limit_bytes)
    tx = store.coordinator.start_short()
    for number in range(1, 4):
        place = MessageId.of(number)
        store.service.save_position("g", "a", place, transaction=tx)
        assert store.service.position("g", "a", transaction=tx) == place
        store.service.publish("a", [b"x" * 20], transaction=tx)
    store.coordinator.commit(tx)
    assert store.service.position("g", "a") == place
    store.close()
    store = opened(directory, clock)
    assert store.service.position("g", "a") == place
    store.close()


def test_a_row_that_is_rolled_back_while_it_is_written_is_written_again() -> None:
    """Of one that timed out; forgotten as invalid, its row must still be hidden."""
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock)
    tx = store.coordinator.start_short()
    response = store.service.publish("a", [b"late"], transaction=tx)
    assert response is not None

    def before(_: int, step: str) -> None:
        if step == SYNC:
            directory.before = lambda number, step: None
            store.service.rollback("a", response)

    directory.before = before
    clock.advance_s(60)  # the next batch carries what has timed out
    assert tx.transaction_id in store.coordinator.snapshot().invalids
    store.service.publish("a", [b"first"])
    store.service.publish("a", [b"second"])
    clock.advance_s(2 * 86_400)
    assert store.coordinator.truncate_invalid_tx([tx.transaction_id])
    for _ in range(2):
        page = store.service.poll("a", isolation="committed")
        assert [message.payload for message in page] == [b"first", b"second"]
        store.close()
        store = opened(directory, clock)
    store.close()


def test_what_was_rolled_back_stays_for_plain_readers_and_not_in_memory() -> None:
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock)
    tx = store.coordinator.start_short()
    response = store.service.publish("a", [b"undone"], transaction=tx)
    assert response is not None
    store.service.rollback("a", response)
    store.coordinator.abort(tx)
    store.service.publish("a", [b"plain"])
    assert not store.table._held
    for _ in range(2):
        assert [m.payload for m in store.service.poll("a")] == [b"undone", b"plain"]
        page = store.service.poll("a", isolation="committed")
        assert [message.payload for message in page] == [b"plain"]
        store.close()
        store = opened(directory, clock)
    store.close()


def test_what_a_crash_forgot_had_ids_that_nobody_gets_again() -> None:
    """A plain reader may have seen a row that only memory had."""
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock)
    tx = store.coordinator.start_short()
    clock.advance_s(4)
    store.service.publish("a", [b"held"], transaction=tx)
    seen = store.service.poll("a")[0].id
    for found in directory.after_a_crash():
        again = opened(found, Clock())
        assert not again.service.poll("a")
        again.service.publish("a", [b"new"])
        assert again.service.poll("a")[0].id > seen
        again.close()
    store.close()


def test_a_close_that_cannot_write_gives_the_directory_back(tmp_path: Path) -> None:
    directory, clock = FakeDirectory(), Clock()
    table = LevelDbTable(
        "fake", directory.open, clock_ms=clock, lock=DirectoryLock(tmp_path)
    )
    directory.before = lambda number, step: fail_once(directory, step, WRITE)
    with pytest.raises(NotWritten):
        table.close()
    DirectoryLock(tmp_path).release()
    assert directory.owner is None


def test_one_whose_commit_was_not_written_times_out_once() -> None:
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock)
    try:
        tx = store.coordinator.start_short()
        directory.before = lambda number, step: fail_once(directory, step, WRITE)
        with pytest.raises(NotWritten):
            store.coordinator.commit(tx)
        clock.advance_s(3600)
        assert not store.coordinator.snapshot().in_progress
        assert store.coordinator.invalid_size() == 1
    finally:
        store.close()
