"""The participants of a transaction, the calls to all of them, and a tracked write.

Checks whether an object can take part, and makes each call of `TransactionAware`.
"""

import enum
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from coordinator.errors import (
    BadRequest,
    MisusedTransaction,
    ParticipantFailed,
    leaves_no_doubt,
)
from coordinator.interfaces import (
    Cargo,
    Coordinator,
    Participant,
    TransactionAware,
    joined,
)
from coordinator.optional_ports import note_writers
from coordinator.transaction import Transaction

# The number of arguments of each call.
_CALLS: dict[str, int] = {
    "start_tx": 1,
    "update_tx": 1,
    "get_tx_changes": 0,
    "commit_tx": 0,
    "post_tx_commit": 0,
    "rollback_tx": 0,
}
_NAME = "transaction_aware_name"
# Classes that have all calls: only the first participant of a class is checked. So many
# are kept, and not those that a program makes over and over.
_complete: set[type] = set()
KNOWN_CLASSES = 1000


def checked_participant(participant: object) -> None:
    """Raises `BadRequest` for an object that cannot take part, with what is missing."""
    kind = type(participant)
    if kind in _complete:
        return
    if isinstance(participant, type):
        raise BadRequest(
            f"{participant.__name__} is a class, and cannot take part in a "
            f"transaction; pass an object of it"
        )
    missing = [name for name in (*_CALLS, _NAME) if not _has(participant, name)]
    if missing:
        raise BadRequest(
            f"{participant!r:.200} cannot take part in a transaction: it has no "
            f"{', '.join(missing)}"
        )
    if _lacks_undo(kind):
        raise BadRequest(
            f"{participant!r:.200} cannot take part in a transaction: it has a "
            f"commit_tx of its own, and no rollback_tx to undo what that writes"
        )
    for name, count in _CALLS.items():
        _check_call(participant, getattr(participant, name), name, count)
    if len(_complete) < KNOWN_CLASSES and all(hasattr(kind, name) for name in _CALLS):
        _complete.add(kind)


def _has(participant: object, name: str) -> bool:
    """Looks for the attribute, in the class first: a property may be slow."""
    return hasattr(type(participant), name) or hasattr(participant, name)


def _lacks_undo(kind: type) -> bool:
    return (
        issubclass(kind, Participant)
        and kind.commit_tx is not Participant.commit_tx
        and kind.rollback_tx is Participant.rollback_tx
    )


def _check_call(
    participant: object, call: Callable[..., Any], name: str, count: int
) -> None:
    if not callable(call) or inspect.iscoroutinefunction(call):
        what = "a coroutine, which nobody awaits" if callable(call) else "no method"
        raise BadRequest(
            f"{participant!r:.200} cannot take part in a transaction: its {name} is "
            f"{what}"
        )
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        return  # not every callable has a signature
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        given = "the transaction" if count else "nothing"
        raise BadRequest(
            f"{participant!r:.200} cannot take part in a transaction: its {name} is "
            f"called with {given}, and {error}"
        ) from error


class _Completed:
    """A participant of a class that does not inherit `Participant`, with the rest."""

    _REST = Participant()

    def __init__(self, given: TransactionAware) -> None:
        self.given = given
        # Looked up here, so that an interrupt finds no code of ours before a call.
        for name in (*_CALLS, "post_tx_prepare"):
            setattr(self, name, getattr(given, name, None))

    def __getattr__(self, name: str) -> Any:
        given = self.given
        # A double answers to any name, and has no cargo.
        if name == "commit_cargo" and not hasattr(type(given), name):
            return None
        return getattr(given, name, getattr(self._REST, name, None))


def completed(participant: TransactionAware) -> Participant:
    """Returns a participant with all that `Participant` has, whatever its class."""
    found: Any = participant
    if not isinstance(participant, Participant | _Completed):
        found = _Completed(participant)
    return found  # type: ignore[no-any-return]


