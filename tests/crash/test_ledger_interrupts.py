"""Ctrl-C at every place of a coordinator's calls: whatever is in progress times out."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.file_journal import FileJournal
from coordinator.errors import PreparedNotFound, TransactionRefused, Unavailable
from coordinator.resolve_outcome import settle
from coordinator.transaction import Transaction
from tests.support.doubles import Clock
from tests.support.fake_disk import FakeDisk
from tests.support.interrupts import elsewhere, interrupted_at, places

Call = Callable[[EmbeddedCoordinator, Transaction], object]

CALLS: dict[str, Call] = {
    "start": lambda coordinator, _: coordinator.start_short(timeout_s=10),
    "start long": lambda coordinator, _: coordinator.start_long(),
    "start of another": lambda coordinator, _: coordinator.start_short(
        timeout_s=10, outlives_process=True
    ),
    "commit": lambda coordinator, tx: coordinator.commit(tx),
    "abort": lambda coordinator, tx: coordinator.abort(tx),
    "invalidate": lambda coordinator, tx: coordinator.invalidate(tx),
    "checkpoint": lambda coordinator, tx: coordinator.checkpoint(tx),
    "snapshot": lambda coordinator, _: coordinator.snapshot(),
}


class Here:
    """A coordinator with a transaction, and another one that is open meanwhile."""

    def __init__(self, *, durable: bool) -> None:
        stand_in: Any = FakeDisk()
        journal = FileJournal(stand_in) if durable else None
        self.clock = Clock()
        self.coordinator = EmbeddedCoordinator(journal, clock_ms=self.clock)
        self.other = self.coordinator.start_short(timeout_s=100)
        self.tx = self.coordinator.start_short(timeout_s=10)
        self.coordinator.can_commit(self.tx, [b"k"])

    def check(self) -> None:
        """Nothing is in progress but what will time out."""
        snapshot = self.coordinator.snapshot()
        open_now = self.coordinator.open_transactions()
        pointers = [pointer for entry in open_now for pointer in entry.pointers]
        assert list(snapshot.in_progress) == sorted(pointers)
        assert snapshot.first_short_in_progress == self.other.transaction_id


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("durable", [False, True])
def test_an_interrupt_at_any_place_leaves_nothing_in_progress_for_ever(
    name: str, durable: bool
) -> None:
    answers: set[bool] = set()

    def interrupt(place: int) -> bool:
        here = Here(durable=durable)
        coordinator, tx = here.coordinator, here.tx
        given: list[object] = []

        def call() -> None:
            given.append(CALLS[name](coordinator, tx))

        found = interrupted_at(place, call)
        elsewhere(here.check)
        if name.startswith("start") and not given:
            assert list(coordinator.snapshot().in_progress) == [
                here.other.transaction_id,
                tx.transaction_id,
            ]
        other = coordinator.start_short()
        elsewhere(partial(coordinator.can_commit, other, [b"other"]))
        elsewhere(partial(coordinator.commit, other))
        if name == "commit":
            committed = settle(coordinator, tx.transaction_id, open_for_s=lambda: 0)
            assert coordinator.snapshot().is_visible(tx.transaction_id) is committed
            answers.add(committed)
            conflicting = here.coordinator.start_short()
            coordinator.can_commit(conflicting, [b"k"])
            coordinator.abort(conflicting)
        here.clock.advance_s(11)
        elsewhere(here.check)
        open_now = coordinator.open_transactions()
        assert {entry.transaction_id for entry in open_now} <= {
            here.other.transaction_id,
            *(one.transaction_id for one in given if name == "start long"),  # type: ignore[attr-defined]
        }
        elsewhere(coordinator.close)
        return found

    assert places(interrupt) > 10
    assert name != "commit" or answers == {True, False}


@pytest.mark.parametrize("end", ["commit_prepared", "rollback_prepared"])
@pytest.mark.parametrize("durable", [False, True])
def test_a_name_ends_a_transaction_wherever_its_prepare_or_end_was_interrupted(
    end: str, durable: bool
) -> None:
    prepared: set[int] = set()

    def interrupt(place: int) -> bool:
        here = Here(durable=durable)
        coordinator, tx = here.coordinator, here.tx
        ends = getattr(coordinator, end)

        def call() -> None:
            coordinator.prepare(tx, "p")
            ends("p")

        found = interrupted_at(place, call)
        listed = elsewhere(coordinator.prepared)
        prepared.add(len(listed))
        for one in listed:
            with suppress(PreparedNotFound):  # the interrupted end is there by now
                ends(one.name)
            assert not elsewhere(coordinator.prepared), place
            snapshot = coordinator.snapshot()
            is_visible = snapshot.is_visible(tx.transaction_id)
            assert is_visible is (end == "commit_prepared"), place
        here.clock.advance_s(11)
        elsewhere(here.check)
        coordinator.close()
        return found

    assert places(interrupt) > 10
    assert prepared == {0, 1}


@pytest.mark.parametrize("durable", [False, True])
def test_an_interrupt_at_any_place_loses_no_time_out(durable: bool) -> None:
    def interrupt(place: int) -> bool:
        here = Here(durable=durable)
        coordinator = here.coordinator
        more = [
            coordinator.start_short(timeout_s=timeout_s, outlives_process=outlives)
            for timeout_s in (9, 9, 10)
            for outlives in (False, True)
        ]
        here.clock.advance_s(11)
        found = interrupted_at(place, coordinator.snapshot)
        elsewhere(here.check)
        after = elsewhere(coordinator.snapshot)
        assert list(after.in_progress) == [here.other.transaction_id]
        ended = {here.tx.transaction_id, *(tx.transaction_id for tx in more)}
        assert ended == set(after.invalids)
        elsewhere(coordinator.close)
        return found

    assert places(interrupt) > 30


@pytest.mark.parametrize("durable", [False, True])
def test_a_close_that_was_interrupted_is_finished_by_the_next(durable: bool) -> None:
    def interrupt(place: int) -> bool:
        here = Here(durable=durable)
        found = interrupted_at(place, here.coordinator.close)
        elsewhere(here.coordinator.close)
        assert here.coordinator.status() == "closed"
        if durable:
            journal: Any = here.coordinator._journal
            assert not journal._leader.is_alive()
        with pytest.raises((TransactionRefused, Unavailable)):
            here.coordinator.snapshot()
        return found

    assert places(interrupt) > 3
