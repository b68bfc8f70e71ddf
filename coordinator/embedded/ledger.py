"""The embedded coordinator's decisions: bookkeeping only, without locks or disk."""

from collections import deque
from collections.abc import Callable, Iterable

import attrs

from coordinator.embedded.invalid_pointers import Ended, InvalidPointers
from coordinator.embedded.lives import MOST_PER_MS, NAMELESS, Decisions, Lives
from coordinator.embedded.open_transactions import (
    ENDING,
    OPEN,
    PREPARED,
    OpenTransaction,
    OpenTransactions,
)
from coordinator.embedded.records import Invalidated, Lived, Prepared
from coordinator.errors import (
    BadRequest,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionRefused,
    TransactionTooLarge,
    TruncateRefused,
)
from coordinator.outcome import Aborts, Outcome
from coordinator.pointers import NO_POINTERS, Pointers
from coordinator.transaction import (
    NO_POINTER,
    POINTERS_PER_MS,
    SHORT,
    ClockMs,
    Transaction,
    TransactionType,
)


class CommittedChanges:
    """The keys of commits that some open transaction did not see.

    The keys of a commit are reserved while its record goes to disk: every open
    transaction that changed one of them is going to conflict with it.
    """

    def __init__(self) -> None:
        self._pointer_of: dict[bytes, int] = {}
        self._reserved: set[bytes] = set()
        self._in_order: deque[tuple[int, frozenset[bytes]]] = deque()

    def conflict(self, keys: Iterable[bytes], since: int) -> bytes | None:
        """Returns one of the keys that a commit above `since` changed, or None."""
        pointer_of, reserved = self._pointer_of, self._reserved
        for key in keys:
            if pointer_of.get(key, 0) > since or key in reserved:
                return key
        return None

    def reserve(self, keys: frozenset[bytes]) -> None:
        """Makes these keys conflict with every transaction from now on."""
        self._reserved |= keys

    def release(self, keys: frozenset[bytes]) -> None:
        """Ends the reservation of keys whose commit has happened or has failed."""
        self._reserved -= keys

    def add(self, commit_pointer: int, keys: frozenset[bytes]) -> None:
        """Makes these keys conflict with all that began below `commit_pointer`."""
        if keys:
            self._in_order.append((commit_pointer, keys))
            self._pointer_of |= dict.fromkeys(keys, commit_pointer)

    def forget_below(self, pointer: int) -> None:
        """Forgets the commits that all transactions from `pointer` on have seen."""
        in_order, pointer_of = self._in_order, self._pointer_of
        if not in_order and not pointer_of:
            return
        if pointer == NO_POINTER:
            in_order.clear()
            pointer_of.clear()
        while in_order and in_order[0][0] < pointer:
            commit_pointer, keys = in_order.popleft()
            for key in keys:
                if pointer_of.get(key) == commit_pointer:
                    del pointer_of[key]


# The time until the next try to time out a transaction whose end was not written.
LOOK_AGAIN_MS = 1000


@attrs.frozen
class ChangeLimits:
    """The limits for the changes of one transaction."""

    change_count: int = 2**31 - 1
    change_bytes: int = 2**63 - 1