class Participants:
    """The participants in the order of their joining, each once."""

    def __init__(self) -> None:
        self._joined: list[Participant] = []
        self._listed: dict[int, Participant] = {}  # the first ones, by their ids
        # The places where `roll_back` and `announce` go on after an interrupt.
        self._to_roll_back: Iterator[Participant] | None = None
        self._to_tell: Iterator[Participant] | None = None
        self._failures: list[BaseException] = []

    def add(self, participant: TransactionAware, tx: Transaction) -> Participant:
        """Starts a participant and then lists it, unless it is listed already."""
        listed = self.listed(participant) if self._joined else None
        if listed is not None:
            return listed
        if type(participant) not in _complete:
            checked_participant(participant)
        if isinstance(participant, Participant):  # as ours are: spares them a call
            listed = participant
        else:
            listed = completed(participant)
        try:
            if tx.begins_with_commit and not listed.waits_for_commit:
                tx = tx.begun()
            participant.start_tx(tx)
        except BaseException as error:
            _name(error, listed, "start_tx", tx)
            raise
        self._joined.append(listed)
        return listed

    def listed(self, participant: TransactionAware) -> Participant | None:
        """Returns a participant that is rolled back with the others, or None."""
        known = self._listed
        for one in self._joined[len(known) :]:
            known[_id(one)] = one
        return known.get(id(participant))

    def update(self, tx: Transaction) -> None:
        """Gives all participants the new write pointer."""
        for participant in self._joined:
            try:
                participant.update_tx(tx)
            except BaseException as error:
                _name(error, participant, "update_tx", tx)
                raise

    def flush_early(self, context: Any) -> None:
        """Lets all write what others may read before the commit."""
        for participant in self._joined:
            try:
                participant.flush_early(context)
            except BaseException as error:
                _name(error, participant, "flush_early", context.transaction)
                raise

    def changes(self, tx: Transaction) -> list[bytes]:
        """Returns the changed keys of all participants."""
        changes: list[bytes] = []
        for participant in self._joined:
            try:
                changes += participant.get_tx_changes()
            except BaseException as error:
                _name(error, participant, "get_tx_changes", tx)
                raise
        return changes

    def changing_beside(self, decider: Participant) -> list[str]:
        """Returns the names of the others that change something."""
        return [
            one.transaction_aware_name
            for one in self._joined
            if one is not decider and (one.prepares or list(one.get_tx_changes()))
        ]

    def in_commit_order(self) -> list[Participant]:
        """Returns them in the order of joining; those that flush last at the end."""
        return sorted(self._joined, key=_flushes_last)

    def apart_with_cargo(self) -> tuple[list[Participant], list[Participant]]:
        """Returns them in two parts: the last ones may have a cargo for the commit.

        All others flush before anybody is asked for one.
        """
        in_order, at = self._joined[:], len(self._joined)
        if at > 1:
            in_order = self.in_commit_order()
        while at and in_order[at - 1].commit_cargo is not None:
            at -= 1
        return in_order[:at], in_order[at:]

    def roll_back(self, tx: Transaction) -> list[BaseException]:
        """Rolls all back and returns the failures: none means that all is undone.

        Called again after an interrupt, it goes on with those that are left.
        """
        failures = self._failures
        if self._to_roll_back is None:
            self._to_roll_back = iter(self._joined)
        for participant in self._to_roll_back:
            try:
                answer: object = participant.rollback_tx()
                if answer is not True:
                    failures.append(_not_true(participant, "rollback_tx", answer))
            except BaseException as error:
                failures.append(error)
                _name(error, participant, "rollback_tx", tx)
        return failures

    def announce(self, tx: Transaction) -> list[BaseException]:
        """Tells all that `tx` is committed, and returns the errors that they raised.

        Called again after an interrupt, it goes on with those that are left.
        """
        failures = self._failures
        if self._to_tell is None:
            self._to_tell = iter(self._joined)
        for participant in self._to_tell:
            try:
                participant.post_tx_commit()
            except BaseException as error:
                failures.append(error)
                _name(error, participant, "post_tx_commit", tx)
        return failures

    def check_prepare(self) -> None:
        """Raises `MisusedTransaction` where one could not let go of its transaction."""
        for participant in self._joined:
            if participant.post_tx_prepare is None:
                raise MisusedTransaction(
                    f"{participant.transaction_aware_name} cannot take part in a "
                    f"transaction that is prepared: it has no post_tx_prepare(), to "
                    f"let go of a transaction that others end"
                )

    def let_go(self, tx: Transaction) -> list[BaseException]:
        """Tells all that `tx` is prepared, and returns the errors that they raised."""
        failures: list[BaseException] = []
        for participant in self._joined:
            try:
                if participant.post_tx_prepare is not None:
                    participant.post_tx_prepare()
            except BaseException as error:
                failures.append(error)
                _name(error, participant, "post_tx_prepare", tx)
        return failures


