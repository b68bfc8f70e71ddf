"""Transactions that begin at a server when it is needed, or with their commit."""

import time
from collections.abc import Callable
from itertools import count
from typing import Any

from coordinator.errors import MisusedTransaction
from coordinator.remote.slots import Slot
from coordinator.transaction import Transaction

_serials = count(1)


class LaterTransaction(Transaction):
    """A transaction that begins when somebody first looks at it."""

    _begin: Callable[[], Transaction]
    _begun: Transaction | None
    _serial: int

    def __init__(self, begin: Callable[[], Transaction]) -> None:
        self._set(_begin=begin, _begun=None, _serial=next(_serials))

    @property
    def has_begun(self) -> bool:
        """True once somebody has looked at it."""
        return self._begun is not None

    @property
    def key(self) -> int:
        """The number that names it in this process, begun or not: no id is negative."""
        return -self._serial

    def begun(self) -> Transaction:
        """Returns what it is at the coordinator; begins it there."""
        found = self._begun
        if found is None:
            found = self._begin()
            self._set(_begun=found)
        return found

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # as a copy looks for
            raise AttributeError(name)
        return getattr(self.begun(), name)  # none of its fields was ever set

    def __reduce__(self) -> Any:
        """Is copied, and goes to other processes, as what it is at the coordinator."""
        return _as_it_is, (self.begun(),)


def _as_it_is(tx: Transaction) -> Transaction:
    return tx


class TransactionAtOnce(LaterTransaction):
    """A transaction that begins with its commit, unless somebody looks at it before.

    `slot` names the commit while nobody knows what became of it.
    """

    begins_with_commit = True
    slot: Slot | None
    timeout_s: float | None

    def __init__(
        self,
        begin: Callable[[], Transaction],
        timeout_s: float | None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(begin)
        self._set(slot=None, timeout_s=timeout_s, _clock_s=clock_s, _opened_s=clock_s())

    @property
    def label(self) -> str:
        """The transaction in words; that looks at nothing."""
        if self.slot is not None:
            return f"the commit of {self.slot}"
        return super().label if self.has_begun else "a transaction that has not begun"

    def begun(self) -> Transaction:
        """Returns what it is at the coordinator; begins it there, before its commit."""
        if self.slot is not None:
            raise MisusedTransaction(f"{self.label} has no pointer that is known here")
        return super().begun()

    @property
    def open_ms(self) -> int:
        """The time for which its block has been open."""
        return int((self._clock_s() - self._opened_s) * 1000)

    def commits_in(self, slot: Slot | None) -> None:
        """Notes that its commit is on its way; None is that it was refused."""
        self._set(slot=slot)

    def ended(self, pointer: int | None) -> None:
        """Notes how it has ended: with that pointer, or without a commit.

        From here on nobody reads with it.
        """
        self._set(slot=None)
        if pointer is not None:
            self._set(_begun=Transaction(pointer, 0))
        elif not self.has_begun:
            self._set(_begin=_refuse)


def _refuse() -> Transaction:
    raise MisusedTransaction("the transaction has ended, and never began")
