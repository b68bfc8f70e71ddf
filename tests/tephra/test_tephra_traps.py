"""What Tephra and py4j get wrong by themselves; each test fails without our guard."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from coordinator.errors import (
    TransactionConflict,
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
    TransactionRefused,
    Unavailable,
)
from coordinator.tephra import TephraCoordinator
from coordinator.tephra.rules import TephraRules
from coordinator.transaction import Transaction
from tests.support.tephra_tricks import PATIENCE_S, crash, lose_answers, roll_log

pytestmark = pytest.mark.tephra

THREADS = 8
# Answers over 8 KB take 44 ms when Java waits before it sends; a few otherwise.
WITHOUT_DELAY_S = 0.03
INVALIDS_OVER_8_KB = 1200


@pytest.fixture
def own(tmp_path: Path, java: str) -> Iterator[TephraCoordinator]:
    """A Tephra for this test alone."""
    with TephraCoordinator(tmp_path) as coordinator:
        yield coordinator


def test_a_call_whose_answer_was_lost_is_not_sent_again(
    fresh: TephraRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.start_short()
    with monkeypatch.context() as patch:
        sent = lose_answers(patch, "startShort")
        with pytest.raises(Unavailable, match="not sent again"):
            fresh.start_short()
    assert sent == ["startShort"]
    assert len(fresh.start_short().in_progress) == 2


def test_a_commit_whose_answer_was_lost_is_not_sent_again_by_the_next_call_either(
    fresh: TephraRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx = fresh.start_short()
    fresh.can_commit(tx, [b"key"])
    with monkeypatch.context() as patch:
        sent = lose_answers(patch, "commit")
        with pytest.raises(Unavailable):
            fresh.commit(tx)
    with pytest.raises(TransactionOutcomeUnknown, match="may be committed already"):
        fresh.commit(tx)
    assert sent == ["commit"]
    assert not fresh.invalidate(tx)
    assert fresh.snapshot().is_visible(tx.transaction_id)


def test_answers_over_8_kb_come_without_delay_on_every_connection(
    fresh: TephraRules,
) -> None:
    invalid = [fresh.start_short() for _ in range(INVALIDS_OVER_8_KB)]
    for tx in invalid:
        fresh.invalidate(tx)
    together = threading.Barrier(THREADS, timeout=PATIENCE_S)
    fastest_s: list[float] = []

    def run() -> None:
        together.wait()
        fresh.start_short()
        took_s = [math.inf]
        give_up = time.monotonic() + PATIENCE_S
        # Each answer comes late on a connection with the delay, and some without it.
        while min(took_s) >= WITHOUT_DELAY_S and time.monotonic() < give_up:
            began = time.perf_counter()
            assert len(fresh.start_short().invalids) == INVALIDS_OVER_8_KB
            took_s.append(time.perf_counter() - began)
        fastest_s.append(min(took_s))

    run_in_threads(run)
    assert max(fastest_s) < WITHOUT_DELAY_S


def test_a_commit_that_is_the_first_edit_of_its_log_survives_a_crash(
    own: TephraCoordinator,
) -> None:
    tx = own.start_short(3600)
    own.can_commit(tx, [b"key"])
    roll_log(own)
    own.commit(tx)
    crash(own)
    assert tx.transaction_id not in own.start_short().in_progress


def test_an_invalidation_that_is_the_first_edit_of_its_log_survives_a_crash(
    own: TephraCoordinator,
) -> None:
    tx = own.start_short(3600)
    roll_log(own)
    assert own.invalidate(tx)
    crash(own)
    assert tx.transaction_id in own.start_short().invalids


def test_a_checkpoint_that_is_the_first_edit_of_its_log_survives_a_crash(
    own: TephraCoordinator,
) -> None:
    tx = own.start_short(3600)
    roll_log(own)
    pointer = own.checkpoint(tx).write_pointer
    crash(own)
    assert pointer in own.start_short().in_progress


def test_a_truncation_that_is_the_first_edit_of_its_log_survives_a_crash(
    own: TephraCoordinator,
) -> None:
    one, two = own.start_short(), own.start_short()
    for tx in (one, two):
        own.invalidate(tx)
    roll_log(own)
    assert own.truncate_invalid_tx([one.transaction_id])
    crash(own)
    assert list(own.start_short().invalids) == [two.transaction_id]
    roll_log(own)
    assert own.truncate_invalid_tx_before(two.start_ms + 1) is True
    crash(own)
    assert not own.start_short().invalids


def test_a_persisted_start_that_is_the_first_edit_of_its_log_survives_a_crash(
    own: TephraCoordinator,
) -> None:
    roll_log(own)
    tx = own.start_short(3600)
    own.persist(tx)
    crash(own)
    assert tx.transaction_id in own.start_short().in_progress


def test_commits_of_many_threads_at_the_start_of_a_log_all_survive_a_crash(
    own: TephraCoordinator,
) -> None:
    prepared = [own.start_short(3600) for _ in range(THREADS)]
    for tx in prepared:
        own.can_commit(tx, [b"%d" % tx.transaction_id])
    waiting = list(prepared)
    together = threading.Barrier(THREADS, timeout=PATIENCE_S)

    def run() -> None:
        tx = waiting.pop()
        together.wait()
        own.commit(tx)

    roll_log(own)
    run_in_threads(run)
    crash(own)
    assert not own.start_short().in_progress


def test_a_commit_after_a_refused_check_is_refused(either_tephra: TephraRules) -> None:
    loser = conflicting(either_tephra, b"a")
    with pytest.raises(TransactionConflict):
        either_tephra.can_commit(loser, [b"a"])
    with pytest.raises(TransactionRefused, match="its changes were refused"):
        either_tephra.commit(loser)
    either_tephra.abort(loser)


def test_a_commit_after_a_check_whose_answer_was_lost_is_refused(
    either_tephra: TephraRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx = either_tephra.start_short()
    with monkeypatch.context() as patch:
        lose_answers(patch, "canCommit")
        with pytest.raises(Unavailable):
            either_tephra.can_commit(tx, [b"b"])
    with pytest.raises(TransactionRefused):
        either_tephra.commit(tx)
    either_tephra.can_commit(tx, [b"b"])
    either_tephra.commit(tx)


def test_a_second_commit_after_a_conflict_at_commit_is_refused(
    either_tephra: TephraRules,
) -> None:
    winner, loser = either_tephra.start_short(), either_tephra.start_short()
    for tx in (winner, loser):
        either_tephra.can_commit(tx, [b"c"])
    either_tephra.commit(winner)
    with pytest.raises(TransactionConflict):
        either_tephra.commit(loser)
    with pytest.raises(TransactionRefused, match="refused before"):
        either_tephra.commit(loser)
    assert either_tephra.invalidate(loser)


def test_a_second_commit_of_what_has_ended_is_refused_as_the_first_was(
    either_tephra: TephraRules,
) -> None:
    tx = either_tephra.start_short()
    assert either_tephra.invalidate(tx)
    for _ in range(2):
        with pytest.raises(TransactionNotInProgress):
            either_tephra.commit(tx)


def test_an_abort_with_an_older_transaction_ends_all_checkpoints(
    either_tephra: TephraRules,
) -> None:
    tx = either_tephra.start_short()
    first = either_tephra.checkpoint(tx)
    second = either_tephra.checkpoint(first)
    either_tephra.abort(tx)
    now = either_tephra.snapshot()
    for pointer in second.pointers:
        assert pointer not in now.in_progress
        assert pointer not in now.invalids


def test_a_checkpoint_of_an_older_transaction_lists_all_checkpoints(
    either_tephra: TephraRules,
) -> None:
    tx = either_tephra.start_short()
    first = either_tephra.checkpoint(tx)
    second = either_tephra.checkpoint(tx)
    assert second.pointers == (*first.pointers, second.write_pointer)
    either_tephra.commit(tx)
    assert either_tephra.snapshot().is_visible(second.write_pointer)


def test_a_commit_with_a_wrong_write_pointer_is_visible_all_the_same(
    own: TephraCoordinator,
) -> None:
    tx = own.start_short()
    own.commit(attrs.evolve(tx, write_pointer=1))
    assert own.start_short().is_visible(tx.transaction_id)


def test_small_pointers_to_truncate_are_longs_too(either_tephra: TephraRules) -> None:
    tx = either_tephra.start_short()
    assert either_tephra.invalidate(tx)
    assert either_tephra.truncate_invalid_tx([1, 2]) is False
    assert either_tephra.truncate_invalid_tx([1, tx.transaction_id]) is True
    assert tx.transaction_id not in either_tephra.snapshot().invalids


def conflicting(coordinator: TephraRules, key: bytes) -> Transaction:
    """An open transaction that did not see a commit of the key."""
    loser, winner = coordinator.start_short(), coordinator.start_short()
    coordinator.can_commit(winner, [key])
    coordinator.commit(winner)
    return loser


def run_in_threads(run: Callable[[], None]) -> None:
    """Runs it in all threads and raises what any of them raised."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
