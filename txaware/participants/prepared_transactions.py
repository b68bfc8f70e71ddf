"""The transactions that a database has prepared for a store, and what ends them."""

import contextvars
import logging
import os
import threading
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, Self

from coordinator import retry_on_conflict
from coordinator.fork_guard import guard
from coordinator.optional_ports import life_of, outcome_of, way_to_decide
from coordinator.outcome import Outcome
from txaware.errors import TransactionOutcomeUnknown, TxAwareError
from txaware.messaging import Messaging
from txaware.participants.background_work import BackgroundWork
from txaware.participants.database_link import DatabaseLink
from txaware.participants.outbox_relay import PROGRESS

log = logging.getLogger(__name__)

STORE_KEY = b"store"
# So many transactions may be prepared and wait for their commit, in a process.
MOST_UNSETTLED = 16


class PreparedName(NamedTuple):
    """A prepared transaction, by what its name says; earlier versions name no life."""

    pointer: int
    life: str
    name: str

    @classmethod
    def of(cls, name: str, *, prefix: str) -> Self:
        """Reads a name."""
        pointer, *life, _ = name.removeprefix(prefix).split(":")
        return cls(int(pointer), ":".join(life), name)


class PreparedTransactions(ABC):
    """The keeper of what is prepared in one database for one store.

    A prepared transaction is named after the store, the pointer and its life. Whatever
    happened to its process, the coordinator tells the outcome of those, and by that how
    it has to end.
    """

    # How a person ends one there.
    by_hand: str

    def __init__(self, messaging: Messaging, link: DatabaseLink) -> None:
        self.transaction_aware_name = link.name
        self._coordinator = messaging.coordinator
        self._link = link
        self._prefix = f"txaware:{store_id(messaging)}:"
        self._is_needed = False
        self._background = BackgroundWork(self._recover_again, name=repr(self))
        self._unsettled: deque[str] = deque()
        self._settles = threading.Lock()
        self._settling = BackgroundWork(self.settle, name=f"{self!r} that settles")
        guard(self)

    def new_name(self, pointer: int) -> str:
        """Returns a name to prepare by; a block may have several connections."""
        life = life_of(self._coordinator, pointer)
        own = f"{pointer}:{life}" if life else f"{pointer}"
        return f"{self._prefix}{own}:{os.urandom(4).hex()}"

    @abstractmethod
    def require_that_it_prepares(self) -> None:
        """Raises `BadRequest` where the server prepares no transactions."""

    @abstractmethod
    def end(self, name: str, *, commit: bool) -> bool:
        """Commits or rolls back what is prepared; what has ended already stays so.

        False says that a connection has it, which the server still takes for open.
        """

    @abstractmethod
    def _names(self) -> Iterable[str]:
        """Asks for the names of all that is prepared, perhaps of others too."""

    def outcome(self, name: str) -> Outcome:
        """Tells the outcome of the transaction that a name is of."""
        return self._outcome(PreparedName.of(name, prefix=self._prefix))

    def _outcome(self, one: PreparedName) -> Outcome:
        return outcome_of(self._coordinator, one.pointer, life=one.life)

    def prepared(self) -> list[PreparedName]:
        """Returns all that is prepared, in order."""
        own = [name for name in self._names() if name.startswith(self._prefix)]
        return sorted(PreparedName.of(name, prefix=self._prefix) for name in own)

    def smallest_pointer(self) -> int | None:
        """Returns the least pointer whose outcome is still needed."""
        return min([one.pointer for one in self.prepared()], default=None)

    def recover(self) -> list[int]:
        """Ends what a crash left prepared; returns what is still open.

        Raises `TransactionOutcomeUnknown` where nobody can tell any more whether a
        transaction has committed.
        """
        still_open, unknown = [], []
        for one in self.prepared():
            outcome = self._outcome(one)
            if outcome is Outcome.IN_PROGRESS:
                still_open.append(one.pointer)
            elif outcome is Outcome.FORGOTTEN:
                unknown.append(one)
            elif not self.end(one.name, commit=outcome is Outcome.COMMITTED):
                still_open.append(one.pointer)
        if unknown:
            first = unknown[0]
            more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
            way = way_to_decide(self._coordinator, first.pointer, life=first.life)
            raise TransactionOutcomeUnknown(
                f"{self.transaction_aware_name} has prepared {first.name}{more}, and "
                f"nobody knows whether its transaction has committed. {way}end it "
                f"there by {self.by_hand}. Nothing was changed"
            )
        return still_open

    def settle_later(self, name: str) -> None:
        """Commits what is prepared in the background; now where much waits for that."""
        self._unsettled.append(name)
        if len(self._unsettled) >= MOST_UNSETTLED:
            self.settle()
        else:
            self._settling.start()

    def settle(self) -> None:
        """Commits all that was to be committed later by now."""
        with self._settles:
            while self._unsettled:
                self.end(self._unsettled[0], commit=True)
                self._unsettled.popleft()

    def recover_soon(self) -> None:
        """Recovers in the background, until nothing is open any more.

        What is prepared keeps its locks, and others wait for them.
        """
        self._is_needed = True
        self._background.start()

    def close(self) -> None:
        """Ends what it does in the background, and closes its connection.

        What cannot be settled now is committed at the next start.
        """
        self._background.close()
        self._settling.close()
        try:
            self.settle()
        except TxAwareError as error:
            log.warning("%r commits at the next start: %s", self, error)
        self._link.close()

    def _recover_again(self) -> None:
        if self._is_needed:
            self._is_needed = False
            try:
                still_open = self.recover()
            except BaseException:
                self._is_needed = True
                raise
            self._is_needed = self._is_needed or bool(still_open)

    def __repr__(self) -> str:
        return f"<PreparedTransactions in {self.transaction_aware_name}>"


def store_id(messaging: Messaging) -> str:
    """Returns the id of a store, drawn by who asks first.

    A block that is open here has no part in it.
    """
    return contextvars.Context().run(_store_id, messaging)


def _store_id(messaging: Messaging) -> str:
    table = messaging.table(PROGRESS)

    @retry_on_conflict
    def draw() -> bytes:
        with messaging.transaction():
            found: bytes | None = table.get(STORE_KEY)
            if found is None:
                found = uuid.uuid4().hex.encode()
                table.put(STORE_KEY, found)
            return found

    known: bytes | None = table.get(STORE_KEY)
    return (known or draw()).decode()
