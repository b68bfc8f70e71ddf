"""The embedded coordinator beyond the contract: time, restarts, and a failing disk."""

import threading
import time
from collections.abc import Callable
from typing import Any, cast

import attrs
import pytest

from coordinator.codec import encode
from coordinator.embedded.commit_log import AHEAD_MS, Reserve
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.file_journal import FileJournal
from coordinator.embedded.ledger import ChangeLimits
from coordinator.embedded.records import Reserved
from coordinator.errors import (
    BadRequest,
    NotWritten,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionRefused,
    TransactionTooLarge,
    Unavailable,
)
from coordinator.transaction import POINTERS_PER_MS, Transaction
from tests.support.coordinators import commit_changes
from tests.support.doubles import Clock
from tests.support.fake_disk import Lives, full_disk


@pytest.fixture
def lives() -> Lives:
    return Lives()


@pytest.fixture(params=["crash", "close"])
def restart(request: pytest.FixtureRequest, lives: Lives) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(lives, request.param)
    return method


def test_ids_are_milliseconds_times_a_million_and_rise_within_one() -> None:
    clock = Clock()
    coordinator = EmbeddedCoordinator(clock_ms=clock)
    clock.advance_s(1)
    ids = [coordinator.start_short().transaction_id for _ in range(3)]
    first = clock.now_ms * POINTERS_PER_MS
    assert ids == [first, first + 1, first + 2]
    clock.advance_s(0.001)
    assert coordinator.start_short().transaction_id == first + POINTERS_PER_MS


def test_a_clock_that_goes_back_changes_nothing() -> None:
    clock = Clock()
    coordinator = EmbeddedCoordinator(clock_ms=clock)
    clock.advance_s(10)
    tx = coordinator.start_short(timeout_s=5)
    clock.advance_s(-3600)
    assert coordinator.start_short().transaction_id == tx.transaction_id + 1
    coordinator.commit(tx)


def test_a_timed_out_transaction_cannot_commit_even_if_nobody_saw_it_expire() -> None:
    clock = Clock()
    coordinator = EmbeddedCoordinator(clock_ms=clock)
    tx = coordinator.start_short(timeout_s=5)
    coordinator.can_commit(tx, [b"k"])
    clock.advance_s(5)
    coordinator.can_commit(tx, [b"k"])
    clock.advance_s(0.001)
    with pytest.raises(TransactionNotInProgress, match="timed out or was invalidated"):
        coordinator.commit(tx)
    assert tx.transaction_id in coordinator.snapshot().invalids


def test_a_time_out_between_the_look_at_the_clock_and_the_commit_counts() -> None:
    clock = Clock()
    coordinator = EmbeddedCoordinator(clock_ms=clock)
    tx = coordinator.start_short(timeout_s=5)
    clock.advance_s(5)
    looked: list[int] = []

    def later_at_the_second_look() -> int:
        looked.append(clock())
        return clock() + len(looked) - 1

    coordinator._ledger.elapsed_ms = later_at_the_second_look
    with pytest.raises(TransactionNotInProgress, match="it timed out"):
        coordinator.can_commit(tx, [])
    assert len(looked) == 2
    assert tx.transaction_id in coordinator.snapshot().invalids


def test_time_outs_take_checkpoints_along_and_spare_the_others() -> None:
    clock = Clock()
    coordinator = EmbeddedCoordinator(clock_ms=clock)
    short = coordinator.checkpoint(coordinator.start_short(timeout_s=5))
    other = coordinator.start_short(timeout_s=50)
    long = coordinator.start_long()
    clock.advance_s(6)
    assert coordinator.invalid_size() == 2
    seen = coordinator.snapshot()
    assert list(seen.invalids) == list(short.pointers)
    assert list(seen.in_progress) == [other.transaction_id, long.transaction_id]
    clock.advance_s(86_400)
    assert not coordinator.snapshot().in_progress


def test_what_is_invalid_is_never_aborted() -> None:
    coordinator = EmbeddedCoordinator()
    tx = coordinator.start_short()
    coordinator.invalidate(tx)
    coordinator.abort(tx)
    assert tx.transaction_id in coordinator.snapshot().invalids


