"""A transaction from start to end: the order of calls, and every way it can fail."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from coordinator.context import (
    TransactionContext,
    current_transaction,
    this_task,
    transaction,
)
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.errors import (
    MisusedTransaction,
    ParticipantFailed,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
    Unavailable,
)
from coordinator.interfaces import TransactionAware
from coordinator.transaction import Status
from tests.support.concurrency import at_once
from tests.support.doubles import Clock, Log, Recorder, Watched, failing, lost


class Setting:
    """A watched coordinator, and a log that it shares with the participants."""

    def __init__(self) -> None:
        self.log: Log = []
        self.clock = Clock()
        self.embedded = EmbeddedCoordinator(clock_ms=self.clock)
        self.watched = Watched(self.embedded, self.log)
        self.coordinator: Any = self.watched

    def recorder(self, name: str, **options: Any) -> Recorder:
        return Recorder(name, self.log, **options)

    def context(self, *participants: TransactionAware, **options: Any) -> Any:
        return TransactionContext(self.coordinator, *participants, **options)

    def is_invalid(self, context: TransactionContext) -> bool:
        invalids = self.embedded.snapshot().invalids
        return context.transaction.transaction_id in invalids


@pytest.fixture
def here() -> Iterator[Setting]:
    setting = Setting()
    yield setting
    assert not setting.embedded.snapshot().in_progress, "a transaction was left open"


def test_a_commit_calls_all_in_the_order_of_the_contract(here: Setting) -> None:
    with here.context(here.recorder("a"), here.recorder("b")) as tx:
        here.log.append("body")
    assert tx.status is Status.COMMITTED
    assert here.log == [
        "start_short",
        *("start_tx a", "start_tx b"),
        "body",
        *("get_tx_changes a", "get_tx_changes b"),
        "can_commit",
        "persist",
        *("commit_tx a", "commit_tx b"),
        "commit",
        *("post_tx_commit a", "post_tx_commit b"),
    ]


def test_who_flushes_last_commits_last_whatever_the_order_of_joining(
    here: Setting,
) -> None:
    with here.context(here.recorder("messages", flushes_last=True)) as tx:
        tx.join(here.recorder("late"))
        tx.join(here.recorder("position", flushes_last=True))
        tx.join(here.recorder("latest"))
    commits = [call for call in here.log if call.startswith("commit_tx")]
    assert commits == [
        "commit_tx late",
        "commit_tx latest",
        "commit_tx messages",
        "commit_tx position",
    ]


def test_joining_during_a_transaction_starts_at_once_and_only_once(
    here: Setting,
) -> None:
    late = here.recorder("late")
    with here.context() as tx:
        tx.join(late)
        assert late.tx is tx.transaction
        tx.join(late)
    assert here.log.count("start_tx late") == 1
    assert here.log.count("commit_tx late") == 1


def test_a_participant_that_cannot_start_late_has_not_joined(here: Setting) -> None:
    with here.context() as tx:
        with pytest.raises(OSError, match="full") as caught:
            tx.join(here.recorder("late", start_tx=OSError("full")))
        assert "in start_tx of late, transaction" in caught.value.__notes__[0]
    assert tx.status is Status.COMMITTED
    assert "rollback_tx late" not in here.log


def test_a_start_that_fails_half_way_rolls_back_those_that_started(
    here: Setting,
) -> None:
    context = here.context(
        here.recorder("a"),
        here.recorder("b", start_tx=OSError("no")),
        here.recorder("c"),
    )
    with pytest.raises(OSError, match="no"):
        context.start()
    assert here.log == [
        "start_short",
        *("start_tx a", "start_tx b"),
        "rollback_tx a",
        "abort",
    ]
    assert context.status is Status.ABORTED


def test_an_error_in_the_block_rolls_back_all_and_is_raised(here: Setting) -> None:
    a, b = here.recorder("a"), here.recorder("b", flushes_last=True)
    with pytest.raises(ZeroDivisionError), here.context(a, b):
        print(1 / 0)
    assert here.log[-3:] == ["rollback_tx a", "rollback_tx b", "abort"]


def test_a_conflict_is_raised_before_anything_is_written(here: Setting) -> None:
    a = here.recorder("a", changes=[b"k"])
    context = here.context(a)
    context.start()
    with here.context(Recorder("other", changes=[b"k"])):
        pass
    del here.log[:]
    with pytest.raises(TransactionConflict, match="changed the same key b'k'"):
        context.finish()
    assert here.log == ["get_tx_changes a", "can_commit", "rollback_tx a", "abort"]


@pytest.mark.parametrize("call", ["get_tx_changes", "commit_tx"])
def test_flush_that_fails_rolls_back_all(here: Setting, call: str) -> None:
    a, b = here.recorder("a", **{call: OSError("disk")}), here.recorder("b")
    with pytest.raises(OSError, match="disk") as caught, here.context(a, b):
        pass
    assert here.log[-3:] == ["rollback_tx a", "rollback_tx b", "abort"]
    assert f"in {call} of a, transaction" in caught.value.__notes__[0]


@pytest.mark.parametrize("answer", [False, None, 0])
def test_an_answer_other_than_true_refuses_the_commit(
    here: Setting, answer: object
) -> None:
    with (
        pytest.raises(ParticipantFailed, match=f"commit_tx of a answered {answer}"),
        here.context(here.recorder("a", commit_tx=lambda: answer)),
    ):
        pass
    assert here.log[-2:] == ["rollback_tx a", "abort"]


@pytest.mark.parametrize("answer", [False, None, OSError("gone")])
def test_a_rollback_that_fails_invalidates_and_the_others_still_get_theirs(
    here: Setting, answer: object
) -> None:
    a, b = here.recorder("a", rollback_tx=answer), here.recorder("b")
    with pytest.raises(ZeroDivisionError) as caught, here.context(a, b) as tx:
        print(1 / 0)
    assert here.log[-3:] == ["rollback_tx a", "rollback_tx b", "invalidate"]
    assert tx.status is Status.INVALIDATED
    assert here.is_invalid(tx)
    assert "rollback_tx of a" in caught.value.__notes__[0]


def test_the_first_error_wins_and_the_others_are_notes(here: Setting) -> None:
    here.watched.instead["abort"] = failing(Unavailable("away"))
    with pytest.raises(ZeroDivisionError) as caught, here.context() as tx:
        print(1 / 0)
    assert caught.value.__notes__ == ["then Unavailable('away')"]
    here.embedded.abort(tx.transaction)


def test_post_tx_commit_that_raises_leaves_it_committed_and_tells_the_others(
    here: Setting,
) -> None:
    a = here.recorder("a", post_tx_commit=OSError("one"))
    b = here.recorder("b", post_tx_commit=OSError("two"))
    c = here.recorder("c")
    with pytest.raises(OSError, match="one") as caught, here.context(a, b, c) as tx:
        pass
    assert here.log[-3:] == [f"post_tx_commit {name}" for name in "abc"]
    assert tx.status is Status.COMMITTED
    assert here.embedded.snapshot().is_visible(tx.transaction.transaction_id)
    assert any("stays committed" in note for note in caught.value.__notes__)
    assert any("two" in note for note in caught.value.__notes__)


def test_a_lost_answer_to_can_commit_is_a_no(here: Setting) -> None:
    here.watched.instead["can_commit"] = lost(Unavailable("cut"))
    with pytest.raises(Unavailable, match="cut"), here.context(here.recorder("a")):
        pass
    assert here.log[-3:] == ["can_commit", "rollback_tx a", "abort"]


def test_a_transaction_that_timed_out_is_rolled_back_and_never_aborted(
    here: Setting,
) -> None:
    with (
        pytest.raises(TransactionNotInProgress, match="timed out or was invalidated"),
        here.context(here.recorder("a"), timeout_s=5) as tx,
    ):
        here.clock.advance_s(6)
    assert here.log[-3:] == ["can_commit", "rollback_tx a", "invalidate"]
    assert here.is_invalid(tx)


def test_a_commit_whose_answer_was_lost_is_settled_as_a_yes(here: Setting) -> None:
    here.watched.instead["commit"] = lost(Unavailable("cut"))
    with here.context(here.recorder("a")) as tx:
        pass
    assert tx.status is Status.COMMITTED
    assert here.log[-4:] == ["commit", "invalidate", "snapshot", "post_tx_commit a"]


def test_a_commit_that_never_arrived_is_settled_as_a_no_and_never_aborted(
    here: Setting,
) -> None:
    here.watched.instead["commit"] = failing(Unavailable("cut"))
    with (
        pytest.raises(Unavailable, match="cut"),
        here.context(here.recorder("a")) as tx,
    ):
        pass
    assert here.log[-4:] == ["commit", "invalidate", "rollback_tx a", "invalidate"]
    assert here.is_invalid(tx)


def test_a_commit_refused_behind_a_lost_answer_is_settled_as_a_no(
    here: Setting,
) -> None:
    def timed_out(call: object) -> None:
        here.clock.advance_s(31)
        raise Unavailable("cut")

    here.watched.instead["commit"] = timed_out
    with pytest.raises(Unavailable, match="cut"), here.context(here.recorder("a")):
        pass
    assert here.log[-5:] == [
        "commit",
        "invalidate",
        "snapshot",
        "rollback_tx a",
        "invalidate",
    ]


@pytest.mark.parametrize("silent", ["invalidate", "snapshot"])
def test_an_outcome_that_nobody_can_tell_undoes_and_repeats_nothing(
    here: Setting, silent: str
) -> None:
    here.watched.instead["commit"] = lost(Unavailable("cut"))
    here.watched.instead[silent] = failing(Unavailable("away"))
    with (
        pytest.raises(TransactionOutcomeUnknown, match="cannot be asked") as caught,
        here.context(here.recorder("a")) as tx,
    ):
        pass
    assert tx.status is Status.UNKNOWN
    assert "rollback_tx a" not in here.log
    assert "post_tx_commit a" not in here.log
    assert "Unavailable('cut')" in caught.value.__notes__[0]


def test_a_yes_does_not_count_once_an_invalid_pointer_may_be_forgotten(
    here: Setting,
) -> None:
    seconds = iter([0.0, 90_000.0])
    here.watched.instead["commit"] = lost(Unavailable("cut"))
    with (
        pytest.raises(TransactionOutcomeUnknown, match="for 86400 s only"),
        here.context(here.recorder("a"), clock_s=lambda: next(seconds)),
    ):
        pass


def test_a_coordinator_that_forgot_everything_is_no_yes(here: Setting) -> None:
    other = EmbeddedCoordinator(clock_ms=Clock(here.clock.now_ms + 60_000))
    here.watched.instead["commit"] = lost(Unavailable("cut"))
    here.watched.instead["invalidate"] = lambda _: other.invalidate(
        tx.transaction.transaction_id
    )
    with (
        pytest.raises(TransactionOutcomeUnknown, match="was never given out here"),
        here.context(here.recorder("a")) as tx,
    ):
        pass


def test_a_coordinator_that_knows_no_end_of_it_is_no_yes(here: Setting) -> None:
    before = here.embedded.snapshot()
    here.watched.instead["commit"] = lost(Unavailable("cut"))
    here.watched.instead["snapshot"] = lambda _: before
    with (
        pytest.raises(TransactionOutcomeUnknown, match="knows no end of it"),
        here.context(here.recorder("a")),
    ):
        pass


def test_an_interrupt_during_the_commit_is_settled_and_still_raised(
    here: Setting,
) -> None:
    here.watched.instead["commit"] = lost(KeyboardInterrupt())
    with (
        pytest.raises(KeyboardInterrupt) as caught,
        here.context(here.recorder("a")) as tx,
    ):
        pass
    assert tx.status is Status.COMMITTED
    assert here.log[-1] == "post_tx_commit a"
    assert any("stays committed" in note for note in caught.value.__notes__)


def test_an_interrupt_during_a_rollback_is_raised_after_all_are_rolled_back(
    here: Setting,
) -> None:
    a, b = here.recorder("a", rollback_tx=KeyboardInterrupt()), here.recorder("b")
    with pytest.raises(KeyboardInterrupt), here.context(a, b) as tx:
        raise ValueError
    assert here.log[-3:] == ["rollback_tx a", "rollback_tx b", "invalidate"]
    assert tx.status is Status.INVALIDATED


def test_a_checkpoint_flushes_all_but_those_that_flush_last(here: Setting) -> None:
    table = here.recorder("table")
    messages = here.recorder("messages", flushes_last=True)
    with here.context(messages, table) as tx:
        first = tx.transaction
        del here.log[:]
        tx.checkpoint()
        assert here.log == [
            "persist",
            "commit_tx table",
            "checkpoint",
            "update_tx messages",
            "update_tx table",
        ]
        assert table.tx == messages.tx == tx.transaction
        assert tx.transaction.write_pointer > first.write_pointer
        assert tx.transaction.transaction_id == first.transaction_id
    assert here.log.count("commit_tx table") == 2
    assert here.log.count("commit_tx messages") == 1
    assert here.embedded.snapshot().is_visible(tx.transaction.write_pointer)


def test_a_checkpoint_that_fails_undoes_the_transaction(here: Setting) -> None:
    table = here.recorder("table", update_tx=OSError("no"))
    with pytest.raises(OSError, match="no"), here.context(table) as tx:
        tx.checkpoint()
    assert here.log[-2:] == ["rollback_tx table", "abort"]


def test_a_checkpoint_whose_number_was_lost_is_ended_by_invalidating(
    here: Setting,
) -> None:
    here.watched.instead["checkpoint"] = lost(Unavailable("cut"))
    with pytest.raises(Unavailable, match="cut"), here.context() as tx:
        tx.checkpoint()
    assert here.log[-1] == "invalidate"
    assert here.is_invalid(tx)


def test_a_block_that_goes_on_after_a_failed_checkpoint_does_not_end_quietly(
    here: Setting,
) -> None:
    table = here.recorder("table", commit_tx=OSError("disk"))
    with (
        pytest.raises(MisusedTransaction, match="was rolled back, and the block") as it,
        here.context(table) as tx,
        pytest.raises(OSError, match="disk"),
    ):
        tx.checkpoint()
    assert isinstance(it.value.__cause__, OSError)


def test_who_shares_the_journal_needs_no_start_record_on_disk(here: Setting) -> None:
    with here.context(here.recorder("rows", shares_journal=True)) as tx:
        tx.checkpoint()
    assert "persist" not in here.log
    with here.context(here.recorder("rows", shares_journal=True), here.recorder("own")):
        pass
    assert here.log.count("persist") == 1


def test_abort_undoes_and_the_block_ends_quietly(here: Setting) -> None:
    with here.context(here.recorder("a")) as tx:
        tx.abort()
        assert tx.status is Status.ABORTED
        with pytest.raises(MisusedTransaction, match="needs an active transaction"):
            tx.join(here.recorder("b"))
    assert here.log[-2:] == ["rollback_tx a", "abort"]


def test_abort_that_cannot_undo_says_so(here: Setting) -> None:
    with (
        pytest.raises(ParticipantFailed, match="could not be undone") as caught,
        here.context(here.recorder("a", rollback_tx=False)) as tx,
    ):
        tx.abort()
    assert any("rollback_tx of a answered False" in n for n in caught.value.__notes__)
    assert here.is_invalid(tx)


def test_a_nested_transaction_is_refused_and_the_outer_one_lives(
    here: Setting,
) -> None:
    outer: TransactionContext
    with here.context() as outer:
        with (
            pytest.raises(MisusedTransaction, match="is already open here; join it"),
            here.context(),
        ):
            pass
        assert outer is current_transaction(here.coordinator)
        here.log.append(outer.status.value)
    assert here.log[-3:] == ["active", "can_commit", "commit"]
    assert current_transaction(here.coordinator) is None


def test_transactions_of_two_coordinators_may_be_open_at_once(here: Setting) -> None:
    other = EmbeddedCoordinator()
    with here.context() as one, transaction(other) as two:
        assert current_transaction(here.coordinator) is one
        assert current_transaction(other) is two


def test_threads_and_tasks_have_transactions_of_their_own(here: Setting) -> None:
    found: list[object] = []

    async def one(together: asyncio.Barrier) -> int:
        with transaction(here.coordinator) as tx:
            async with together:
                assert current_transaction(here.coordinator) is tx
            return tx.transaction.transaction_id

    async def both() -> list[int]:
        together = asyncio.Barrier(2)
        return list(await asyncio.gather(one(together), one(together)))

    assert len(set(asyncio.run(both()))) == 2
    with transaction(here.coordinator):
        thread = threading.Thread(
            target=lambda: found.append(current_transaction(here.coordinator))
        )
        thread.start()
        thread.join()
    assert found == [None]


def test_what_is_begun_inside_a_transaction_may_have_one_of_its_own(
    here: Setting,
) -> None:
    async def outer() -> None:
        with transaction(here.coordinator) as mine:
            await asyncio.create_task(inner())
            await asyncio.to_thread(in_a_thread)
            assert current_transaction(here.coordinator) is mine

    async def inner() -> None:
        assert current_transaction(here.coordinator) is None
        in_a_thread()

    def in_a_thread() -> None:
        with transaction(here.coordinator) as its_own:
            assert current_transaction(here.coordinator) is its_own

    asyncio.run(outer())
    assert here.log.count("commit") == 3


def test_a_loop_that_runs_inside_a_block_is_refused_what_belongs_to_the_block(
    here: Setting,
) -> None:
    found: list[object] = []

    async def main() -> None:
        await asyncio.gather(look(), look())
        with transaction(here.coordinator) as its_own:
            assert current_transaction(here.coordinator) is its_own
        await look()

    async def look() -> None:
        with pytest.raises(MisusedTransaction, match="outside of the event loop"):
            current_transaction(here.coordinator)
        found.append(current_transaction(other))

    other = EmbeddedCoordinator()
    with here.context() as tx:
        asyncio.run(main())
        tx.abort()
        asyncio.run(look())  # what belongs to it must not go anywhere else
    assert found == [None] * 4


def test_a_task_that_was_made_in_a_block_and_runs_after_it_is_outside(
    here: Setting,
) -> None:
    async def look() -> object:
        return current_transaction(here.coordinator)

    loop = asyncio.new_event_loop()
    with here.context():
        task = loop.create_task(look())
    assert loop.run_until_complete(task) is None
    with here.context() as tx:
        task = loop.create_task(look())
        tx.abort()
    assert loop.run_until_complete(task) is None
    loop.close()


def test_a_context_serves_once_and_says_so(here: Setting) -> None:
    context = here.context()
    with pytest.raises(MisusedTransaction, match="has not begun"):
        print(context.transaction)
    with pytest.raises(MisusedTransaction, match="not begun"):
        context.finish()
    with context:
        pass
    with pytest.raises(MisusedTransaction, match="make a new one"):
        context.start()
    with pytest.raises(MisusedTransaction, match="committed"):
        context.finish()
    assert "committed" in repr(context)


def test_a_block_is_left_once(here: Setting) -> None:
    context = here.context(here.recorder("a"))
    with pytest.raises(MisusedTransaction, match="not begun> has no open block"):
        context.__exit__(None, None, None)
    with context:
        pass
    for error in (None, KeyError("k")):
        with pytest.raises(MisusedTransaction, match="committed> has no open block"):
            context.__exit__(error and type(error), error, None)
    assert here.log.count("commit") == 1


def test_a_block_that_raised_is_left_once(here: Setting) -> None:
    context = here.context(here.recorder("a"))
    with pytest.raises(KeyError), context:
        raise KeyError
    with pytest.raises(MisusedTransaction, match="aborted> has no open block"):
        context.__exit__(None, None, None)


def test_a_context_that_another_thread_enters_stays_with_its_block(
    here: Setting,
) -> None:
    tx: TransactionContext
    with here.context() as tx:
        (refused,) = at_once(tx.__enter__)
        assert isinstance(refused, MisusedTransaction)
        assert current_transaction(here.coordinator) is tx
    assert tx.status is Status.COMMITTED


def test_a_block_may_finish_by_hand(here: Setting) -> None:
    with here.context(here.recorder("a")) as tx:
        tx.finish()
        assert tx.status is Status.COMMITTED
    assert here.log.count("commit") == 1


def test_a_long_transaction_is_begun_as_one_and_takes_no_time_out(
    here: Setting,
) -> None:
    with transaction(here.coordinator, long=True) as tx:
        here.clock.advance_s(3600)
    assert tx.status is Status.COMMITTED
    with pytest.raises(MisusedTransaction, match="no time-out of its own"):
        here.context(long=True, timeout_s=5).start()


def test_a_block_that_was_rolled_back_takes_nothing_more(here: Setting) -> None:
    with here.context() as tx:
        late = here.recorder("late")
        tx.joined("key", lambda: late)
        tx.abort()
        found = current_transaction(here.coordinator)
        assert id(found) == id(tx)
        with pytest.raises(MisusedTransaction, match="is aborted"):
            tx.joined("key", lambda: late)
        with pytest.raises(MisusedTransaction, match="is aborted"):
            tx.join(here.recorder("later"))


def test_what_is_asked_for_while_others_flush_still_belongs_to_the_transaction(
    here: Setting,
) -> None:
    found: list[object] = []

    def look() -> bool:
        found.append(current_transaction(here.coordinator))
        return True

    with here.context(here.recorder("a", commit_tx=look)) as tx:
        pass
    assert found == [tx]
    assert current_transaction(here.coordinator) is None


def test_after_the_commit_nothing_is_open_any_more(here: Setting) -> None:
    found: list[object] = []
    after = here.recorder(
        "a", post_tx_commit=lambda: found.append(current_transaction(here.coordinator))
    )
    with here.context(after):
        pass
    assert found == [None]


def test_a_participant_is_made_once_for_its_key(here: Setting) -> None:
    with here.context() as tx:
        first = tx.joined("key", lambda: here.recorder("a"))
        assert tx.joined("key", lambda: here.recorder("b")) is first
    assert "commit_tx a" in here.log
    assert "commit_tx b" not in here.log


def test_a_thread_that_just_imports_asyncio_is_in_no_task_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The module is there before its names, which other threads may find so."""
    monkeypatch.setitem(sys.modules, "asyncio", ModuleType("asyncio"))
    assert this_task() == (threading.get_ident(), None)