class Ledger:
    """The open and invalid transactions, the committed keys, and the decisions on them.

    Nothing here is undone. A caller that has to write something down asks first, then
    writes, and then has it applied. `last` is the last pointer given out. `ended` is
    called with the pointers of transactions that have ended, once that can be seen.
    `elapsed_ms` is the time that time-outs count: the clock of the ids may be set. All
    pointers from now on end in `salt`, or in one of a few numbers after it; with None
    they need not. `lives` are set before the first one is given out.
    """

    lives: Lives

    def __init__(
        self,
        limits: ChangeLimits,
        first: int,
        last: int,
        elapsed_ms: ClockMs,
        *,
        salt: int | None = None,
    ) -> None:
        self.elapsed_ms = elapsed_ms
        self.first = first
        self.last = last
        self.read_pointer = last
        self.open = OpenTransactions()
        self.invalid = InvalidPointers()
        self.committed = CommittedChanges()
        self.aborts = Aborts()
        self.decisions = Decisions()
        self.salt = salt
        self._behind_ms = salt or 0
        self._most_per_ms = POINTERS_PER_MS if salt is None else MOST_PER_MS
        self.ended: Callable[[Iterable[int]], object] = _tell_nobody
        # The step that an interrupt may leave half done: see `finish_step`.
        self.unfinished_step: Callable[[], object] | None = None
        self._limits = limits
        self.latest_ms = 0  # the time of the last decision

    def run_step(self, step: Callable[[], object]) -> None:
        """Takes a step that may be repeated after an interrupt in the middle of it."""
        self.unfinished_step = step
        step()
        self.unfinished_step = None

    def finish_step(self) -> None:
        """Repeats a step that an interrupt broke; called first under the lock."""
        step = self.unfinished_step
        if step is None:
            return
        try:
            step()
        except Exception:
            # The step itself fails: to repeat it would not help.
            self.unfinished_step = None
            raise
        self.unfinished_step = None

    def now_ms(self, clock_ms: int) -> int:
        """Returns the time, which never goes back."""
        if clock_ms > self.latest_ms:
            self.latest_ms = clock_ms
        return self.latest_ms

    def next_pointer(self, now_ms: int) -> int:
        """Returns the pointer that would be given out next."""
        by_time, next_one = now_ms * POINTERS_PER_MS + self._behind_ms, self.last + 1
        if by_time >= next_one:
            return by_time
        behind = (next_one - self._behind_ms) % POINTERS_PER_MS
        if behind < self._most_per_ms:
            return next_one
        return next_one - behind + POINTERS_PER_MS

    def take(self, pointer: int) -> Transaction:
        """Returns a snapshot whose id is used up and never in progress."""
        self.last = pointer
        return self._snapshot(pointer, SHORT)

    def start(self, entry: OpenTransaction) -> Transaction:
        """Opens a transaction under the next pointer."""
        tx = self._snapshot(entry.transaction_id, entry.type)
        self.last = entry.transaction_id
        self.open.add(entry)
        return tx

    def _snapshot(self, pointer: int, kind: TransactionType) -> Transaction:
        return Transaction(
            pointer,
            self.read_pointer,
            pointer,
            self.invalid.pointers,
            self.open.in_progress,
            self.open.first_short,
            kind,
        )

    def require(self, transaction_id: int) -> OpenTransaction:
        """Returns the open transaction of that id; refuses if there is none."""
        if transaction_id in self.open.by_id:
            return self.open.by_id[transaction_id]
        raise TransactionNotInProgress(
            f"transaction {transaction_id} is not in progress: it "
            f"{self._why_not(transaction_id)}"
        )

    def _why_not(self, transaction_id: int) -> str:
        if transaction_id in self.invalid.lost:
            return "was lost in a crash"
        if transaction_id in self.invalid.pointers:
            return "timed out or was invalidated (aborted from outside)"
        if self.gave_out(transaction_id):
            return "has ended"
        if self.first <= transaction_id <= self.last:
            return (
                "was given out by no life that this data knows. Perhaps the data was "
                "put back from a copy since, or is the copy; then nothing of it is here"
            )
        return f"was never given out here, where {self.first} to {self.last} were"

    def gave_out(self, pointer: int) -> bool:
        """Tells whether a pointer was given out here, now or in an earlier life."""
        return self.life_of(pointer) is not None

    def life_of(self, pointer: int) -> Lived | None:
        """Returns the life that gave out a pointer; all ask it who judge pointers."""
        return self.lives.of(pointer, last=self.last)

    def was_lost(self, transaction_id: int) -> bool:
        """Tells whether nothing here names it, so that it never commits here.

        A pointer that was never given out is refused: nobody here can tell its fate.
        """
        if transaction_id in self.invalid.lost:
            return True
        if not self.gave_out(transaction_id):
            raise TransactionNotInProgress(
                f"transaction {transaction_id} is not in progress: it "
                f"{self._why_not(transaction_id)}"
            )
        return False

    def outcome(self, pointer: int, *, life: int | None = None) -> Outcome:
        """Tells the outcome of the writes that were made with a pointer.

        A `life` has to be the one that gave it out.
        """
        found = self.life_of(pointer)
        if found is None or life not in (None, found.life):
            return self.decisions.of(pointer, life or NAMELESS) or Outcome.FORGOTTEN
        if pointer in self.open.in_progress:
            return Outcome.IN_PROGRESS
        if decided := self.decisions.of(pointer, found.life):
            return decided
        if pointer in self.invalid.pointers or pointer in self.aborts:
            return Outcome.ROLLED_BACK
        if pointer <= self.aborts.forgotten:
            return Outcome.FORGOTTEN
        return Outcome.COMMITTED

    def check_changes(self, entry: OpenTransaction, changes: Iterable[bytes]) -> None:
        """Remembers the changes for the commit, or the reason why it is refused."""
        listed = _as_list(changes)
        if entry.is_refused:
            self.check_commit(entry)
        entry.changes = frozenset()
        entry.refusal = "its changes were refused, and not checked again since"
        self._check_size(entry, listed)
        keys = frozenset(map(bytes, listed))
        self._check_conflict(entry, keys)
        entry.changes, entry.refusal = keys, None

    def _check_size(self, entry: OpenTransaction, changes: list[bytes]) -> None:
        try:
            limits, size = self._limits, len(b"".join(changes))
        except TypeError as error:
            raise BadRequest(f"a change key is bytes: {error}") from error
        if len(changes) > limits.change_count or size > limits.change_bytes:
            raise TransactionTooLarge(
                f"transaction {entry.transaction_id} changes {len(changes)} keys of "
                f"{size} bytes; at most {limits.change_count} keys of "
                f"{limits.change_bytes} bytes are accepted"
            )

    def _check_conflict(self, entry: OpenTransaction, keys: frozenset[bytes]) -> None:
        # Of a conflict with a commit on its way to the disk, which may fail.
        key = next(iter(entry.lost & keys), None) if entry.lost else None
        if key is None:
            key = self.committed.conflict(keys, entry.transaction_id)
        if key is not None:
            entry.refusal = "another one committed a change of the same key first"
            if entry.outlives_process:
                entry.lost |= {key}
            raise TransactionConflict(
                f"transaction {entry.transaction_id} and one that committed since it "
                f"began changed the same key {key!r}"
            )

    def check_commit(self, entry: OpenTransaction) -> None:
        """Raises when the transaction must not commit."""
        if entry.refusal is not None:
            raise TransactionRefused(
                f"transaction {entry.transaction_id} cannot commit: {entry.refusal}"
            )
        if entry.changes:
            self._check_conflict(entry, entry.changes)

    def restore(self, entries: Iterable[OpenTransaction]) -> None:
        """Takes over the open transactions of an earlier process."""
        self.open = OpenTransactions(entries)
        for entry in self.open.by_name.values():
            self.committed.reserve(entry.reserved)

    def begin_prepare(self, entry: OpenTransaction, prepared: Prepared) -> None:
        """Takes the name and the keys of a transaction that was checked just now."""
        self.open.name(entry, prepared.name)
        self.begin_end(entry, reserve=entry.changes)

    def has_timed_out(self, entry: OpenTransaction) -> bool:
        """Tells whether the transaction was open for longer than it may be."""
        return self.elapsed_ms() > entry.due_ms

    def begin_end(self, entry: OpenTransaction, *, reserve: frozenset[bytes]) -> None:
        """Marks its end as under way; until then nobody else commits those keys.

        What is reserved for a prepared one stays so, whichever end it has.
        """
        entry.stage = ENDING
        if entry.prepared is None:
            entry.reserved = reserve
            if reserve:
                self.committed.reserve(reserve)

    def being_committed(self) -> list[frozenset[bytes]]:
        """Returns the keys of each commit that is on its way to the disk."""
        entries = self.open.by_id.values()
        return [entry.reserved for entry in entries if entry.is_committing]

    def give_back(self, entry: OpenTransaction) -> None:
        """Opens a transaction again whose end was not written after all."""
        if entry.prepared is not None:
            entry.stage = PREPARED
            return
        self._release(entry)
        self.open.unname(entry)
        entry.stage = OPEN
        look_again_ms = max(entry.due_ms, self.elapsed_ms() + LOOK_AGAIN_MS)
        self.open.expect_expiry(entry.transaction_id, look_again_ms)

    def refuse(self, entry: OpenTransaction) -> None:
        """Opens a transaction again whose commit was not written."""
        self.give_back(entry)
        if entry.outlives_process and entry.prepared is None:
            entry.is_refused = True
            entry.refusal = "its commit could not be written before; begin another one"

    def _release(self, entry: OpenTransaction) -> None:
        self.committed.release(entry.reserved)
        entry.reserved = frozenset()

    def commit(self, entry: OpenTransaction) -> int:
        """Makes it visible to all that begin from now on; returns its commit pointer.

        That pointer is not used up: a transaction that begins with it sees the commit.
        """
        commit_pointer = self.last + 1
        checkpoints, keys = entry.checkpoints, entry.changes
        self.open.remove(entry)
        if entry.reserved:
            self._release(entry)
        if keys:
            self.committed.add(commit_pointer, keys)
        written_with = entry.transaction_id
        if checkpoints is not NO_POINTERS and checkpoints:
            written_with = checkpoints[-1]
        if written_with > self.read_pointer:
            self.read_pointer = written_with
        is_any_prepared = bool(self.open.by_name)
        self.committed.forget_below(
            self.open.first_to_check if is_any_prepared else self.open.first_short
        )
        self.ended((entry.transaction_id,))
        return commit_pointer

    def abort(self, entry: OpenTransaction) -> None:
        """Ends a transaction whose writes are taken to be undone."""
        self.last = max(self.last, entry.transaction_id)
        self.open.remove(entry)
        self.aborts.add(entry.pointers)
        self.read_pointer = max(self.read_pointer, entry.transaction_id)
        self.ended((entry.transaction_id,))

    def invalidate(self, entry: OpenTransaction, now_ms: int) -> None:
        """Ends a transaction so that nobody will see its writes."""
        self.time_out([entry], now_ms)
        if entry.type is SHORT:
            self.read_pointer = max(self.read_pointer, entry.transaction_id)

    def time_out(self, entries: list[OpenTransaction], now_ms: int) -> Invalidated:
        """Ends transactions that nobody ended, so that nobody will see their writes."""
        pointers = self.open.remove_all(entries)
        for entry in entries:
            if entry.reserved:  # it was prepared
                self._release(entry)
        self.invalid.add(pointers, Ended(now_ms, self.elapsed_ms()))
        self.ended(pointers)
        return Invalidated(now_ms, pointers)

    def checkpoint(self, entry: OpenTransaction, pointer: int) -> None:
        """Lets a transaction go on with the next pointer."""
        self.last = pointer
        self.open.add_checkpoint(entry, pointer)

    def invalid_before(self, bound: int) -> Pointers:
        """Returns the invalid pointers below `bound`; refuses if one is open there."""
        in_progress = self.open.in_progress
        if in_progress and in_progress[0] < bound:
            raise TruncateRefused(
                f"transaction {in_progress[0]} is still in progress, and began "
                f"before {bound}"
            )
        return Pointers(pointer for pointer in self.invalid.pointers if pointer < bound)


def _as_list(changes: Iterable[bytes]) -> list[bytes]:
    try:
        return list(changes)
    except TypeError as error:
        raise BadRequest(f"changes are a list of bytes: {error}") from error


def _tell_nobody(_: Iterable[int]) -> None:
    """Does nothing, until a store asks to be told who has ended."""
