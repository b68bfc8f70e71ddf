"""One transaction from its start to its end, with its participants."""

import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Hashable
from contextvars import ContextVar
from sys import modules
from types import MethodType
from typing import Any, Self, TypeVar

from coordinator import tracing
from coordinator.brief_errors import shorten
from coordinator.callbacks import CallsBack
from coordinator.deciding import TakesDecider
from coordinator.errors import (
    MisusedTransaction,
    ParticipantFailed,
    TransactionNotInProgress,
    TransactionOutcomeUnknown,
    TransactionRefused,
)
from coordinator.fork_guard import refuse
from coordinator.interfaces import Cargo, Coordinator, Participant, TransactionAware
from coordinator.participants import (
    Participants,
    checked_participant,
    completed,
    note_others,
    persist,
    persist_and_flush,
    raise_first,
    raise_interrupt,
    take_cargo,
)
from coordinator.preparation import Prepares
from coordinator.resolve_outcome import settle
from coordinator.transaction import (
    ACTIVE,
    COMMITTED,
    ENDING,
    NEW,
    Status,
    Transaction,
)

Exits = Callable[[type[BaseException] | None, BaseException | None, object], None]


class BlockExit:
    """The method `__exit__`, which a `with` statement holds until its block is over.

    An interrupt may come as the method begins, and then it never runs. The end of the
    block can still be noticed: nobody holds the method any more. For that this class
    gives the owner `_block`, a weak reference to the method. It sets `_block` anew at
    each look-up until the owner is `_within` the block.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, owner: Any, kind: object = None) -> Exits:
        if owner is None:
            return self._function
        method = MethodType(self._function, owner)
        if not owner._within:
            owner._block = weakref.ref(method)
        return method


def this_task() -> tuple[int, object]:
    """Returns this thread and this task.

    A new thread or task may inherit the context variables of its creator, and is
    still another one.
    """
    if "asyncio" in modules:
        asyncio = modules["asyncio"]
        # While another thread imports it, it lacks names, and no loop runs.
        is_whole = "_get_running_loop" in asyncio.__dict__
        if is_whole and asyncio._get_running_loop() is not None:
            return threading.get_ident(), asyncio.current_task()
    return threading.get_ident(), None


P = TypeVar("P", bound=TransactionAware)


class TransactionContext(CallsBack, TakesDecider, Prepares):
    """A transaction and its participants, called as `TransactionAware` says.

    In a `with` statement it commits at the end of the block, or undoes everything when
    the block raises. It serves one transaction, and one thread at a time.

    `begun` is a transaction that was begun elsewhere and ends here.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *participants: TransactionAware,
        timeout_s: float | None = None,
        long: bool = False,
        begun: Transaction | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        for participant in participants:
            checked_participant(participant)
        self.coordinator = coordinator
        self.status = NEW
        self._participants = Participants()
        self._known: dict[Hashable, TransactionAware] = {}
        self._waiting = list(participants)
        self._timeout_s = timeout_s
        self._long = long
        self._begun = begun
        self._clock_s = clock_s
        self._tx: Transaction | None = None
        self._place: object = None
        self._failure: BaseException | None = None
        # Inside its `with` block while the bound `__exit__` lives: see `BlockExit`.
        self._within = False
        self._block: weakref.ref[MethodType] | None = None

    # Makes a transaction that begins with its commit, or None, for a block that begins
    # without participants.
    start_with_commit: Callable[[float | None], Transaction | None] | None = None

    @property
    def transaction(self) -> Transaction:
        """The snapshot it reads with, and the pointer it writes with now."""
        if self._tx is None:
            raise MisusedTransaction("the transaction has not begun")
        return self._tx

    @property
    def participants(self) -> tuple[TransactionAware, ...]:
        """The participants that the block was begun with, in their order."""
        return tuple(self._waiting)

    @property
    def begins_later(self) -> bool:
        """True where no coordinator is asked before somebody looks at it."""
        return self._begun is not None and not self._begun.has_begun

    @property
    def is_entered(self) -> bool:
        """True from when its block begins to when that has been left."""
        return self._within

    @property
    def may_undo(self) -> bool:
        """True when it has begun, and may still be rolled back."""
        return self.status in (ACTIVE, ENDING)

    def move(self) -> Callable[[], None]:
        """Leaves this thread or task; what it returns enters the block in another."""
        _open.set(tuple([one for one in _open.get() if one is not self]))

        def enter() -> None:
            self._place = this_task()
            _open.set((*_open.get(), self))

        return enter

    def start(self) -> Transaction:
        """Begins the transaction and starts all participants."""
        if self.status is not NEW:
            raise entered_already(self.status)
        if self._long or self._begun is not None:
            self._tx = self._begin_otherwise()
        elif self.start_with_commit is not None and not self._waiting:
            begun = self.start_with_commit(self._timeout_s)
            self._tx = begun or self.coordinator.start_short(self._timeout_s)
        else:
            self._tx = self.coordinator.start_short(self._timeout_s)
        self.status = ACTIVE
        try:
            for participant in self._waiting:
                self.join(participant)
        except BaseException as error:
            self._undo(error)
            raise
        return self._tx

    def join(self, participant: TransactionAware) -> None:
        """Adds a participant, and starts it at once if the transaction has begun."""
        checked_participant(participant)
        completed(participant).require_coordinator(self.coordinator)
        if self.status is NEW:
            self._waiting.append(participant)
            return
        self._require_active("join")
        self._take_if_decides(self._participants.add(participant, self.transaction))

    def joined(
        self, key: Hashable, make: Callable[[], P], *, while_ending: bool = False
    ) -> P:
        """Returns the participant of this key; makes and joins it if there is none.

        `while_ending` is for a participant that has nothing to flush, only something to
        undo. It may join while others flush, and is rolled back with them.
        """
        if not (self.may_undo if while_ending else self.status is ACTIVE):
            self._require_active("joined")
        found: Any = self._known.get(key)
        if found is None:
            found = make()
            self._participants.add(found, self._tx or self.transaction)
            self._known[key] = found
        return found  # type: ignore[no-any-return]  # the type that `make` has

    def flush(self) -> None:
        """Lets participants write what others may read before the commit.

        Messages go to who reads with `isolation="uncommitted"`, who keeps them if they
        are rolled back. All others get them with the commit, and wait for that from
        here on. When this raises, the block may go on.
        """
        self._require_active("flush")
        self._participants.flush_early(self)

    def require_writable(self, participant: Participant) -> None:
        """Has no crash forget the transaction, for one that writes before its end."""
        self._require_active("flush")
        persist(self.coordinator, [participant], self.transaction)

    def snapshot_for(self, call: str) -> Transaction:
        """Returns the snapshot to read with in the block; refuses after a rollback."""
        if not self.may_undo:
            self._require_active(call)
        return self.transaction

    def checkpoint(self) -> Transaction:
        """Lets participants write their changes, and goes on with a new pointer."""
        self._require_active("checkpoint")
        known = True
        try:
            in_order = self._participants.in_commit_order()
            first = [one for one in in_order if not one.flushes_last]
            persist_and_flush(self.coordinator, first, self.transaction)
            known = False
            self._tx = self.coordinator.checkpoint(self.transaction)
            known = True
            self._participants.update(self._tx)
        except BaseException as error:
            # An abort names the pointers it ends, so it would miss a new pointer that
            # was lost with the answer.
            self._undo(error, invalidate=not known)
            raise
        return self._tx

    def require_decidable(self) -> None:
        """Raises what refuses the block before its decider commits.

        It is for a decider that commits before `finish`, which does not ask again.
        """
        self._require_active("require_decidable")
        self._require_decidable(self.transaction, self._participants)

    def finish(self) -> None:
        """Commits; raises when that was refused, or when the outcome is unknown."""
        if self.status is not ACTIVE:
            self._require_active("finish")
        tx = self._tx or self.transaction
        operation = tracing.begin_operation() if tracing.API in modules else None
        self.status = ENDING
        try:
            changes = self._participants.changes(tx)
            if self._decider is not None:
                self._decide(tx, self._participants)
                self.status = COMMITTED
                self._committed(tx)
                if operation is not None:
                    operation.settled("commit", _known_id(tx))
                return
            asked_s = self._clock_s()
            first, last = self._participants.apart_with_cargo()
            if first:
                self._check(changes)
                persist_and_flush(self.coordinator, first, tx)
            cargo = take_cargo(last, self.coordinator, tx)
            if not first and (changes or cargo is None):
                self._check(changes, at_commit=not last)
            if last:
                persist_and_flush(self.coordinator, last, tx)
            interrupt = self._commit(tx, asked_s, cargo)
            self.status = COMMITTED  # before any call: an interrupt would undo it
            self._committed(tx, interrupt)
            if operation is not None:
                operation.settled("commit", _known_id(tx))
        except BaseException as error:
            self.status = Status(self._decided or self.status)
            if operation is not None:
                operation.settled("commit", _known_id(tx), error=error)
            if self.status is ENDING:  # the commit was not asked for
                self._undo(error)
            elif self.status is COMMITTED:
                self._notify_rest(tx)
            raise

    def _committed(self, tx: Transaction, stop: BaseException | None = None) -> None:
        """Tells all participants; raises what they raise, and an interrupt."""
        failures = self._participants.announce(tx)
        if self._callbacks is not None:
            failures = [*failures, *self._call_back(committed=True)]
        if failures or stop is not None:
            raise_first([*filter(None, [stop]), *failures], f"{self} stays committed")

    def _notify_rest(self, tx: Transaction) -> None:
        """Tells those that an interrupt left; none is told twice."""
        self._participants.announce(tx)
        self._call_back(committed=True)

    def abort(self) -> None:
        """Undoes everything; a block that ends after it commits nothing."""
        self._require_active("abort")
        failure = ParticipantFailed(f"{self} could not be undone")
        raised = self._undo(failure, notes_raised=False)
        self._failure = None
        if hasattr(failure, "__notes__"):
            note_others(failure, raised)
            raise failure
        if raised:
            raise raised[0]

    def __enter__(self) -> Self:
        """Begins; an interrupt finds the block entered, or everything undone."""
        if self.status is not NEW:  # its block may be open in another thread
            raise entered_already(self.status)
        here, opened = this_task(), _open.get()
        outer = _at(here, self.coordinator, opened) if opened else None
        if outer is not None and outer.status in (ACTIVE, ENDING):
            raise MisusedTransaction(
                f"{outer} is already open here; join it with its join(), or begin the "
                f"other one in a thread or task of its own"
            )
        if self._block is not None and self._block() is None:
            self._block = None  # entered by hand, and not by a `with` statement
        self._place = here
        try:
            self.start()
            _open.set((*_open.get(), self))  # a participant may have opened one, too
        except BaseException as error:
            if self.may_undo:
                self._undo(error)
            shorten(error)
            raise
        self._within = True
        return self

    @BlockExit
    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        """Commits, or undoes everything if the block raised."""
        if not self._within and not self.may_undo:
            raise left_already(self)
        self._block = None  # from here on this call sees to its end
        try:
            if error is not None:
                if self.status is ACTIVE:
                    self._undo(error)
            elif self.status is ACTIVE:
                self.finish()
            elif self._failure is not None:
                raise MisusedTransaction(
                    f"{self} was rolled back, and the block went on"
                ) from self._failure
        except BaseException as interrupt:
            if self.may_undo:  # the interrupt came between two steps
                self._undo(interrupt)
            shorten(interrupt)
            raise
        finally:
            self._place = None  # also for tasks that were made in the block
            self._within = False
            opened = _open.get()
            alone = opened == (self,)  # nearly always
            _open.set(() if alone else tuple([one for one in opened if one._within]))

    def __str__(self) -> str:
        return "transaction (not begun)" if self._tx is None else self._tx.label

    def __repr__(self) -> str:
        return f"<TransactionContext {self}, {self.status.value}>"

    def _abandon(self) -> None:
        """Undoes a block that an interrupt ended just before `__exit__` began."""
        self._within = False
        if self.may_undo:
            self._undo(ParticipantFailed(f"an interrupt ended the block of {self}"))

    def _begin_otherwise(self) -> Transaction:
        if self._begun is not None:
            return self._begun
        if self._timeout_s is not None:
            raise MisusedTransaction("a long transaction has no time-out of its own")
        return self.coordinator.start_long()

    def _require_active(self, call: str) -> None:
        if self.status is Status.PREPARED:
            raise MisusedTransaction(
                f"{self} is prepared, and prepare() is the last call of its block"
            )
        if self.status is not ACTIVE:
            raise MisusedTransaction(
                f"{call}() needs an active transaction, and {self} is "
                f"{self.status.value}"
            ) from self._failure

    def _check(self, changes: Collection[bytes], *, at_commit: bool = False) -> None:
        """Asks `can_commit`, or leaves that to the commit, which is one call less.

        It may where nothing can conflict, or where nothing is written before.
        """
        later = None
        if at_commit or not changes:
            later = getattr(self.coordinator, "check_at_commit", None)
        if later is None:
            self.coordinator.can_commit(self.transaction, changes)
        else:
            later(self.transaction, changes)

    def _commit(
        self, tx: Transaction, asked_s: float, cargo: Cargo | None
    ) -> BaseException | None:
        """Commits; returns the interrupt that came meanwhile, or None."""
        try:
            if cargo is None:
                self.coordinator.commit(tx)
            else:
                self.coordinator.commit_with(tx, cargo)  # type: ignore[attr-defined]
        except TransactionRefused as refusal:
            self._undo(refusal)
            raise
        except BaseException as error:
            self.status = Status.UNKNOWN
            if not self._settle(asked_s, error):
                self._undo(error, invalidate=True)
                raise
            return None if isinstance(error, Exception) else error
        return None

    def _settle(self, asked_s: float, cause: BaseException) -> bool:
        try:
            return settle(
                self.coordinator,
                self.transaction,
                open_for_s=lambda: self._clock_s() - asked_s,
            )
        except TransactionOutcomeUnknown as unknown:
            unknown.add_note(f"the commit had failed with {cause!r}")
            raise

    def _undo(
        self,
        cause: BaseException,
        *,
        invalidate: bool = False,
        notes_raised: bool = True,
    ) -> list[BaseException]:
        """Rolls all back; aborts if all is undone, and invalidates otherwise.

        Called again after an interrupt, it goes on. Returns what `on_rollback` raised.
        """
        self.status, self._failure = ENDING, cause
        failures = self._participants.roll_back(self.transaction)
        invalid = isinstance(cause, TransactionNotInProgress)
        undone = not failures and not invalidate and not invalid
        try:
            if undone:
                self.coordinator.abort(self.transaction)
            else:
                self.coordinator.invalidate(self.transaction)
        except BaseException as error:
            failures.append(error)
            if not isinstance(error, Exception):  # it may not have been asked for
                try:
                    self.coordinator.invalidate(self.transaction)
                except Exception as another:
                    failures.append(another)
        self.status = Status.ABORTED if undone else Status.INVALIDATED
        raised = self._call_back(committed=False)
        note_others(cause, [*failures, *raised] if notes_raised else failures)
        raise_interrupt([*failures, *raised], cause)
        return raised


