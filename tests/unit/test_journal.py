"""The file journal: batches, notes, torn ends, full disks, and writing anew."""

import itertools
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from coordinator.embedded.file_journal import NAME, FileJournal
from coordinator.embedded.records import (
    Aborted,
    Checkpointed,
    Committed,
    Invalidated,
    Reached,
    Started,
)
from coordinator.errors import JournalCorrupted, NotWritten, Unavailable
from tests.support.fake_disk import FakeDisk, full_disk
from tests.support.forks import forks_with_threads


def opened(disk: FakeDisk, **options: Any) -> FileJournal:
    stand_in: Any = disk
    return FileJournal(stand_in, **options)


def reopened(disk: FakeDisk) -> FileJournal:
    """What the next process finds after a power cut that kept only what was synced."""
    return opened(next(disk.after_a_crash()))


def fail_at(disk: FakeDisk, *names: str, error: Exception | None = None) -> None:
    def before(_: int, name: str) -> None:
        if name in names:
            raise error or full_disk()

    disk.before = before


def test_what_was_appended_is_found_again(tmp_path: Path) -> None:
    journal = FileJournal.open(tmp_path)
    journal.append(Reached(5, 9), Invalidated(7, [6, 8]))
    journal.close()
    again = FileJournal.open(tmp_path)
    assert (again.history.first, again.history.highest) == (5, 9)
    assert again.history.invalid == {6: 7, 8: 7}
    again.close()


def test_a_directory_is_open_once(tmp_path: Path) -> None:
    journal = FileJournal.open(tmp_path)
    with pytest.raises(Unavailable, match="is in use by process"):
        FileJournal.open(tmp_path)
    journal.close()
    FileJournal.open(tmp_path).close()


