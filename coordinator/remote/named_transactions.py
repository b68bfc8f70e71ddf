"""Transactions of a coordinator as requests name them: by their id."""

import base64
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from coordinator.errors import (
    BadRequest,
    PreparedNotFound,
    TransactionNotInProgress,
)
from coordinator.interfaces import Coordinator
from coordinator.optional_ports import (
    KnowsLives,
    life_of,
    note_writers,
    outcome_of,
)
from coordinator.outcome import KnownOutcome, Outcome, checked_written
from coordinator.pointers import Pointers
from coordinator.prepared_transactions import (
    PreparedTransaction,
    checked_prepared_name,
    two_phases,
)
from coordinator.remote.wire import LONGEST_NAME, is_number, shown, whole_number
from coordinator.resolve_outcome import settle
from coordinator.transaction import POINTERS_PER_MS, Transaction, TransactionType
from coordinator.transaction_status import (
    NEVER,
    OPEN,
    STATES,
    Standing,
    TransactionCounts,
    counts,
    standing,
    standings,
)

KINDS = tuple(one.name.lower() for one in TransactionType)
# What a person may decide of a transaction whose outcome nobody knows.
DECIDABLE = (Outcome.COMMITTED.value, Outcome.ROLLED_BACK.value)
# One that is open for longer hangs, where nobody has it any more.
HANGING_S = 900


def now_ms() -> int:
    """Returns the time of this machine."""
    return time.time_ns() // 1_000_000


def as_it_is(_: int, standing: Standing) -> Standing:
    """Adds nothing to what is known of a transaction."""
    return standing


