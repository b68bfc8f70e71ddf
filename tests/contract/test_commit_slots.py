"""Commits that begin their own transaction, known again by the slot of a client."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.outcome import Outcome
from txaware import BadRequest, Messaging, connect
from txaware.errors import (
    NotWritten,
    TransactionNotInProgress,
    TransactionTooLarge,
    TxAwareError,
    Unavailable,
)
from txaware.model.commit_slots import CommitSlot
from txaware.model.settings import Settings
from txaware.service.transfer.backup import restore
from txaware.service.write.commits_in_slots import CommitSlots
from txaware.store.slot_table import KEPT_MS, SlotRow, SlotTable

CLIENT = "0123456789abcdef" * 2
SLOT = CommitSlot(CLIENT, 3)


@contextmanager
def opened(directory: Path) -> Iterator[tuple[Messaging, CommitSlots]]:
    with connect(f"leveldb:{directory}") as messaging:
        yield messaging, slots_of(messaging)


def slots_of(messaging: Messaging) -> CommitSlots:
    service: Any = messaging._parts.service
    slots: CommitSlots = service.slots
    return slots


def test_a_commit_begins_its_transaction(tmp_path: Path) -> None:
    with opened(tmp_path) as (messaging, slots):
        pointer = slots.commit_at_once(CLIENT, 3, 1)
        assert messaging.coordinator.outcome(pointer) is Outcome.COMMITTED
        assert slots.commit_at_once(CLIENT, 3, 2) > pointer


def test_a_repeat_has_the_same_answer_in_every_life(tmp_path: Path) -> None:
    with opened(tmp_path) as (_, slots):
        pointer = slots.commit_at_once(CLIENT, 3, 7)
        assert slots.commit_at_once(CLIENT, 3, 7) == pointer
    with opened(tmp_path) as (_, slots):
        assert slots.commit_at_once(CLIENT, 3, 7) == pointer
        assert slots.settle_commit(CLIENT, 3, 7) == pointer
        with pytest.raises(TransactionNotInProgress, match="a later one has ended"):
            slots.commit_at_once(CLIENT, 3, 6)
        assert slots.commit_at_once(CLIENT, 3, 8) > pointer
        assert slots.commit_at_once(CLIENT, 4, 7) > pointer  # another slot


def test_what_was_settled_as_a_no_never_commits(tmp_path: Path) -> None:
    with opened(tmp_path) as (_, slots):
        assert slots.settle_commit(CLIENT, 3, 1) is None
        with pytest.raises(TransactionNotInProgress, match="stays so"):
            slots.commit_at_once(CLIENT, 3, 1)
    with opened(tmp_path) as (_, slots):
        with pytest.raises(TransactionNotInProgress, match="stays so"):
            slots.commit_at_once(CLIENT, 3, 1)
        assert slots.settle_commit(CLIENT, 3, 1) is None
        pointer = slots.commit_at_once(CLIENT, 3, 2)
        assert slots.settle_commit(CLIENT, 3, 2) == pointer
        with pytest.raises(TransactionNotInProgress, match="a later one has ended"):
            slots.settle_commit(CLIENT, 3, 1)


def test_a_refused_commit_stays_refused_and_its_transaction_ends(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as (messaging, slots):
        begun: list[int] = []

        def full(tx: Any, _: object) -> None:
            begun.append(tx.transaction_id)
            raise NotWritten("the disk is full")

        start = messaging.coordinator.start_short
        with pytest.raises(NotWritten):
            slots.perform(SLOT, 1, start, full)
        with pytest.raises(TransactionNotInProgress, match="stays so"):
            slots.commit_at_once(CLIENT, 3, 1)
        assert slots.settle_commit(CLIENT, 3, 1) is None
        assert messaging.coordinator.invalidate(begun[0]) is False  # it has ended


@pytest.mark.parametrize(
    "refusal", [NotWritten("the disk is full"), Unavailable("it did not answer")]
)
def test_a_no_that_was_told_is_one_in_the_next_life_too(
    tmp_path: Path, refusal: TxAwareError
) -> None:
    """A copy of a repeat, which another life takes, may come after that."""
    with opened(tmp_path) as (messaging, slots):

        def refused(_: object, __: object) -> None:
            raise refusal

        with pytest.raises(type(refusal)):
            slots.perform(SLOT, 1, messaging.coordinator.start_short, refused)
        assert slots.settle_commit(CLIENT, 3, 1) is None
    with opened(tmp_path) as (_, slots):
        with pytest.raises(TransactionNotInProgress, match="stays so"):
            slots.commit_at_once(CLIENT, 3, 1)
        assert slots.settle_commit(CLIENT, 3, 1) is None
        assert slots.commit_at_once(CLIENT, 3, 2)


@pytest.mark.parametrize("is_written", [True, False])
def test_whoever_asks_next_finds_out_about_one_in_doubt(
    tmp_path: Path, is_written: bool
) -> None:
    with opened(tmp_path) as (messaging, slots):
        coordinator: Any = messaging.coordinator
        begun: list[int] = []

        def lost(tx: Any, row: Any) -> None:
            begun.append(tx.transaction_id)
            if is_written:
                coordinator.commit_with(tx, row)
            raise Unavailable("the disk did not answer")

        with pytest.raises(Unavailable):
            slots.perform(SLOT, 1, coordinator.start_short, lost)
        if is_written:
            assert slots.commit_at_once(CLIENT, 3, 1) == begun[0]
        else:
            with pytest.raises(TransactionNotInProgress, match="stays so"):
                slots.commit_at_once(CLIENT, 3, 1)
        found = slots.settle_commit(CLIENT, 3, 1)
        assert found == (begun[0] if is_written else None)


def test_a_second_request_of_the_same_commit_waits_for_the_first(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as (messaging, slots):
        coordinator: Any = messaging.coordinator
        is_in, go_on = threading.Event(), threading.Event()
        answers: list[int] = []

        def slow(tx: Any, row: Any) -> None:
            is_in.set()
            assert go_on.wait(60)
            coordinator.commit_with(tx, row)

        def first() -> None:
            answers.append(slots.perform(SLOT, 1, coordinator.start_short, slow))

        def second() -> None:
            answers.append(slots.commit_at_once(CLIENT, 3, 1))

        threads = [threading.Thread(target=one) for one in (first, second)]
        threads[0].start()
        assert is_in.wait(60)
        threads[1].start()
        with pytest.raises(BadRequest, match="one at a time"):
            slots.commit_at_once(CLIENT, 3, 2)
        go_on.set()
        for thread in threads:
            thread.join(60)
        assert len(answers) == 2
        assert answers[0] == answers[1]


def test_a_block_that_was_open_for_too_long_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as (_, slots):
        with pytest.raises(TransactionNotInProgress, match=r"31 s.* has 30 s"):
            slots.commit_at_once(CLIENT, 3, 1, open_ms=31_000)
        with pytest.raises(TransactionNotInProgress, match=r"2 s.* has 1 s"):
            slots.commit_at_once(CLIENT, 3, 1, open_ms=2_000, timeout_s=1)
        assert slots.commit_at_once(CLIENT, 3, 1, open_ms=31_000, timeout_s=60)


def test_rows_go_two_days_after_their_commit(tmp_path: Path) -> None:
    with opened(tmp_path) as (messaging, slots):
        slots.commit_at_once(CLIENT, 3, 1)
        messaging.clean_up()
        rows = SlotTable(slots._rows._table)
        row = rows.get(SLOT)
        assert row is not None
        rows.clean_up(row.at_ms + KEPT_MS)
        assert rows.get(SLOT) == row
        rows.clean_up(row.at_ms + KEPT_MS + 1)
        assert rows.get(SLOT) is None
        assert slots.commit_at_once(CLIENT, 3, 2)  # also without its row


def test_forgotten_slots_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txaware.service.write.commits_in_slots.REMEMBERED", 2)
    with opened(tmp_path) as (_, slots):
        done = [slots.commit_at_once(CLIENT, slot, 5) for slot in range(5)]
        assert len(slots._states) == 2
        assert [slots.commit_at_once(CLIENT, slot, 5) for slot in range(5)] == done


def test_a_check_a_copy_and_a_backup_know_the_rows(tmp_path: Path) -> None:
    saved = io.BytesIO()
    with opened(tmp_path / "one") as (messaging, slots):
        pointer = slots.commit_at_once(CLIENT, 3, 1)
        assert slots.settle_commit(CLIENT, 4, 9) is None
        report = messaging.check()
        assert not report.problems
        assert report.counts["commits in slots"] == 2
        messaging.backup(saved)
    saved.seek(0)
    restore(saved, tmp_path / "restored", Settings())
    txaware.copy(f"leveldb:{tmp_path / 'one'}", f"leveldb:{tmp_path / 'copy'}")
    for place in ("one", "restored", "copy"):
        with opened(tmp_path / place) as (messaging, slots):
            assert slots.commit_at_once(CLIENT, 3, 1) == pointer
            assert slots.settle_commit(CLIENT, 4, 9) is None
            assert messaging.check().is_clean
    assert SlotRow.from_bytes(SlotRow(1, -pointer, 5).to_bytes()).committed is None


@pytest.mark.parametrize(
    ("client", "slot", "number", "what"),
    [
        ("", 0, 1, "client"),
        (CLIENT[:-1], 0, 1, "client"),
        (CLIENT[:-1] + "g", 0, 1, "client"),
        (CLIENT.upper(), 0, 1, "client"),
        (7, 0, 1, "client"),
        (CLIENT, -1, 1, "slot"),
        (CLIENT, 65536, 1, "slot"),
        (CLIENT, True, 1, "slot"),
        (CLIENT, 0, 0, "number"),
        (CLIENT, 0, 2**63, "number"),
        (CLIENT, 0, "1", "number"),
    ],
)
def test_wrong_slots_are_refused(
    tmp_path: Path, client: Any, slot: Any, number: Any, what: str
) -> None:
    with opened(tmp_path) as (_, slots):
        for ask in (slots.commit_at_once, slots.settle_commit):
            with pytest.raises(BadRequest, match=f"^{what} is "):
                ask(client, slot, number)


def test_a_store_whose_commits_carry_nothing_says_so() -> None:
    with connect("memory:") as messaging:
        for ask in (
            slots_of(messaging).commit_at_once,
            slots_of(messaging).settle_commit,
        ):
            with pytest.raises(TransactionTooLarge, match="carry nothing"):
                ask(CLIENT, 3, 1)
