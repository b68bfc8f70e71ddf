"""Commits that begin their own transaction, and are known again by a slot of a client.

What became of one is on disk with it: whoever asks again is told the same, also in the
next life of the data.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

import attrs

from coordinator.interfaces import Coordinator
from coordinator.remote.named_transactions import flag_or_null
from coordinator.resolve_outcome import settle
from coordinator.threads import Condition
from coordinator.transaction import POINTERS_PER_MS, Transaction
from txaware.errors import (
    BadRequest,
    TransactionNotInProgress,
    TxAwareError,
    Unavailable,
    changed_nothing,
)
from txaware.model.commit_slots import (
    CommitSlot,
    check_timeout,
    checked_client,
    checked_instance,
    checked_number,
    checked_open_ms,
    checked_slot,
)
from txaware.service.store_context import StoreContext
from txaware.service.wakeups import WouldWait
from txaware.service.write.message_cargo import RowCargo, carries_nothing
from txaware.store.slot_table import SlotRow, SlotTable

# So many slots are remembered; the rows of others are read again.
REMEMBERED = 1 << 16
# The commit of another request is waited for so long.
WAIT_S = 30.0


@attrs.define(eq=False)
class SlotState:
    """The last commit of a slot that has an end, and the one that is under way.

    Without a `pointer` the last one was refused, which another life knows where it
    `is_kept` on disk. Of one `in_doubt` the disk may have it or not; `begun` is its
    transaction.
    """

    number: int = 0
    pointer: int | None = None
    is_kept: bool = True
    under_way: int = 0
    begun: int = 0
    in_doubt: bool = False

    def end(self, pointer: int | None, *, is_kept: bool) -> None:
        """Notes how the one that was under way has ended."""
        self.number, self.pointer = self.under_way, pointer
        self.is_kept = is_kept
        self.leave()

    def leave(self) -> None:
        """Notes that nothing is under way."""
        self.under_way, self.begun, self.in_doubt = 0, 0, False


class CommitSlots:
    """The slots of all clients of a store whose coordinator's commits carry rows."""

    def __init__(
        self, store_context: StoreContext, carrying: Coordinator | None
    ) -> None:
        self._rows = SlotTable(store_context.table)
        self._coordinator = carrying
        self._clock_ms = store_context.clock_ms
        self._timeout_s = store_context.settings.transaction_timeout_s
        self._states: OrderedDict[CommitSlot, SlotState] = OrderedDict()
        self._changed = Condition()  # guards the states

    def commit_at_once(
        self,
        client: str,
        slot: int,
        number: int,
        *,
        life: str = "",
        repeat: bool | None = False,
        timeout_s: float | None = None,
        open_ms: int = 0,
    ) -> int:
        """Begins a short transaction and commits it; returns its id.

        Here nobody is between who asks and the data, so `life` and `repeat` say
        nothing.
        """
        coordinator = self._carrying()
        checked_instance(life)
        flag_or_null(repeat, what="repeat")
        check_timeout(timeout_s)
        self.check_open(timeout_s, checked_open_ms(open_ms))

        def commit(tx: Transaction, row: RowCargo) -> None:
            coordinator.commit_with(tx, row)  # type: ignore[attr-defined]

        return self.perform(
            CommitSlot(checked_client(client), checked_slot(slot)),
            checked_number(number),
            lambda: coordinator.start_short(timeout_s),
            commit,
        )

    def settle_commit(self, client: str, slot: int, number: int) -> int | None:
        """Returns the transaction that a commit of a slot has committed, if it has.

        None says that it has not, and now never will, in any life: that is on disk
        when this returns.
        """
        place = CommitSlot(checked_client(client), checked_slot(slot))
        checked_number(number)
        self._carrying()
        with self._changed:
            state = self._settled(place, number)
            if number == state.number and state.is_kept:
                return state.pointer
            if number < state.number:
                raise self._over(place, number)
            state.under_way = number
        try:
            self._rows.write(place, SlotRow(number, None, self._clock_ms()))
        except BaseException:
            self.leave(place)
            raise
        self._end(place, None, is_kept=True)
        return None

    def perform(
        self,
        slot: CommitSlot,
        number: int,
        begin: Callable[[], Transaction],
        commit: Callable[[Transaction, RowCargo], None],
    ) -> int:
        """Begins and commits by these two, unless that was done before.

        `commit` takes the row of the slot. A thread calls it: it waits for another
        request of the same commit.
        """
        done = self.enter(slot, number)
        if done is not None:
            return done
        try:
            tx = begin()
        except BaseException:
            self.leave(slot)
            raise
        self.began(slot, tx)
        try:
            commit(tx, self.row(slot, number, tx))
        except BaseException as error:
            self.failed(slot, tx, error)
            raise
        self.ended(slot, tx.transaction_id)
        return tx.transaction_id

    def check_open(self, timeout_s: float | None, open_ms: int) -> None:
        """Refuses the commit of a block that was open for longer than it may be."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        if open_ms > limit_s * 1000:
            raise TransactionNotInProgress(
                f"the block was open for {open_ms / 1000:g} s, and its transaction "
                f"has {limit_s:g} s"
            )

    def enter(self, slot: CommitSlot, number: int) -> int | None:
        """Lets a commit begin; returns its transaction where it was done before.

        Waits for another request of the same commit. Raises where it was refused, or a
        later one of the slot has ended. `began` and an end follow, or `leave`.
        """
        with self._changed:
            return self._entered(self._settled(slot, number), slot, number)

    def enter_at_once(self, slot: CommitSlot, number: int) -> int | None:
        """Does the same in an event loop; raises `WouldWait` while one is under way.

        Only for a store whose reads do not wait.
        """
        with self._changed:
            state = self._state(slot)
            if state.under_way:
                raise WouldWait
            return self._entered(state, slot, number)

    def began(self, slot: CommitSlot, tx: Transaction) -> None:
        """Notes the transaction of a commit that was let in."""
        with self._changed:
            self._states[slot].begun = tx.transaction_id

    def row(self, slot: CommitSlot, number: int, tx: Transaction) -> RowCargo:
        """Returns the row that goes with the commit."""
        row = SlotRow(number, tx.transaction_id, self._clock_ms())
        return RowCargo(self._rows.writes(slot, row))

    def ended(self, slot: CommitSlot, pointer: int) -> None:
        """Notes that the commit took place, with the slot's row."""
        self._end(slot, pointer, is_kept=True)

    def failed(self, slot: CommitSlot, tx: Transaction, error: BaseException) -> None:
        """Notes the error of a commit, and ends its transaction where it is a no.

        Else the disk may have it, or not: the next who asks finds out.
        """
        if changed_nothing(error):
            with suppress(TxAwareError):  # it ends by its time-out then
                self._carrying().abort(tx)
            self._end(slot, None, is_kept=False)
            return
        with self._changed:
            self._changed.notify_all()
            self._states[slot].in_doubt = True

    def leave(self, slot: CommitSlot) -> None:
        """Notes that a commit which was let in has begun nothing."""
        with self._changed:
            self._changed.notify_all()
            self._states[slot].leave()

    def _end(self, slot: CommitSlot, pointer: int | None, *, is_kept: bool) -> None:
        with self._changed:
            self._changed.notify_all()
            self._states[slot].end(pointer, is_kept=is_kept)

    def _carrying(self) -> Coordinator:
        """Returns the coordinator; raises where its commits carry nothing."""
        if self._coordinator is None:
            raise carries_nothing()
        return self._coordinator

    def _state(self, slot: CommitSlot) -> SlotState:
        """Returns what is known of a slot, of its row at first; under the lock."""
        found: list[SlotRow | None] = []
        while (state := self._states.get(slot)) is None:
            if not found:
                self._changed.outside(lambda: found.append(self._rows.get(slot)))
                continue
            row = found.pop()
            known = SlotState() if row is None else SlotState(row.number, row.committed)
            self._states[slot] = known
            for _ in range(len(self._states) - REMEMBERED):
                oldest, other = self._states.popitem(last=False)
                if other.under_way:
                    self._states[oldest] = other
        return state

    def _settled(self, slot: CommitSlot, number: int) -> SlotState:
        """Returns the state of a slot once nothing is under way; under the lock."""
        while (state := self._state(slot)).under_way:
            if state.in_doubt:
                self._changed.outside(lambda: self._decide(slot, state))
            elif state.under_way != number:
                raise BadRequest(
                    f"commit {number} of {slot} came while commit {state.under_way} is "
                    f"under way: a slot is for one at a time"
                )
            elif not self._changed.wait(WAIT_S):
                raise Unavailable(f"commit {number} of {slot} is still under way")
        return state

    def _decide(self, slot: CommitSlot, state: SlotState) -> None:
        """Finds out what the disk has of a commit that failed."""
        pointer = state.begun

        def open_for_s() -> float:
            return (self._clock_ms() - pointer / POINTERS_PER_MS) / 1000

        committed = settle(self._carrying(), pointer, open_for_s=open_for_s)
        with self._changed:
            if state.in_doubt and state.begun == pointer:
                self._changed.notify_all()
                state.end(pointer if committed else None, is_kept=committed)

    def _entered(self, state: SlotState, slot: CommitSlot, number: int) -> int | None:
        if number < state.number:
            raise self._over(slot, number)
        if number > state.number:
            self._carrying()
            state.under_way = number
            return None
        if state.pointer is None:
            raise TransactionNotInProgress(
                f"commit {number} of {slot} was refused before, and stays so"
            )
        return state.pointer

    def _over(self, slot: CommitSlot, number: int) -> TransactionNotInProgress:
        return TransactionNotInProgress(
            f"commit {number} of {slot} is over: a later one has ended"
        )