def test_an_unknown_id_changes_nothing_and_a_foreign_one_is_not_judged() -> None:
    coordinator = EmbeddedCoordinator()
    before = coordinator.snapshot()
    for pointer in (1, 2**62):
        unknown = Transaction(pointer, 0)
        coordinator.abort(unknown)
        with pytest.raises(TransactionNotInProgress, match="was never given out here"):
            coordinator.invalidate(unknown)
    after = coordinator.snapshot()
    assert attrs.evolve(after, transaction_id=1, write_pointer=1) == attrs.evolve(
        before, transaction_id=1, write_pointer=1
    )


def test_a_change_set_over_the_limit_is_refused_with_the_numbers() -> None:
    coordinator = EmbeddedCoordinator(
        limits=ChangeLimits(change_count=2, change_bytes=5)
    )
    tx = coordinator.start_short()
    with pytest.raises(TransactionTooLarge, match="changes 3 keys of 3 bytes; at most"):
        coordinator.can_commit(tx, [b"a", b"b", b"c"])
    with pytest.raises(TransactionTooLarge, match="of 6 bytes"):
        coordinator.can_commit(tx, [b"123456"])
    with pytest.raises(TransactionRefused):
        coordinator.commit(tx)
    commit_changes(coordinator, tx, b"12", b"345")


def test_an_invalid_pointer_is_kept_for_the_grace_whoever_truncates() -> None:
    clock = Clock()
    coordinator = EmbeddedCoordinator(clock_ms=clock, settle_grace_s=100)
    tx = coordinator.start_short()
    coordinator.invalidate(tx)
    clock.advance_s(99)
    assert coordinator.truncate_invalid_tx([tx.transaction_id]) is False
    assert coordinator.truncate_invalid_tx_before(clock.now_ms) is False
    clock.advance_s(1)
    assert coordinator.truncate_invalid_tx([tx.transaction_id]) is True
    assert not coordinator.snapshot().invalids


def test_snapshots_share_what_did_not_change() -> None:
    coordinator = EmbeddedCoordinator()
    coordinator.invalidate(coordinator.start_short())
    open_one = coordinator.start_short()
    one, two = coordinator.snapshot(), coordinator.snapshot()
    assert one.invalids is two.invalids
    assert one.in_progress is two.in_progress
    assert encode(one)
    coordinator.abort(open_one)


def test_the_commit_pointer_is_not_used_up_and_equal_is_no_conflict() -> None:
    coordinator = EmbeddedCoordinator(clock_ms=Clock())
    coordinator.start_short()  # while it is open no commit is forgotten
    one = coordinator.start_short()
    commit_changes(coordinator, one, b"k")
    two = coordinator.start_short()
    assert two.transaction_id == one.transaction_id + 1
    commit_changes(coordinator, two, b"k")


def test_a_commit_that_returned_is_visible_after_a_restart(
    lives: Lives, restart: Callable[..., EmbeddedCoordinator]
) -> None:
    tx = lives.now.checkpoint(lives.now.start_short())
    commit_changes(lives.now, tx, b"k")
    after = restart()
    assert all(after.snapshot().is_visible(pointer) for pointer in tx.pointers)
    assert after.invalidate(tx) is False
    with pytest.raises(TransactionNotInProgress):
        after.commit(tx)


def test_what_was_open_is_invalid_after_a_restart(
    lives: Lives, restart: Callable[..., EmbeddedCoordinator]
) -> None:
    tx = lives.now.checkpoint(lives.now.start_short())
    lives.now.persist(tx)
    for _ in range(2):
        after = restart()
        assert list(after.snapshot().invalids) == list(tx.pointers)
        assert not after.snapshot().in_progress
        assert after.invalidate(tx) is False


def test_persist_reaches_the_disk_with_every_checkpoint(lives: Lives) -> None:
    tx = lives.now.start_short()
    lives.now.persist(tx)
    checkpointed = lives.now.checkpoint(tx)
    lives.now.persist(checkpointed)
    assert list(lives.crash().snapshot().invalids) == list(checkpointed.pointers)


