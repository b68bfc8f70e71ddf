"""What every coordinator promises, whoever decides and however far away."""

import itertools
import time
import uuid

import attrs
import pytest

from coordinator.codec import decode, encode
from coordinator.context import transaction
from coordinator.errors import (
    BadRequest,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionRefused,
    TruncateRefused,
)
from coordinator.interfaces import Coordinator
from coordinator.outcome import Outcome
from coordinator.transaction import (
    NO_POINTER,
    Transaction,
    TransactionType,
    VisibilityLevel,
)
from tests.support.concurrency import in_threads
from tests.support.coordinators import commit_changes
from tests.support.doubles import Recorder


@pytest.fixture
def key() -> bytes:
    """A key of this test alone: some coordinators serve many tests."""
    return uuid.uuid4().bytes


def test_a_new_transaction_writes_with_its_id_and_is_its_own_first(
    coordinator: Coordinator,
) -> None:
    before_ms = time.time_ns() // 1_000_000
    tx = coordinator.start_short()
    assert tx.transaction_id == tx.write_pointer
    assert tx.read_pointer < tx.transaction_id
    assert tx.type is TransactionType.SHORT
    assert tx.visibility_level is VisibilityLevel.SNAPSHOT
    assert not tx.checkpoint_write_pointers
    assert tx.is_visible(tx.transaction_id)
    assert tx.transaction_id not in tx.in_progress
    assert -60_000 < tx.start_ms - before_ms < 60_000
    coordinator.abort(tx)


def test_ids_rise_and_others_see_it_in_progress_until_it_ends(
    coordinator: Coordinator,
) -> None:
    one, two = coordinator.start_short(), coordinator.start_short()
    assert one.transaction_id < two.transaction_id
    assert one.transaction_id in two.in_progress
    assert not two.is_visible(one.transaction_id)
    assert two.first_short_in_progress <= one.transaction_id
    commit_changes(coordinator, one)
    assert not two.is_visible(one.transaction_id)
    assert coordinator.snapshot().is_visible(one.transaction_id)
    assert not coordinator.snapshot().is_visible(two.transaction_id)
    coordinator.abort(two)


def test_two_that_changed_the_same_key_conflict_at_can_commit(
    coordinator: Coordinator, key: bytes
) -> None:
    one, two = coordinator.start_short(), coordinator.start_short()
    commit_changes(coordinator, one, key, b"a")
    with pytest.raises(TransactionConflict, match=str(two.transaction_id)):
        coordinator.can_commit(two, [b"b" + key, key])
    coordinator.abort(two)
    three = coordinator.start_short()
    commit_changes(coordinator, three, key)


def test_two_that_both_passed_can_commit_conflict_at_commit(
    coordinator: Coordinator, key: bytes
) -> None:
    one, two = coordinator.start_short(), coordinator.start_short()
    coordinator.can_commit(one, [key])
    coordinator.can_commit(two, [key])
    coordinator.commit(one)
    with pytest.raises(TransactionConflict):
        coordinator.commit(two)
    with pytest.raises(TransactionRefused):
        coordinator.commit(two)
    coordinator.abort(two)
    assert coordinator.snapshot().is_visible(one.transaction_id)


def test_a_commit_after_a_refused_can_commit_is_refused(
    coordinator: Coordinator, key: bytes
) -> None:
    one, two = coordinator.start_short(), coordinator.start_short()
    commit_changes(coordinator, one, key)
    with pytest.raises(TransactionConflict):
        coordinator.can_commit(two, [key])
    with pytest.raises(TransactionRefused):
        coordinator.commit(two)
    assert two.transaction_id in coordinator.snapshot().in_progress
    coordinator.can_commit(two, [b"other" + key])
    coordinator.commit(two)
    assert coordinator.snapshot().is_visible(two.transaction_id)


def test_keys_of_different_transactions_do_not_conflict_when_all_differ(
    coordinator: Coordinator, key: bytes
) -> None:
    one, two = coordinator.start_short(), coordinator.start_short()
    commit_changes(coordinator, one, key + b"1", b"")
    commit_changes(coordinator, two, key + b"2")


def test_a_change_set_of_a_thousand_keys_is_checked_whole(
    coordinator: Coordinator, key: bytes
) -> None:
    one, two = coordinator.start_short(), coordinator.start_short()
    many = [key + number.to_bytes(2, "big") for number in range(1000)]
    commit_changes(coordinator, one, *many)
    with pytest.raises(TransactionConflict):
        coordinator.can_commit(two, [many[-1]])
    coordinator.abort(two)


def test_what_was_aborted_conflicts_with_nobody(
    coordinator: Coordinator, key: bytes
) -> None:
    one, two = coordinator.start_short(), coordinator.start_short()
    coordinator.can_commit(one, [key])
    coordinator.abort(one)
    commit_changes(coordinator, two, key)
    assert one.transaction_id not in coordinator.snapshot().in_progress


