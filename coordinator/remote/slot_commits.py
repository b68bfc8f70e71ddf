"""Commits of a client that begin their own transactions, each in a slot of it."""

import logging
from collections.abc import Callable
from typing import Any

from coordinator.errors import (
    NotWritten,
    TransactionOutcomeUnknown,
    TransactionTooLarge,
    TxAwareError,
    Unavailable,
    changed_nothing,
)
from coordinator.remote import calls
from coordinator.remote.later_transaction import TransactionAtOnce
from coordinator.remote.slots import Slot, Slots
from coordinator.remote.wire import Fields, answer_field
from coordinator.transaction import checked_pointer

log = logging.getLogger(__name__)

# So long a server surely remembers the last commit of a slot.
SETTLES_FOR_MS = 24 * 3600 * 1000


class SlotCommits:
    """Commits of one client that begin their own transactions, in one call each.

    What became of one whose answer was lost is asked by its slot. `ask` makes a call of
    the server, and `instance` names the one that answered last.
    """

    def __init__(self, ask: Callable[..., Any], instance: Callable[[], str]) -> None:
        self._ask = ask
        self._instance = instance
        self._slots = Slots()

    def commit(self, tx: TransactionAtOnce, parts: Fields) -> bool:
        """Begins and commits in one call; False, with nothing done, where that is two.

        The server that is asked may be another one than had said that its commits carry
        rows.
        """
        try:
            self._commit_in_slot(tx, parts)
        except TransactionTooLarge as error:
            log.debug("a block begins before its commit: %s", error)
            return False
        return True

    def end(self, tx: TransactionAtOnce) -> bool:
        """Ends a transaction that has not begun; False where its commit was made.

        Where nobody knows what became of that commit, the server settles it.
        """
        slot = tx.slot
        if slot is None:
            tx.ended(None)
            return True
        pointer = self._settle(slot)
        if pointer is None and tx.open_ms > SETTLES_FOR_MS:
            raise TransactionOutcomeUnknown(
                f"a commit of {tx.open_ms / 3_600_000:.0f} hours ago may or may not "
                f"have been made: the server remembers such things for a day. Nothing "
                f"was undone; look before you repeat anything"
            )
        self._ended(tx, slot, pointer)
        return pointer is None

    def _commit_in_slot(self, tx: TransactionAtOnce, parts: Fields) -> None:
        """Makes the call, a second time if the answer is lost; `end` settles the rest.

        A no to the first request is definite.
        """
        slot = self._slots.take()
        tx.commits_in(slot)
        fields = {
            **parts,
            **slot.fields(),
            "life": self._instance(),
            "timeoutS": tx.timeout_s,
            "openMs": tx.open_ms,
        }
        try:
            answer = self._ask(calls.COMMIT_AT_ONCE, **fields)
        except TxAwareError as error:
            if changed_nothing(error):
                self._refused(tx, slot)
                raise
            if not isinstance(error, Unavailable):
                raise
            pointer = self._ask_again(tx, slot, fields)
        else:
            pointer = answer_field(answer, "transaction", checked_pointer)
        self._ended(tx, slot, pointer)

    def _ask_again(self, tx: TransactionAtOnce, slot: Slot, fields: Fields) -> int:
        """Asks a second time; where that is refused, the first may have been done."""
        try:
            answer = self._ask(calls.COMMIT_AT_ONCE, **fields, repeat=True)
            return answer_field(answer, "transaction", checked_pointer)
        except TxAwareError as error:
            if isinstance(error, Unavailable) and not isinstance(error, NotWritten):
                raise
            pointer = self._settle(slot)
            if pointer is None:
                self._refused(tx, slot)
                raise
            log.debug("a commit was made, and its repeat refused: %s", error)
            return pointer

    def _settle(self, slot: Slot) -> int | None:
        """Returns what a commit in a slot has committed; with None it never will."""
        try:
            answer = self._ask(calls.SETTLE, **slot.fields())
        except (Unavailable, TransactionOutcomeUnknown):
            raise
        except TxAwareError as error:  # nothing is known by that
            raise Unavailable(f"the outcome cannot be asked: {error}") from error
        return answer_field(answer, "transaction", _pointer_or_none)

    def _refused(self, tx: TransactionAtOnce, slot: Slot) -> None:
        """Notes that its commit was refused: it is aborted, or begins after all."""
        tx.commits_in(None)
        self._slots.give_back(slot)

    def _ended(self, tx: TransactionAtOnce, slot: Slot, pointer: int | None) -> None:
        """Notes how its commit has ended: with that pointer, or never."""
        tx.ended(pointer)
        self._slots.give_back(slot)


def _pointer_or_none(sent: Any) -> int | None:
    return None if sent is None else checked_pointer(sent)