def test_persist_refuses_what_a_crash_has_forgotten_and_what_has_ended(
    lives: Lives,
) -> None:
    """A participant would write rows that no record calls uncommitted."""
    forgotten = lives.now.start_short()
    lives.now.persist(lives.now.start_short())
    after = lives.crash()
    with pytest.raises(TransactionNotInProgress):
        after.persist(forgotten)
    ended = after.start_short()
    after.abort(ended)
    with pytest.raises(TransactionNotInProgress):
        after.persist(ended)


def test_a_transaction_that_a_crash_left_no_trace_of_is_dead(lives: Lives) -> None:
    before = lives.now.start_short()
    commit_changes(lives.now, before)
    lost = lives.now.start_short()
    after = lives.crash()
    with pytest.raises(TransactionNotInProgress):
        after.commit(lost)
    for _ in range(2):
        assert after.invalidate(lost) is True
        assert after.invalidate(before) is False
        after = lives.crash()


def test_no_pointer_is_given_out_twice_whatever_the_clock_does(
    lives: Lives, restart: Callable[..., EmbeddedCoordinator]
) -> None:
    given: list[int] = []
    for step_s in (0, 3, -3600, 0, 0.001):
        given += [lives.now.start_short().transaction_id for _ in range(3)]
        given.append(lives.now.snapshot().transaction_id)
        lives.clock.advance_s(step_s)
        restart()
    assert given == sorted(set(given))


def test_after_an_orderly_end_pointers_go_on_from_the_last_one(lives: Lives) -> None:
    last = lives.now.snapshot().transaction_id
    assert 0 < lives.close().snapshot().transaction_id - last < 2 * POINTERS_PER_MS
    last = lives.now.snapshot().transaction_id
    jump = lives.crash().snapshot().transaction_id - last
    assert 0 < jump < (AHEAD_MS + 1) * POINTERS_PER_MS  # each life has a salt


def test_invalid_pointers_and_their_age_survive(
    lives: Lives, restart: Callable[..., EmbeddedCoordinator]
) -> None:
    lives.settings = {"settle_grace_s": 100}
    lives.now.close()
    lives.now = lives.begin()
    old, young = lives.now.start_short(), lives.now.start_short()
    lives.now.invalidate(old)
    lives.clock.advance_s(90)
    lives.now.invalidate(young)
    lives.clock.advance_s(20)
    after = restart()
    assert after.truncate_invalid_tx(old.pointers + young.pointers) is True
    after = restart()
    assert young.transaction_id in after.snapshot().invalids
    assert old.transaction_id not in after.snapshot().invalids


def test_one_that_outlives_the_process_goes_on_after_a_restart(
    lives: Lives, restart: Callable[..., EmbeddedCoordinator]
) -> None:
    tx = lives.now.start_short(timeout_s=60, outlives_process=True)
    tx = lives.now.checkpoint(tx)
    lives.now.persist(tx)
    after = restart()
    assert list(after.snapshot().in_progress) == list(tx.pointers)
    with pytest.raises(TransactionRefused, match="since its changes were checked"):
        after.commit(tx)
    after.can_commit(tx, [b"k"])
    after.commit(tx)
    assert all(after.snapshot().is_visible(pointer) for pointer in tx.pointers)


def test_one_that_outlives_the_process_still_times_out(lives: Lives) -> None:
    tx = lives.now.start_short(timeout_s=60, outlives_process=True)
    lives.now.persist(tx)
    lives.crash()
    lives.clock.advance_s(59)
    assert tx.transaction_id in lives.crash().snapshot().in_progress
    lives.clock.advance_s(60)
    assert tx.transaction_id in lives.crash().snapshot().invalids


def test_a_time_out_that_somebody_saw_holds_if_the_clock_goes_back(
    lives: Lives,
) -> None:
    tx = lives.now.start_short(timeout_s=5, outlives_process=True)
    lives.now.persist(tx)
    lives.clock.advance_s(6)
    assert tx.transaction_id in lives.now.snapshot().invalids
    lives.clock.advance_s(-60)
    after = lives.crash()
    assert tx.transaction_id in after.snapshot().invalids
    with pytest.raises(TransactionNotInProgress):
        after.can_commit(tx, [])