def test_an_ended_transaction_is_refused_everywhere(coordinator: Coordinator) -> None:
    committed, aborted, invalid = (coordinator.start_short() for _ in range(3))
    commit_changes(coordinator, committed)
    coordinator.abort(aborted)
    coordinator.invalidate(invalid)
    for tx in (committed, aborted, invalid):
        for call in (coordinator.commit, coordinator.checkpoint):
            with pytest.raises(TransactionNotInProgress):
                call(tx)
        with pytest.raises(TransactionNotInProgress):
            coordinator.can_commit(tx, [b"k"])


def test_ending_twice_changes_nothing(coordinator: Coordinator) -> None:
    tx = coordinator.start_short()
    commit_changes(coordinator, tx)
    coordinator.abort(tx)
    assert coordinator.invalidate(tx) is False
    assert coordinator.snapshot().is_visible(tx.transaction_id)


def test_invalidate_hides_a_transaction_for_ever_and_answers_once(
    coordinator: Coordinator,
) -> None:
    size = coordinator.invalid_size()
    tx = coordinator.start_short()
    assert coordinator.invalidate(tx.transaction_id) is True
    assert coordinator.invalidate(tx) is False
    snapshot = coordinator.snapshot()
    assert tx.transaction_id in snapshot.invalids
    assert tx.transaction_id not in snapshot.in_progress
    assert not snapshot.is_visible(tx.transaction_id)
    assert coordinator.invalid_size() == size + 1


def test_a_checkpoint_adds_a_pointer_that_ends_with_the_transaction(
    coordinator: Coordinator,
) -> None:
    tx = coordinator.start_short()
    once = coordinator.checkpoint(tx)
    twice = coordinator.checkpoint(once)
    assert twice.transaction_id == tx.transaction_id
    assert list(twice.checkpoint_write_pointers) == [
        once.write_pointer,
        twice.write_pointer,
    ]
    assert tx.write_pointer < once.write_pointer < twice.write_pointer
    assert (twice.read_pointer, twice.in_progress) == (tx.read_pointer, tx.in_progress)
    seen = coordinator.snapshot()
    assert all(pointer in seen.in_progress for pointer in twice.pointers)
    hidden = attrs.evolve(
        twice, visibility_level=VisibilityLevel.SNAPSHOT_EXCLUDE_CURRENT
    )
    assert hidden.is_visible(once.write_pointer)
    assert not hidden.is_visible(twice.write_pointer)
    commit_changes(coordinator, twice)
    assert all(coordinator.snapshot().is_visible(p) for p in twice.pointers)


@pytest.mark.parametrize("latest", [True, False])
def test_an_abort_leaves_no_checkpoint_behind(
    coordinator: Coordinator, latest: bool
) -> None:
    tx = coordinator.start_short()
    checkpointed = coordinator.checkpoint(coordinator.checkpoint(tx))
    coordinator.abort(checkpointed if latest else tx)
    in_progress = coordinator.snapshot().in_progress
    assert not any(pointer in in_progress for pointer in checkpointed.pointers)


def test_an_invalidated_transaction_takes_its_checkpoints_along(
    coordinator: Coordinator,
) -> None:
    tx = coordinator.checkpoint(coordinator.start_short())
    assert coordinator.invalidate(tx.transaction_id) is True
    invalids = coordinator.snapshot().invalids
    assert all(pointer in invalids for pointer in tx.pointers)


def test_a_long_transaction_is_no_first_short_and_an_abort_invalidates_it(
    coordinator: Coordinator,
) -> None:
    long = coordinator.start_long()
    assert long.type is TransactionType.LONG
    snapshot = coordinator.snapshot()
    assert long.transaction_id in snapshot.in_progress
    assert snapshot.first_short_in_progress == NO_POINTER
    coordinator.abort(long)
    assert long.transaction_id in coordinator.snapshot().invalids


def test_a_long_transaction_commits(coordinator: Coordinator, key: bytes) -> None:
    long = coordinator.start_long()
    commit_changes(coordinator, long, key)
    assert coordinator.snapshot().is_visible(long.transaction_id)


def test_a_snapshot_needs_no_end_and_its_id_is_nobody_elses(
    coordinator: Coordinator,
) -> None:
    tx = coordinator.start_short()
    one, two = coordinator.snapshot(), coordinator.snapshot()
    assert tx.transaction_id < one.transaction_id
    later = coordinator.start_short()
    ids = {tx.transaction_id, one.transaction_id, two.transaction_id}
    assert later.transaction_id not in ids
    assert one.transaction_id not in later.in_progress
    for open_one in (tx, later):
        coordinator.abort(open_one)


def test_truncated_pointers_are_forgotten(coordinator: Coordinator) -> None:
    kept, gone = coordinator.start_short(), coordinator.start_short()
    for tx in (kept, gone):
        coordinator.invalidate(tx)
    assert coordinator.truncate_invalid_tx([gone.transaction_id]) is True
    assert coordinator.truncate_invalid_tx([gone.transaction_id]) is False
    assert coordinator.truncate_invalid_tx([]) is False
    invalids = coordinator.snapshot().invalids
    assert kept.transaction_id in invalids
    assert gone.transaction_id not in invalids