class NamedTransactions:
    """Calls a coordinator for transactions that are named by their id.

    Beside the id stands what a coordinator has to know of one: whether its `kind` is
    short or long, and its further write pointers, the `checkpoints`. `enrich` adds to a
    standing the facts known of the client that began it.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        clock_ms: Callable[[], int] = now_ms,
        enrich: Callable[[int, Standing], Standing] = as_it_is,
    ) -> None:
        self._coordinator = coordinator
        self._clock_ms = clock_ms
        self._enrich = enrich

    def begin(
        self, kind: str = "short", *, timeout_s: float | None = None
    ) -> Transaction:
        """Begins a transaction, which outlives this process; a long one never ends."""
        checked_beginning(kind, timeout_s)
        if kind == "long":
            return self._coordinator.start_long(outlives_process=True)
        return self._coordinator.start_short(timeout_s, outlives_process=True)

    def snapshot(self) -> Transaction:
        """Returns a read-only transaction, which needs no end."""
        return self._coordinator.snapshot()

    def standings(self, *, state: str = OPEN) -> list[Standing]:
        """Returns all that are open or invalid, the oldest first."""
        found = standings(self._coordinator, checked_state(state))
        return [self._enrich(one.transaction_id, one) for one in found]

    def standing(self, transaction: int) -> Standing:
        """Returns one, whatever became of it."""
        found = standing(self._coordinator, checked_id(transaction))
        return self._enrich(found.transaction_id, found)

    def find_hanging(self, *, older_than_s: float = HANGING_S) -> list[Standing]:
        """Returns those that are open for longer, and that nobody has any more."""
        older_than_ms = checked_older_than(older_than_s) * 1000
        before_ms = int(self._clock_ms() - older_than_ms)
        found = self.standings()
        return [one for one in found if one.is_hanging(before_ms=before_ms)]

    def invalid_size(self) -> int:
        """Counts the invalid pointers."""
        return self._coordinator.invalid_size()

    def truncate(
        self, *, before_ms: int | None = None, pointers: Sequence[int] | None = None
    ) -> bool:
        """Forgets invalid pointers, those named or those begun before a time.

        Returns True if any was forgotten.
        """
        before = None if before_ms is None else checked_before_ms(before_ms)
        listed = checked_pointer_list(() if pointers is None else pointers, "pointers")
        checked_truncation(before_ms, pointers)
        if before is not None:
            return self._coordinator.truncate_invalid_tx_before(before)
        return self._coordinator.truncate_invalid_tx(listed)

    def outcome(self, transaction: int, *, life: str | None = None) -> KnownOutcome:
        """Tells what became of what was written with a pointer, and of which life.

        With a `life` that of its own only.
        """
        coordinator, pointer = self._coordinator, checked_written(transaction)
        if life is None:
            found = coordinator.outcome(pointer)
        else:
            found = outcome_of(coordinator, pointer, life=checked_life(life))
        return KnownOutcome(found, life_of(coordinator, pointer))

    def decide(
        self, transaction: int, outcome: str, *, life: str | None = None
    ) -> None:
        """Writes down the outcome of a pointer that nobody knows."""
        coordinator = self._coordinator
        pointer, decided = checked_id(transaction), checked_decision(outcome)
        if not isinstance(coordinator, KnowsLives):
            raise BadRequest(
                f"{type(coordinator).__name__} takes no decisions: end what waits for "
                f"an outcome where it is kept"
            )
        coordinator.decide(
            pointer,
            committed=decided == Outcome.COMMITTED.value,
            life=None if life is None else checked_life(life),
        )

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong."""
        return self._coordinator.status()

    def counts(self) -> TransactionCounts:
        """Returns how many there are."""
        return counts(self._coordinator)

    def can_commit(
        self,
        transaction: int,
        *,
        kind: str = "short",
        checkpoints: Sequence[int] = (),
        changes: Sequence[bytes] = (),
    ) -> None:
        """Checks the changed keys, and remembers them for the commit."""
        tx = named(transaction, kind, checkpoints)
        self._coordinator.can_commit(tx, checked_keys(changes))

    def commit(
        self,
        transaction: int,
        *,
        kind: str = "short",
        checkpoints: Sequence[int] = (),
        check: bool | None = False,
        changes: Sequence[bytes] = (),
        repeat: bool | None = False,
    ) -> None:
        """Makes its writes visible; with `check`, after a look at the changed keys.

        With `repeat`, what a request before has done is told truly.
        """
        tx = named(transaction, kind, checkpoints)
        keys = keys_to_check(check, changes)
        self.commit_by(self._coordinator.commit, tx, keys, repeat=repeat)

    def commit_by(
        self,
        commit: Callable[[Transaction], None],
        tx: Transaction,
        keys: Sequence[bytes] | None,
        *,
        repeat: bool | None,
    ) -> None:
        """Does the same where `commit` ends it; `keys` are checked before, if any."""
        is_repeated = flag_or_null(repeat, what="repeat")
        try:
            if keys is not None:
                self._coordinator.can_commit(tx, keys)
            commit(tx)
        except TransactionNotInProgress:
            # A client that lost the answer to a commit asks again; the transaction may
            # have ended by then.
            is_repeat = is_repeated and self._began(tx)
            if not is_repeat or not self.has_committed(tx):
                raise

    def _began(self, tx: Transaction) -> bool:
        return standing(self._coordinator, tx.transaction_id).state != NEVER

    def has_committed(self, tx: Transaction) -> bool:
        """Tells whether an earlier commit took place; its holder never aborted it.

        One that is open ends without a commit. Raises `TransactionOutcomeUnknown`.
        """

        def open_for_s() -> float:
            # By the coordinator's time too, by which it forgets: it never goes back.
            pointer = self._coordinator.snapshot().transaction_id
            now_ms = max(self._clock_ms(), pointer // POINTERS_PER_MS)
            return now_ms / 1000 - tx.transaction_id / POINTERS_PER_MS / 1000

        return settle(self._coordinator, tx.transaction_id, open_for_s=open_for_s)

    def persist(
        self,
        transaction: int,
        *,
        kind: str = "short",
        checkpoints: Sequence[int] = (),
        participants: Sequence[str] | None = None,
    ) -> str:
        """Returns the id of its life, once a crash cannot forget that it exists.

        `participants` are the names of those who write rows elsewhere next.
        """
        tx = named(transaction, kind, checkpoints)
        names = checked_names(participants)
        if names is not None:
            note_writers(self._coordinator, tx, names)
        self._coordinator.persist(tx)
        return life_of(self._coordinator, tx.transaction_id)

    def abort(
        self,
        transaction: int,
        *,
        kind: str = "short",
        checkpoints: Sequence[int] = (),
    ) -> None:
        """Ends one whose holder has undone everything it wrote."""
        self._coordinator.abort(named(transaction, kind, checkpoints))

    def invalidate(
        self,
        transaction: int,
        *,
        kind: str = "short",
        checkpoints: Sequence[int] = (),
    ) -> bool:
        """Ends one so that nobody ever sees what it wrote; False after its end."""
        return self._coordinator.invalidate(named(transaction, kind, checkpoints))

    def checkpoint(
        self,
        transaction: int,
        *,
        kind: str = "short",
        checkpoints: Sequence[int] = (),
    ) -> list[int]:
        """Returns its further write pointers with a new one, which is on disk.

        Its holder goes on when this process does not.
        """
        tx = named(transaction, kind, checkpoints)
        checkpointed = self._coordinator.checkpoint(tx)
        note_writers(self._coordinator, checkpointed, [])
        self._coordinator.persist(checkpointed)
        return [*checkpointed.checkpoint_write_pointers]

    def prepare(
        self,
        transaction: int,
        name: str,
        *,
        kind: str = "short",
        checkpoints: Sequence[int] = (),
        principal: str | None = None,
    ) -> None:
        """Returns when only its name can end it."""
        tx, checked = named(transaction, kind, checkpoints), checked_name(name)
        two_phases(self._coordinator).prepare(tx, checked, principal=principal)

    def prepared(self) -> list[PreparedTransaction]:
        """Returns all that are prepared."""
        return two_phases(self._coordinator).prepared()

    def commit_prepared(self, name: str, *, transaction_id: int | None = None) -> None:
        """Commits one by its name; an earlier request that did so is no error."""
        end = two_phases(self._coordinator).commit_prepared
        self._end_prepared(end, name, transaction_id, Outcome.COMMITTED)

    def rollback_prepared(
        self, name: str, *, transaction_id: int | None = None
    ) -> None:
        """Rolls one back by its name; an earlier request that did so is no error."""
        end = two_phases(self._coordinator).rollback_prepared
        self._end_prepared(end, name, transaction_id, Outcome.ROLLED_BACK)

    def _end_prepared(
        self,
        end: Callable[..., None],
        name: str,
        transaction_id: int | None,
        wanted: Outcome,
    ) -> None:
        checked, pointer = checked_name(name), checked_prepared_id(transaction_id)
        try:
            end(checked, transaction_id=pointer)
        except PreparedNotFound as error:
            if pointer is None:
                raise
            outcome = self._coordinator.outcome(pointer)
            if outcome is not wanted:
                raise PreparedNotFound(
                    f"{error}; transaction {pointer} is {outcome.value}"
                ) from error


def named(
    transaction: int, kind: str = "short", checkpoints: Sequence[int] = ()
) -> Transaction:
    """Makes the part of a transaction that its calls need; nobody reads with it."""
    name, pointers = checked_kind(kind), checked_checkpoints(checkpoints)
    whole = checked_id(transaction)
    return Transaction(
        whole,
        0,
        write_pointer=pointers[-1] if pointers else whole,
        type=TransactionType[name.upper()],
        checkpoint_write_pointers=pointers,
    )


def checked_beginning(kind: object, timeout_s: object) -> None:
    """Raises `BadRequest` unless a transaction may begin so."""
    is_long = kind == "long" and timeout_s is None
    if not is_long and not (kind == "short" and is_number(timeout_s)):
        raise BadRequest(
            f"type {shown(kind)} with timeoutS {shown(timeout_s)}: it takes "
            f'"short" with a number or null, or "long" without one'
        )


def checked_state(state: object) -> str:
    """Returns the state that transactions are listed by; `BadRequest` for others."""
    if not isinstance(state, str) or state not in STATES:
        raise BadRequest(f"state is one of {', '.join(STATES)}, not {state!r}")
    return state


def checked_older_than(older_than_s: Any) -> float:
    """Returns a number of seconds; raises `BadRequest` for what is none."""
    is_given = older_than_s is not None and is_number(older_than_s)
    if not is_given or not 0 <= older_than_s * 1000 < math.inf:
        raise BadRequest("olderThanS is a number of seconds from 0 on")
    return float(older_than_s)


def older_than_in_text(text: str) -> float:
    """Reads that number of a query; raises `BadRequest` for other text."""
    try:
        return checked_older_than(float(text))
    except ValueError as error:
        raise BadRequest("olderThanS is a number of seconds from 0 on") from error


def checked_truncation(before_ms: object, pointers: object) -> None:
    """Raises `BadRequest` for both together, as nobody knows which is meant."""
    if before_ms is not None and pointers is not None:
        raise BadRequest("it takes beforeMs or pointers, not both")


def checked_before_ms(before_ms: object) -> int:
    """Returns a time in ms; raises `BadRequest` for what is none."""
    return whole_number(before_ms, "beforeMs")


def checked_life(life: object) -> str:
    """Returns the id of a life; raises `BadRequest` for what is no text.

    A coordinator knows what such an id looks like.
    """
    if not isinstance(life, str):
        raise BadRequest(f"life: {shown(life)} is not the id of a life")
    return life


def checked_decision(outcome: object) -> str:
    """Returns what may be decided; raises `BadRequest` for all else."""
    if not isinstance(outcome, str) or outcome not in DECIDABLE:
        raise BadRequest(
            f"outcome is one of {', '.join(DECIDABLE)}, not {shown(outcome)}"
        )
    return outcome


def checked_id(transaction: object) -> int:
    """Returns the id of a transaction; raises `BadRequest` for what is none."""
    return whole_number(transaction, "the transaction's id")


def checked_kind(kind: object) -> str:
    """Returns "short" or "long"; raises `BadRequest` for all else."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadRequest(f'type {shown(kind)} is neither "short" nor "long"')
    return kind


def checked_checkpoints(checkpoints: object) -> Pointers:
    """Returns further write pointers; raises `BadRequest` for what are none."""
    return checked_pointer_list(checkpoints, "checkpoints")


def checked_pointer_list(pointers: object, name: str) -> Pointers:
    """Returns a list of pointers; raises `BadRequest` for what is none."""
    if isinstance(pointers, Pointers):
        return pointers
    listed = checked_list(pointers, name)
    return Pointers([whole_number(pointer, name) for pointer in listed])


def checked_list(value: object, name: str) -> list[Any]:
    """Returns a list; raises `BadRequest` for what is none."""
    if not isinstance(value, list | tuple):
        raise BadRequest(f"{name} is not a list")
    return [*value]


def checked_keys(changes: object) -> list[bytes]:
    """Returns changed keys; raises `BadRequest` for what are none."""
    if not isinstance(changes, list | tuple) or not all(
        isinstance(one, bytes) for one in changes
    ):
        raise BadRequest("changes are not all strings of base64")
    return [*changes]


def keys_to_check(check: object, changes: object) -> list[bytes] | None:
    """Returns the keys that a commit checks; None where it checks nothing."""
    keys, is_checked = checked_keys(changes), flag_or_null(check, what="check")
    if keys and not is_checked:
        raise BadRequest("changes are for a commit that checks them: check is true")
    return keys if is_checked else None


def flag_or_null(flag: object, *, what: str) -> bool:
    """Returns true or false; null is false. Raises `BadRequest` for all else."""
    if flag is not None and not isinstance(flag, bool):
        raise BadRequest(f"{what} is true or false, not {shown(flag)}")
    return flag is True


def read_keys(sent: object) -> list[bytes]:
    """Returns changed keys as JSON has them, in base64; bytes as they are."""
    try:
        return [
            one if isinstance(one, bytes) else base64.b64decode(one, validate=True)
            for one in checked_list(sent, "changes")
        ]
    except (TypeError, ValueError) as error:
        raise BadRequest("changes are not all strings of base64") from error


def checked_names(participants: object) -> list[str] | None:
    """Returns the names of participants, if any; raises `BadRequest` for others."""
    if participants is None:
        return None
    listed = checked_list(participants, "participants")
    for one in listed:
        if not isinstance(one, str) or not 0 < len(one) <= LONGEST_NAME:
            raise BadRequest(
                f"participants: {shown(one)} is not a name of 1 to {LONGEST_NAME} "
                f"characters"
            )
    return listed


def checked_prepared_id(transaction_id: object) -> int | None:
    """Returns the id of a prepared transaction, where it is known."""
    if transaction_id is None:
        return None
    return whole_number(transaction_id, "transactionId")


def checked_name(name: object) -> str:
    """Returns the name of a prepared transaction; `BadRequest` for what is none."""
    if not isinstance(name, str):
        raise BadRequest(
            f"name: {shown(name)} is not the name of a prepared transaction"
        )
    return checked_prepared_name(name)