@pytest.mark.parametrize("begins", ["before", "during", "after"])
def test_commits_that_a_survivor_did_not_see_conflict_with_it_after_a_restart(
    lives: Lives, restart: Callable[..., EmbeddedCoordinator], begins: str
) -> None:
    survivors: list[Transaction] = []

    def begin() -> None:
        survivors.append(lives.now.start_short(outlives_process=True))

    def before(_: int, name: str) -> None:
        if name == "sync" and not survivors:
            begin()

    other = lives.now.start_short()
    lives.now.can_commit(other, [b"k"])
    if begins == "before":
        begin()
    if begins == "during":
        lives.disk.before = before
    lives.now.commit(other)
    lives.mend()
    if begins == "after":
        begin()
    lives.now.persist(survivors[0])
    for _ in range(2):
        after = restart()
        if begins == "after":
            after.can_commit(survivors[0], [b"k"])
        else:
            with pytest.raises(TransactionConflict):
                after.can_commit(survivors[0], [b"k"])
        after.can_commit(survivors[0], [b"other"])


def test_a_full_disk_is_a_no_and_the_transaction_can_still_end(lives: Lives) -> None:
    tx, other = lives.now.start_short(), lives.now.start_short()
    lives.now.can_commit(tx, [b"k"])
    lives.fail("write")
    with pytest.raises(NotWritten, match="No space left"):
        lives.now.commit(tx)
    with pytest.raises(NotWritten, match="No space left"):
        lives.now.invalidate(tx)
    assert tx.transaction_id in lives.now.snapshot().in_progress
    assert "could not be written" in lives.now.status()
    lives.mend()
    commit_changes(lives.now, other, b"k")
    with pytest.raises(TransactionConflict):
        lives.now.commit(tx)
    lives.now.abort(tx)
    assert lives.now.status() == "OK"
    assert lives.crash().snapshot().is_visible(other.transaction_id)


def test_a_commit_of_unknown_fate_is_decided_by_what_the_disk_holds(
    lives: Lives,
) -> None:
    tx = lives.now.start_short(timeout_s=2)
    lives.now.can_commit(tx, [b"k"])
    lives.fail("sync", "truncate")
    with pytest.raises(Unavailable, match="nor what was written be cut off"):
        lives.now.commit(tx)
    assert tx.transaction_id in lives.now.snapshot().in_progress
    with pytest.raises(Unavailable):
        lives.now.invalidate(tx)
    lives.clock.advance_s(3)
    assert tx.transaction_id in lives.now.snapshot().in_progress
    lives.mend()
    assert lives.now.invalidate(lives.now.start_short()) is True
    lives.clock.advance_s(2)
    assert tx.transaction_id in lives.now.snapshot().invalids
    assert lives.now.invalidate(tx) is False


@pytest.mark.parametrize("waited", [True, False])
def test_an_interrupted_commit_takes_place_and_is_settled_as_a_yes(
    lives: Lives, waited: bool
) -> None:
    tx, journal = lives.now.start_short(), cast(Any, lives.now)._journal
    submit = journal.submit

    def interrupted(*records: Any, **options: Any) -> Callable[[], None]:
        wait = submit(*records, **options)

        def interrupt() -> None:
            if waited:
                wait()
            raise KeyboardInterrupt

        return interrupt

    journal.submit = interrupted
    with pytest.raises(KeyboardInterrupt):
        lives.now.commit(tx)
    journal.submit = submit
    assert lives.now.invalidate(tx) is False
    assert lives.now.snapshot().is_visible(tx.transaction_id)
    assert lives.crash().snapshot().is_visible(tx.transaction_id)