def test_truncating_by_time_is_refused_while_one_that_old_is_open(
    coordinator: Coordinator,
) -> None:
    invalid, holding = coordinator.start_short(), coordinator.start_short()
    coordinator.invalidate(invalid)
    later_ms = holding.start_ms + 1
    with pytest.raises(TruncateRefused):
        coordinator.truncate_invalid_tx_before(later_ms)
    assert invalid.transaction_id in coordinator.snapshot().invalids
    commit_changes(coordinator, holding)
    assert coordinator.truncate_invalid_tx_before(later_ms) is True
    assert invalid.transaction_id not in coordinator.snapshot().invalids


def test_what_became_of_a_pointer_is_answered(
    coordinator: Coordinator, key: bytes
) -> None:
    """Each of a transaction's pointers has its outcome, a checkpoint's too."""
    ends: dict[Outcome, list[int]] = {outcome: [] for outcome in Outcome}
    for end in ("commit", "abort", "invalidate", "open"):
        tx = coordinator.checkpoint(coordinator.start_short())
        if end == "commit":
            commit_changes(coordinator, tx, key)
            ends[Outcome.COMMITTED] += tx.pointers
        elif end == "open":
            ends[Outcome.IN_PROGRESS] += tx.pointers
        else:
            getattr(coordinator, end)(tx)
            ends[Outcome.ROLLED_BACK] += tx.pointers
    ends[Outcome.FORGOTTEN] += [0, 1, tx.transaction_id + 10**15]
    for outcome, pointers in ends.items():
        assert {coordinator.outcome(pointer) for pointer in pointers} == {outcome}
    assert coordinator.outcome(tx) is Outcome.IN_PROGRESS
    coordinator.abort(tx)
    assert coordinator.outcome(tx) is Outcome.ROLLED_BACK
    for wrong in (-1, 2**63, "7", True):
        with pytest.raises(BadRequest):
            coordinator.outcome(wrong)  # type: ignore[arg-type]


def test_the_outcome_of_what_was_truncated_is_forgotten(
    coordinator: Coordinator,
) -> None:
    tx = coordinator.start_short()
    coordinator.invalidate(tx)
    assert coordinator.outcome(tx) is Outcome.ROLLED_BACK
    assert coordinator.truncate_invalid_tx(tx.pointers)
    assert coordinator.outcome(tx) is Outcome.FORGOTTEN


@pytest.mark.parametrize("timeout_s", [0, -1, 2**31])
def test_a_time_out_out_of_range_is_a_bad_request(
    coordinator: Coordinator, timeout_s: float
) -> None:
    in_progress = coordinator.snapshot().in_progress
    with pytest.raises(BadRequest):
        coordinator.start_short(timeout_s)
    assert coordinator.snapshot().in_progress == in_progress


def test_a_transaction_that_is_open_too_long_becomes_invalid(
    coordinator: Coordinator,
) -> None:
    tx = coordinator.start_short(timeout_s=1)
    deadline = time.monotonic() + 20
    while tx.transaction_id not in coordinator.snapshot().invalids:
        assert time.monotonic() < deadline, "it was never timed out"
    with pytest.raises(TransactionNotInProgress):
        coordinator.commit(tx)
    assert coordinator.invalidate(tx) is False


def test_status_is_ok_and_persist_returns(coordinator: Coordinator) -> None:
    assert coordinator.status() == "OK"
    tx = coordinator.checkpoint(coordinator.start_short())
    coordinator.persist(tx)
    coordinator.abort(tx)


def test_a_transaction_survives_being_sent_as_bytes(coordinator: Coordinator) -> None:
    invalid, open_one = coordinator.start_short(), coordinator.start_short()
    coordinator.invalidate(invalid)
    tx = coordinator.start_short()
    assert decode(encode(tx)) == tx
    for one in (open_one, tx):
        coordinator.abort(one)


def test_a_context_commits_and_a_conflicting_one_does_not(
    coordinator: Coordinator, key: bytes
) -> None:
    loser = transaction(coordinator, Recorder(changes=[key]))
    loser.start()
    with transaction(coordinator, Recorder(changes=[key])) as winner:
        winner.checkpoint()
    with pytest.raises(TransactionConflict):
        loser.finish()
    seen = coordinator.snapshot()
    assert all(seen.is_visible(pointer) for pointer in winner.transaction.pointers)
    assert loser.transaction.transaction_id not in seen.in_progress


def test_of_many_threads_that_change_one_key_at_a_time_none_is_lost(
    coordinator: Coordinator, key: bytes
) -> None:
    committed: list[Transaction] = []

    def run() -> None:
        for _ in range(10):
            tx = coordinator.start_short()
            try:
                commit_changes(coordinator, tx, key)
            except TransactionConflict:
                coordinator.abort(tx)
            else:
                committed.append(tx)

    in_threads(lambda _: run(), range(4))
    assert committed
    seen = coordinator.snapshot()
    in_order = sorted(committed, key=lambda tx: tx.transaction_id)
    for earlier, later in itertools.pairwise(in_order):
        assert later.is_visible(earlier.transaction_id)
        assert seen.is_visible(later.transaction_id)
