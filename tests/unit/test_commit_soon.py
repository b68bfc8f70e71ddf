"""Commits of an event loop: none waits, and each is told when it is on disk."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.group_commit import GroupCommit
from coordinator.errors import (
    NotWritten,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionRefused,
    Unavailable,
)
from coordinator.interfaces import JoinedCargo
from coordinator.outcome import Outcome
from coordinator.transaction import Transaction
from tests.support.gated_destination import PATIENCE_S, GatedDestination, Told


@pytest.fixture
def destination() -> GatedDestination:
    return GatedDestination()


@pytest.fixture
def coordinator(destination: GatedDestination) -> Iterator[EmbeddedCoordinator]:
    destination.go_on.set()
    coordinator = EmbeddedCoordinator(GroupCommit(destination))
    coordinator.start_short()  # the first one reserves pointers
    destination.go_on.clear()
    destination.came.clear()
    yield coordinator
    destination.go_on.set()
    coordinator.close()


def sees(coordinator: EmbeddedCoordinator, tx: Transaction) -> bool:
    return coordinator.snapshot().is_visible(tx.transaction_id)


def test_it_is_committed_once_it_is_on_disk(
    coordinator: EmbeddedCoordinator, destination: GatedDestination
) -> None:
    tx, told = coordinator.start_short(), Told()
    assert coordinator.commit_soon(tx, None, told)
    assert not sees(coordinator, tx)
    assert told.errors == []
    destination.go_on.set()
    told.wait()
    assert told.errors == [None]
    assert told.thread is not threading.current_thread()
    assert sees(coordinator, tx)


def test_many_share_a_batch(
    coordinator: EmbeddedCoordinator, destination: GatedDestination
) -> None:
    first = Told()
    assert coordinator.commit_soon(coordinator.start_short(), None, first)
    assert destination.came.wait(60)  # the batch of the first is being written
    all_told = [Told() for _ in range(9)]
    for told in all_told:
        assert coordinator.commit_soon(coordinator.start_short(), None, told)
    before = len(destination.batches)
    destination.go_on.set()
    for told in [first, *all_told]:
        told.wait()
    assert len(destination.batches) == before + 2


def test_changed_keys_are_checked(
    coordinator: EmbeddedCoordinator, destination: GatedDestination
) -> None:
    destination.go_on.set()
    first, second, told = coordinator.start_short(), coordinator.start_short(), Told()
    assert coordinator.commit_soon(first, None, told, changes=[b"key"])
    told.wait()
    with pytest.raises(TransactionConflict):
        coordinator.commit_soon(second, None, told, changes=[b"key"])
    with pytest.raises(TransactionNotInProgress):
        coordinator.commit_soon(first, None, told)
    assert told.errors == [None]


def test_it_waits_for_nobody(coordinator: EmbeddedCoordinator) -> None:
    writing, ending, told = coordinator.start_short(), coordinator.start_short(), Told()
    assert coordinator.commit_soon(ending, None, told)
    assert not coordinator.commit_soon(ending, None, told)
    with ThreadPoolExecutor(1) as writer:
        enter, leave = coordinator.barrier.enter, coordinator.barrier.leave
        entry = writer.submit(enter, writing.transaction_id).result()
        assert not coordinator.commit_soon(writing, None, told)
        writer.submit(leave, entry).result()
    assert coordinator.commit_soon(writing, None, told)


def test_writes_of_an_event_loop_hold_a_commit_back_each(
    coordinator: EmbeddedCoordinator, destination: GatedDestination
) -> None:
    destination.go_on.set()
    first, second, told = coordinator.start_short(), coordinator.start_short(), Told()
    barrier, writes = coordinator.barrier, [object(), object(), object()]
    entries = [
        barrier.enter(tx.transaction_id, write)
        for tx, write in zip((first, first, second), writes, strict=True)
    ]
    barrier.leave(entries[0], writes[0])
    assert not coordinator.commit_soon(first, None, told)
    assert not coordinator.commit_soon(second, None, told)
    barrier.leave(entries[1], writes[1])
    assert coordinator.commit_soon(first, None, told)
    told.wait()
    assert barrier.is_writing(second.transaction_id)
    barrier.leave(entries[2], writes[2])
    assert not barrier.inside


def test_a_disk_that_fails_leaves_it_open(
    coordinator: EmbeddedCoordinator, destination: GatedDestination
) -> None:
    destination.failure = NotWritten("full")
    destination.go_on.set()
    tx, told = coordinator.start_short(), Told()
    assert coordinator.commit_soon(tx, None, told)
    told.wait()
    assert isinstance(told.errors[0], NotWritten)
    assert not sees(coordinator, tx)
    destination.failure = None
    again = Told()
    assert coordinator.commit_soon(tx, None, again)
    again.wait()
    assert sees(coordinator, tx)


def test_a_copy_of_a_commit_that_was_not_written_is_refused_as_that_was(
    coordinator: EmbeddedCoordinator, destination: GatedDestination
) -> None:
    """It waits for the end of the first, and comes before its program aborts."""
    tx, told = coordinator.start_short(outlives_process=True), Told()

    def ended(error: Unavailable | None) -> None:
        destination.failure = None  # before the next batch
        told(error)

    destination.failure = NotWritten("full")
    assert coordinator.commit_soon(tx, None, ended, changes=[b"key"])
    assert destination.came.wait(PATIENCE_S)
    with ThreadPoolExecutor(1) as copying:
        copy = copying.submit(coordinator.commit, tx)
        destination.go_on.set()
        told.wait()
        with pytest.raises(TransactionRefused):
            copy.result(PATIENCE_S)
    for changes in (None, [b"key"]):
        with pytest.raises(TransactionRefused, match="could not be written before"):
            coordinator.commit_soon(tx, None, told, changes=changes)
    with pytest.raises(TransactionRefused, match="could not be written before"):
        coordinator.can_commit(tx, [])
    coordinator.abort(tx)
    assert coordinator.outcome(tx) is Outcome.ROLLED_BACK


def test_a_copy_of_a_commit_that_met_a_conflict_meets_it_again(
    coordinator: EmbeddedCoordinator, destination: GatedDestination
) -> None:
    """The other one does not commit after all, as the disk is full."""
    other = coordinator.start_short()
    tx, told = coordinator.start_short(outlives_process=True), Told()
    assert coordinator.commit_soon(other, None, told, changes=[b"key"])
    assert destination.came.wait(PATIENCE_S)
    with pytest.raises(TransactionConflict):
        coordinator.commit_soon(tx, None, Told(), changes=[b"key"])
    destination.failure = NotWritten("full")
    destination.go_on.set()
    told.wait()
    assert isinstance(told.errors[0], NotWritten)
    destination.failure = None
    with pytest.raises(TransactionConflict):
        coordinator.commit_soon(tx, None, Told(), changes=[b"key"])
    coordinator.can_commit(tx, [b"another key"])


def test_a_disk_that_may_have_it_leaves_it_undecided(
    coordinator: EmbeddedCoordinator, destination: GatedDestination
) -> None:
    destination.failure, destination.broken = Unavailable("no answer"), True
    destination.go_on.set()
    tx, told = coordinator.start_short(), Told()
    assert coordinator.commit_soon(tx, None, told)
    told.wait()
    assert isinstance(told.errors[0], Unavailable)
    assert not isinstance(told.errors[0], NotWritten)
    assert not coordinator.commit_soon(tx, None, told)
    destination.failure, destination.broken = None, False
    assert not coordinator.invalidate(tx)  # the disk has it after all
    assert sees(coordinator, tx)


def test_a_step_that_was_interrupted_is_ended_before_a_commit_is_looked_at(
    coordinator: EmbeddedCoordinator, destination: GatedDestination
) -> None:
    """The step may have been the end of that transaction."""
    destination.go_on.set()
    tx, steps = coordinator.start_short(), list[str]()
    coordinator.abort(tx)
    coordinator._ledger.unfinished_step = lambda: steps.append("ended")
    with pytest.raises(TransactionNotInProgress):
        coordinator.commit_soon(tx, None, Told())
    assert steps == ["ended"]


def test_a_step_that_was_interrupted_is_ended_before_the_next_decision(
    coordinator: EmbeddedCoordinator,
) -> None:
    steps = list[str]()
    coordinator._ledger.unfinished_step = lambda: steps.append("ended")
    tx = coordinator.start_short()
    assert steps == ["ended"]
    coordinator._ledger.unfinished_step = lambda: steps.append("and the next one")
    coordinator.abort(tx)
    assert steps == ["ended", "and the next one"]


def test_a_step_that_was_interrupted_is_ended_before_a_commit_that_carries_rows(
    coordinator: EmbeddedCoordinator, destination: GatedDestination
) -> None:
    destination.go_on.set()
    tx, steps = coordinator.start_short(), list[str]()
    coordinator._ledger.unfinished_step = lambda: steps.append("ended")
    coordinator.commit_with(tx, JoinedCargo())
    assert steps == ["ended"]


def test_a_step_that_was_interrupted_is_ended_before_a_commit_that_is_on_disk_counts(
    coordinator: EmbeddedCoordinator, destination: GatedDestination
) -> None:
    tx, told, steps = coordinator.start_short(), Told(), list[bool]()
    assert coordinator.commit_soon(tx, None, told)
    open_now = coordinator._ledger.open.by_id
    coordinator._ledger.unfinished_step = lambda: steps.append(
        tx.transaction_id in open_now
    )
    destination.go_on.set()
    told.wait()
    assert steps == [True]