def test_a_commit_interrupted_before_it_was_submitted_is_open_as_before(
    lives: Lives,
) -> None:
    tx, journal = lives.now.start_short(), cast(Any, lives.now)._journal
    submit = journal.submit

    def interrupted(*records: Any, **options: Any) -> Callable[[], None]:
        raise KeyboardInterrupt

    lives.now.can_commit(tx, [b"k"])
    journal.submit = interrupted
    with pytest.raises(KeyboardInterrupt):
        lives.now.commit(tx)
    journal.submit = submit
    commit_changes(lives.now, lives.now.start_short(), b"k")
    with pytest.raises(TransactionConflict):
        lives.now.commit(tx)
    assert lives.now.invalidate(tx) is True


def test_checkpoints_of_several_that_outlive_the_process_stay_in_order(
    lives: Lives, restart: Callable[..., EmbeddedCoordinator]
) -> None:
    begun = [lives.now.start_short(outlives_process=True) for _ in range(2)]
    begun = [lives.now.checkpoint(tx) for tx in begun]
    lives.now.persist(begun[1])
    seen = restart().snapshot()
    pointers = sorted(pointer for tx in begun for pointer in tx.pointers)
    assert list(seen.in_progress) == pointers
    assert not any(seen.is_visible(pointer) for pointer in pointers)


def test_a_checkpoint_that_waited_for_a_failed_end_takes_a_new_pointer(
    lives: Lives,
) -> None:
    tx = lives.now.start_short()
    ids: list[int] = []
    checkpointed: list[Transaction] = []

    def checkpoint() -> None:
        checkpointed.append(lives.now.checkpoint(tx))

    waiting = threading.Thread(target=checkpoint)

    def before(_: int, name: str) -> None:
        if name == "write":
            lives.mend()
            waiting.start()
            ids.extend(lives.now.start_short().transaction_id for _ in range(3))
            raise full_disk()

    lives.disk.before = before
    with pytest.raises(NotWritten):
        lives.now.commit(tx)
    waiting.join(10)
    ids.append(checkpointed[0].write_pointer)
    ids.append(lives.now.snapshot().transaction_id)
    assert ids == sorted(set(ids))


def test_a_failed_invalidation_gives_up_nothing_that_a_commit_reserved(
    lives: Lives,
) -> None:
    one, two, three = (lives.now.start_short() for _ in range(3))
    for tx in (one, two, three):
        lives.now.can_commit(tx, [b"k"])
    lives.fail("write")
    with pytest.raises(NotWritten):
        lives.now.invalidate(two)
    lives.mend()
    refused: list[Exception] = []

    def commit_another() -> None:
        try:
            lives.now.commit(three)
        except TransactionConflict as error:
            refused.append(error)

    other = threading.Thread(target=commit_another)

    def before(_: int, name: str) -> None:
        if name == "sync":
            lives.mend()
            other.start()
            other.join(10)

    lives.disk.before = before
    lives.now.commit(one)
    assert len(refused) == 1


def test_pointers_are_reserved_anew_once_half_of_their_time_is_over() -> None:
    reserve, half_ms = Reserve(), AHEAD_MS // 2
    reserve.extend(reserve.due(0))
    assert reserve.limit == AHEAD_MS * POINTERS_PER_MS
    assert reserve.due(half_ms) == ()
    limit = (half_ms + 1 + AHEAD_MS) * POINTERS_PER_MS
    assert reserve.due(half_ms + 1) == (Reserved(limit),)


def test_a_restart_times_nobody_out_before_the_time(lives: Lives) -> None:
    tx = lives.now.start_short(timeout_s=8, outlives_process=True)
    lives.now.persist(tx)
    lives.clock.advance_s(0.2)
    after = lives.crash()
    after.can_commit(tx, [])
    after.commit(tx)


def test_those_that_time_out_together_are_over_after_a_restart_too(
    lives: Lives, restart: Callable[..., EmbeddedCoordinator]
) -> None:
    timed_out = [lives.now.start_short(outlives_process=True) for _ in range(3)]
    timed_out += [lives.now.checkpoint(lives.now.start_short()) for _ in range(3)]
    lives.clock.advance_s(31)
    commit_changes(lives.now, lives.now.start_short())
    after = restart()
    assert not after.snapshot().in_progress
    pointers = {pointer for tx in timed_out for pointer in tx.pointers}
    assert pointers == set(after.snapshot().invalids)