def flush(participants: Iterable[Participant], tx: Transaction) -> None:
    """Lets participants write, one after the other; raises at the first that cannot."""
    for participant in participants:
        try:
            answer: object = participant.commit_tx()
        except BaseException as error:
            _name(error, participant, "commit_tx", tx)
            raise
        if answer is not True:
            raise _not_true(participant, "commit_tx", answer)


def persist_and_flush(
    coordinator: Coordinator, participants: list[Participant], tx: Transaction
) -> None:
    """Lets participants write, once a crash cannot forget the transaction."""
    persist(coordinator, participants, tx)
    flush(participants, tx)


def persist(
    coordinator: Coordinator, participants: Iterable[Participant], tx: Transaction
) -> None:
    """Has the coordinator remember a transaction whose participants are to write.

    Nothing is persisted for those that share the journal.
    """
    outside = [one for one in participants if not one.shares_journal]
    if outside:
        names = [one.transaction_aware_name for one in outside]
        note_writers(coordinator, tx, names)
        coordinator.persist(tx)


def take_cargo(
    to_flush: list[Participant], coordinator: Coordinator, tx: Transaction
) -> Cargo | None:
    """Takes off the list the last participants whose rows the commit can carry."""
    cargoes: list[Cargo] = []
    while to_flush:
        participant, cargo = to_flush[-1], None
        try:
            if participant.commit_cargo is not None:
                cargo = participant.commit_cargo(coordinator)
        except BaseException as error:
            _name(error, participant, "commit_cargo", tx)
            raise
        if cargo is None:
            break
        del to_flush[-1]
        cargoes += (cargo,)
    if cargoes[1:]:
        return joined(cargoes[::-1])
    return cargoes[0] if cargoes else None


def _flushes_last(participant: Participant) -> bool:
    return bool(participant.flushes_last)


def _id(participant: object) -> int:
    """Returns the id of a participant as it was given."""
    return id(participant.given if isinstance(participant, _Completed) else participant)


def _not_true(participant: Participant, call: str, answer: object) -> ParticipantFailed:
    return ParticipantFailed(
        f"{call} of {participant.transaction_aware_name} answered {answer!r}, not True"
    )


def _name(
    error: BaseException, participant: Participant, call: str, tx: Transaction
) -> None:
    """Adds to an error the participant and the call that raised it."""
    name = participant.transaction_aware_name
    error.add_note(f"in {call} of {name}, {tx.label}")


def note_others(first: BaseException, others: list[BaseException]) -> None:
    """Attaches the other failures to the first one, which is the one raised."""
    for other in others:
        first.add_note("; ".join([f"then {other!r}", *getattr(other, "__notes__", [])]))


def raise_interrupt(failures: list[BaseException], cause: BaseException) -> None:
    """Raises the interrupt among the failures, if there is one."""
    for failure in failures:
        if not isinstance(failure, Exception):
            raise failure from cause


def raise_first(failures: list[BaseException], note: str) -> NoReturn:
    """Raises the first failure with a note and the others, or an interrupt."""
    first, *others = failures
    first.add_note(note)
    note_others(first, others)
    raise_interrupt(others, first)
    raise first


logger = logging.getLogger(__name__)


class Fate(enum.Enum):
    """The fate of a write."""

    UNWRITTEN = "not written"
    WRITTEN = "written"
    UNKNOWN = "written or not"


class TrackedWrite:
    """A write that is done once, and undone when its transaction is rolled back."""

    def __init__(self) -> None:
        self.fate = Fate.UNWRITTEN

    def do(self, write: Callable[[], object]) -> None:
        """Writes; if that raises, `undo` knows what may be left of the write.

        A second write that changed nothing leaves what the first one wrote.
        """
        before, self.fate = self.fate, Fate.UNKNOWN
        try:
            write()
        except BaseException as error:
            if leaves_no_doubt(error):
                self.fate = before
            raise
        self.fate = Fate.WRITTEN

    def undo(self, take_back: Callable[[], object]) -> bool:
        """Takes the write back; returns True when it is known that nothing is left.

        A write whose answer was lost may still arrive later than any call that takes
        it back, so none is made for it.
        """
        if self.fate is not Fate.WRITTEN:
            return self.fate is Fate.UNWRITTEN
        try:
            take_back()
        except Exception as error:
            logger.debug("a write could not be taken back", exc_info=error)
            return False
        self.fate = Fate.UNWRITTEN
        return True