@forks_with_threads
def test_a_child_that_was_forked_cannot_write_into_its_parents_journal(
    tmp_path: Path,
) -> None:
    journal = FileJournal.open(tmp_path)
    child = os.fork()
    if not child:
        try:
            journal.append(Invalidated(1, [7]))
        except Unavailable as error:
            os._exit(0 if "which forked" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    journal.append(Invalidated(1, [8]))
    journal.close()
    again = FileJournal.open(tmp_path)
    assert list(again.history.invalid) == [8]
    again.close()


def test_notes_go_into_the_next_batch_and_not_before() -> None:
    disk = FakeDisk()
    journal = opened(disk)
    journal.note(3, Started(3, 100))
    assert not reopened(disk).history.open
    journal.append(Committed(2))
    assert list(reopened(disk).history.open) == [3]


def test_sync_writes_the_notes_of_that_transaction_once() -> None:
    disk = FakeDisk()
    journal = opened(disk)
    journal.note(3, Started(3, 100))
    journal.sync(4)
    assert not reopened(disk).history.open
    journal.sync(3)
    assert list(reopened(disk).history.open) == [3]
    operations = disk.operations
    journal.sync(3)
    assert disk.operations == operations


def test_an_abort_drops_a_start_that_no_batch_carried_yet() -> None:
    disk = FakeDisk()
    journal = opened(disk)
    journal.note(3, Started(3, 100))
    journal.note(3, Checkpointed(3, 4))
    journal.note(3, Aborted(3))
    journal.note(5, Started(5, 100))
    journal.append()
    assert reopened(disk).history.highest == 5
    journal.note(5, Aborted(5))
    journal.append()
    assert not reopened(disk).history.open


def test_notes_of_a_failed_batch_are_carried_by_the_next_one() -> None:
    disk = FakeDisk()
    journal = opened(disk)
    journal.note(3, Started(3, 100))
    fail_at(disk, "write")
    with pytest.raises(NotWritten, match="No space left on device"):
        journal.append(Committed(2))
    disk.before = lambda number, name: None
    journal.note(3, Checkpointed(3, 4))
    journal.append()
    history = reopened(disk).history
    assert list(history.open) == [3]
    assert {one: [*of] for one, of in history.checkpoints.items()} == {3: [4]}


@pytest.mark.parametrize("at", ["write", "sync"])
def test_a_batch_that_failed_is_not_written_and_the_next_one_works(at: str) -> None:
    disk = FakeDisk()
    journal = opened(disk)
    fail_at(disk, at)
    with pytest.raises(NotWritten, match="could not be written"):
        journal.append(Invalidated(1, [7]))
    assert "could not be written" in journal.status()
    disk.before = lambda number, name: None
    journal.append(Invalidated(1, [8]))
    assert journal.status() == "OK"
    assert list(reopened(disk).history.invalid) == [8]
    assert list(journal.history.invalid) == [8]


def test_a_batch_that_cannot_be_cut_off_is_unknown_until_it_can() -> None:
    disk = FakeDisk()
    journal = opened(disk)
    journal.note(7, Started(7, 100))
    journal.sync(7)
    fail_at(disk, "sync", "truncate")
    with pytest.raises(Unavailable, match="nor what was written be cut off") as caught:
        journal.append(Committed(7))
    assert not isinstance(caught.value, NotWritten)
    with pytest.raises(Unavailable):
        journal.holds_commit(7)
    disk.before = lambda number, name: None
    assert not journal.holds_commit(7)
    journal.append(Committed(7))
    assert journal.holds_commit(7)
    assert not reopened(disk).history.open


def test_a_torn_end_is_cut_off_and_written_over(tmp_path: Path) -> None:
    journal = FileJournal.open(tmp_path)
    journal.append(Invalidated(1, [7]))
    journal.close()
    file = tmp_path / NAME
    whole = file.read_bytes()
    file.write_bytes(whole + b"\xf5txB torn")
    again = FileJournal.open(tmp_path)
    assert file.read_bytes() == whole
    again.append(Invalidated(1, [8]))
    again.close()
    once_more = FileJournal.open(tmp_path)
    assert list(once_more.history.invalid) == [7, 8]
    once_more.close()


def test_damage_in_the_middle_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    journal = FileJournal.open(tmp_path)
    for pointer in (7, 8, 9):
        journal.append(Invalidated(1, [pointer]))
    journal.close()
    file = tmp_path / NAME
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(JournalCorrupted, match=r"journal is damaged at byte \d+"):
            FileJournal.open(tmp_path)
        assert file.read_bytes() == damaged


def test_a_journal_that_grew_is_written_anew_while_it_runs() -> None:
    disk = FakeDisk()
    journal = opened(disk, compact_bytes=2000)
    sizes = []
    for pointer in range(1, 1000):
        journal.note(pointer, Started(pointer, 100))
        journal.append(Committed(pointer, (b"key",)))
        sizes.append(len(disk.names[NAME].data))
    assert max(sizes) < 70_000
    assert any(later < earlier for earlier, later in itertools.pairwise(sizes))
    assert not reopened(disk).history.open
    assert reopened(disk).history.highest == 999


def test_a_journal_that_cannot_be_written_anew_serves_on_and_says_so() -> None:
    disk = FakeDisk()
    journal = opened(disk, compact_bytes=500)
    fail_at(disk, "replace")
    for pointer in range(1, 60):
        journal.append(Invalidated(1, [pointer]))
    assert "cannot be written anew" in journal.status()
    disk.before = lambda number, name: None
    assert len(reopened(disk).history.invalid) == 59
    for pointer in range(60, 120):
        journal.append(Invalidated(1, [pointer]))
    assert len(reopened(disk).history.invalid) == 119


def test_threads_that_append_at_one_moment_share_a_sync(tmp_path: Path) -> None:
    disk = FakeDisk()
    journal = opened(disk)
    first_writes, all_queued = threading.Event(), threading.Event()
    syncs: list[int] = []

    def before(number: int, name: str) -> None:
        if name == "sync":
            syncs.append(number)
            first_writes.set()
            assert all_queued.wait(10)

    disk.before = before
    threads = [
        threading.Thread(target=journal.append, args=(Invalidated(1, [n]),))
        for n in range(1, 17)
    ]
    threads[0].start()
    assert first_writes.wait(10)
    for thread in threads[1:]:
        thread.start()
    while len(journal._forming.records) < 15:
        pass
    all_queued.set()
    for thread in threads:
        thread.join(10)
    assert len(syncs) == 2
    assert len(reopened(disk).history.invalid) == 16


def test_all_threads_of_a_failed_batch_get_the_error() -> None:
    disk = FakeDisk()
    journal = opened(disk)
    in_sync, go_on = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def before(_: int, name: str) -> None:
        if name == "sync":
            in_sync.set()
            assert go_on.wait(10)
            raise full_disk()

    def append(number: int) -> None:
        try:
            journal.append(Invalidated(1, [number]))
        except NotWritten as error:
            failures.append(error)

    disk.before = before
    threads = [threading.Thread(target=append, args=(n,)) for n in range(1, 9)]
    threads[0].start()
    assert in_sync.wait(10)
    for thread in threads[1:]:
        thread.start()
    while len(journal._forming.records) < 7:
        pass
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(failures) == 8
    assert len(set(map(id, failures))) == 8
    assert not reopened(disk).history.invalid