def test_a_time_out_that_was_truncated_stays_forgotten_after_a_restart(
    lives: Lives, restart: Callable[..., EmbeddedCoordinator]
) -> None:
    lives.settings = {"settle_grace_s": 0}
    lives.close()
    tx = lives.now.checkpoint(lives.now.start_short())
    lives.now.persist(tx)
    lives.clock.advance_s(31)
    assert lives.now.truncate_invalid_tx(tx.pointers) is True
    assert not restart().snapshot().invalids


def test_a_file_put_in_place_by_a_killed_process_gets_its_name_synced(
    lives: Lives,
) -> None:
    lives.now.close()
    lives.disk.synced_names = {}
    lives.now = lives.begin()
    tx = lives.now.start_short()
    lives.now.commit(tx)
    assert lives.crash().snapshot().is_visible(tx.transaction_id)


def test_many_short_lives_do_not_make_the_journal_grow(lives: Lives) -> None:
    sizes: list[int] = []
    for _ in range(40):
        stand_in: Any = lives.disk
        journal = FileJournal(stand_in, compact_bytes=2000)
        with EmbeddedCoordinator(journal, clock_ms=lives.clock) as coordinator:
            for _ in range(10):
                commit_changes(coordinator, coordinator.start_short(), b"k")
        sizes.append(len(lives.disk.names["journal"].data))
    assert max(sizes) < 5000


def test_changes_are_kept_for_short_ones_that_outlive_only_while_they_are_open(
    lives: Lives,
) -> None:
    history = cast(Any, lives.now)._journal.history
    long = lives.now.start_long(outlives_process=True)
    lives.now.persist(long)
    commit_changes(lives.now, lives.now.start_short(), b"1")
    short = lives.now.start_short(outlives_process=True)
    lives.now.persist(short)
    for number in range(5):
        commit_changes(lives.now, lives.now.start_short(), b"%d" % number)
    lives.now.persist(lives.now.start_short())
    assert len(history.changes) == 5
    commit_changes(lives.now, short)
    lives.now.persist(lives.now.start_short())
    assert not history.changes
    assert not history.unseen
    assert not cast(Any, lives.now)._ledger.open.outliving


def test_snapshots_read_on_behind_a_short_one_that_is_invalid_and_not_a_long_one() -> (
    None
):
    """Of a long one nobody knows, by its pointer, when it has ended."""
    coordinator = EmbeddedCoordinator(clock_ms=Clock())
    before = coordinator.snapshot().read_pointer
    coordinator.invalidate(coordinator.start_long())
    assert coordinator.snapshot().read_pointer == before
    short = coordinator.start_short()
    coordinator.invalidate(short)
    assert coordinator.snapshot().read_pointer == short.transaction_id


def test_fifty_thousand_open_ones_cost_next_to_nothing() -> None:
    clock = Clock()
    coordinator = EmbeddedCoordinator(clock_ms=clock)
    for _ in range(25_000):
        coordinator.start_long()
        clock.advance_s(0.001)
        coordinator.start_short(timeout_s=3600)
    began_s = time.process_time()
    for _ in range(100):
        clock.advance_s(0.001)
        coordinator.commit(coordinator.checkpoint(coordinator.start_short()))
    assert time.process_time() - began_s < 0.5, "5 ms for each of them"


def test_a_key_that_is_not_bytes_is_a_bad_request() -> None:
    coordinator = EmbeddedCoordinator()
    keys: Any = ["k"]
    with pytest.raises(BadRequest, match="a change key is bytes"):
        coordinator.can_commit(coordinator.start_short(), keys)


def test_a_closed_coordinator_says_so(lives: Lives) -> None:
    tx = lives.now.start_short()
    lives.now.close()
    lives.now.close()
    assert lives.now.status() == "closed"
    for call in (lives.now.commit, lives.now.abort, lives.now.checkpoint):
        with pytest.raises(Unavailable, match="the coordinator is closed"):
            call(tx)
    with pytest.raises(Unavailable, match="the coordinator is closed"):
        lives.now.start_short()