def entered_already(status: Status) -> MisusedTransaction:
    """Makes the error of a block that is entered a second time."""
    why = f"a context serves for one transaction, and is {status.value}"
    return MisusedTransaction(f"{why}; make a new one")


def left_already(block: object) -> MisusedTransaction:
    """Makes the error of a block that is left a second time, or was never entered."""
    return MisusedTransaction(
        f"{block!r} has no open block to leave: a `with` statement leaves it once"
    )


def _known_id(tx: Transaction) -> int | None:
    """Returns the id of a transaction; None for one that nobody has looked at."""
    return tx.transaction_id if tx.has_begun else None


_open: ContextVar[tuple[TransactionContext, ...]] = ContextVar("_open", default=())


def _forget_open_ones() -> None:
    """Makes a forked child leave the open blocks, which belong to its parent."""
    for context in _open.get():
        refuse(context, os.getppid())
    _open.set(())


os.register_at_fork(after_in_child=_forget_open_ones)


def current_transaction(coordinator: Coordinator) -> TransactionContext | None:
    """Returns the context of the `with` block that this thread or task is in, or None.

    It does so also when the transaction was rolled back and the block goes on: its
    writes must not go anywhere else, and `join` refuses them. A committed one is not
    returned.

    A task whose event loop runs inside a block, as with `asyncio.run`, is refused: its
    writes would miss the block, and the tasks of a loop must not share a transaction.
    """
    opened = _open.get()
    if not opened:
        return None
    here = this_task()
    found = _at(here, coordinator, opened)
    around = found or _at((here[0], None), coordinator, opened)
    if around is not found:
        raise MisusedTransaction(
            f"{around} was begun outside of the event loop that runs here, and is of "
            f"none of its tasks; do this outside of the loop, or begin a transaction "
            f"in the task"
        )
    return found


def _at(
    place: object, coordinator: Coordinator, opened: tuple[TransactionContext, ...]
) -> TransactionContext | None:
    for context in opened:
        if (
            context.coordinator is coordinator
            and context.status is not COMMITTED
            and context._place == place
            and context._within
        ):
            block = context._block
            if block is None or block() is not None:
                return context
            context._abandon()  # a later call notices it
    return None


def transaction(
    coordinator: Coordinator,
    *participants: TransactionAware,
    timeout_s: float | None = None,
    long: bool = False,
) -> TransactionContext:
    """Makes a context; `with transaction(coordinator, table):` commits at its end."""
    return TransactionContext(
        coordinator, *participants, timeout_s=timeout_s, long=long
    )
