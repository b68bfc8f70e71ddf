"""The transaction of a producer, which a fenced instance cannot commit."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import attrs

from coordinator.context import TransactionContext
from coordinator.interfaces import Coordinator, Participant
from coordinator.participants import TrackedWrite
from coordinator.transaction import Status, Transaction
from txaware.errors import (
    ProducerFenced,
    TransactionNotInProgress,
    TransactionRefused,
)
from txaware.model.interfaces import CargoCounted
from txaware.model.markers import producer_change
from txaware.model.producers import (
    BeginsTransactions,
    Begun,
    Entered,
    ProducerIdentity,
    ProducerService,
)

R = TypeVar("R")


@attrs.define
class ProducerInstance:
    """One instance of a transactional id; `fenced` is set once it was replaced.

    `begins` is the service if its coordinator begins the transactions.
    """

    service: ProducerService
    transactional_id: str
    producer: ProducerIdentity
    shares_journal: bool
    begins: BeginsTransactions | None = None
    fenced: ProducerFenced | None = None

    def ask(self, call: Callable[[], R]) -> R:
        """Makes a call to the service; remembers if it is refused to this instance."""
        try:
            return call()
        except ProducerFenced as error:
            self.fenced = error
            raise

    def require(self) -> None:
        """Raises `ProducerFenced` if a newer instance has taken over."""
        name, producer = self.transactional_id, self.producer
        self.ask(lambda: self.service.producer_commits(name, producer))


class CommitCount(Participant):
    """The participant that counts the commits of a producer in its transaction.

    It names the transaction to the service, which refuses it for a fenced instance. Its
    row counts once the transaction has committed. Two instances change the same key, so
    that two of their transactions never both commit. With a `key` the row of that key
    goes with it.
    """

    flushes_last = True

    def __init__(self, instance: ProducerInstance, *, key: str | None = None) -> None:
        self.shares_journal = instance.shares_journal
        self.transaction_aware_name = f"producer {instance.transactional_id}"
        self.entered = Entered(0)
        self.instance = instance
        self._key = key
        self._tx: Transaction | None = None
        self._write = TrackedWrite()
        self._cargo: CargoCounted | None = None
        self._carrier = instance.service.carrier

    def begin(self, timeout_s: float | None) -> Transaction | None:
        """Begins a transaction and enters it, in one call; None where that is two."""
        instance, begun = self.instance, list[Begun]()
        service = instance.begins
        if service is None:
            return None

        def begin() -> None:
            begun.append(
                service.begin_transaction(
                    instance.transactional_id,
                    instance.producer,
                    timeout_s=timeout_s,
                    key=self._key,
                )
            )

        self._write.do(lambda: instance.ask(begin))
        self.entered = begun[0].entered
        return begun[0].transaction

    def enter(self) -> None:
        """Begins; called once it has joined, so that a lost answer is undone."""
        self._enter(**({"ahead": False} if self._carrier is not None else {}))

    def start_tx(self, tx: Transaction) -> None:
        """Remembers the transaction, whose first pointer goes with the row."""
        self._tx = tx

    def get_tx_changes(self) -> Iterable[bytes]:
        """Returns the key on which all transactions of the producer conflict."""
        return (producer_change(self.instance.transactional_id),)

    def commit_cargo(self, coordinator: Coordinator) -> CargoCounted | None:
        """Returns the rows for the commit to carry; None if they go before it."""
        carrier, instance, tx = self._carrier, self.instance, self._tx
        if self.entered.is_written or carrier is None or tx is None:
            return None
        name, producer = instance.transactional_id, instance.producer

        self._cargo = instance.ask(
            lambda: carrier.producer_cargo(
                coordinator, name, producer, tx, key=self._key
            )
        )
        return self._cargo

    def commit_tx(self) -> bool:
        """Writes the rows, unless they were written at the beginning."""
        if not self.entered.is_written:
            self._enter()
        return True

    def post_tx_commit(self) -> None:
        """Counts rows that the commit carried."""
        if self._cargo is not None:
            self._cargo.count()

    def post_tx_prepare(self) -> None:
        """Does nothing: the rows are written."""

    def rollback_tx(self) -> bool:
        """Takes the rows back; False where nobody knows whether they were written."""
        tx, name = self._tx, self.instance.transactional_id
        if self.entered.is_done:  # none were written
            return True
        leave = self.instance.service.leave_transaction
        return tx is None or self._write.undo(lambda: leave(name, tx, key=self._key))

    def _enter(self, **options: Any) -> None:
        instance = self.instance
        enter: Callable[..., Entered] = instance.service.enter_transaction
        name, producer = instance.transactional_id, instance.producer

        def entered() -> None:
            self.entered = enter(name, producer, self._tx, key=self._key, **options)

        self._write.do(lambda: instance.ask(entered))


class FencedTransaction(TransactionContext):
    """A transaction that begins and commits only for the newest instance.

    Call `fence` before it begins.
    """

    count: CommitCount
    _admitted: Callable[[], AbstractContextManager[object]]

    def fence(
        self, count: CommitCount, admitted: Callable[[], AbstractContextManager[object]]
    ) -> None:
        """Makes it a transaction of a producer; it begins inside of `admitted`."""
        self.count, self._admitted = count, admitted
        self._waiting.insert(0, count)  # what has begun is undone if others do not join

    def start(self) -> Transaction:
        """Begins; raises `ProducerFenced` for an instance that was replaced."""
        with self._admitted():
            self._began_s = self._clock_s()
            self._begun = self.count.begin(self._timeout_s)
            tx = super().start()
            try:
                if self._begun is None:
                    self.count.enter()
            except BaseException as error:
                self._undo(error)
                raise
        return tx

    def _undo(
        self,
        cause: BaseException,
        *,
        invalidate: bool = False,
        notes_raised: bool = True,
    ) -> list[BaseException]:
        """Undoes as any transaction, also behind an interrupt before the count joined.

        What the begin wrote is then taken back by nobody.
        """
        unlisted = self._participants.listed(self.count) is None
        return super()._undo(
            cause, invalidate=invalidate or unlisted, notes_raised=notes_raised
        )

    @property
    def is_late(self) -> bool:
        """True when the time-out that it was given has passed."""
        timeout_s = self._timeout_s
        return timeout_s is not None and self._clock_s() - self._began_s > timeout_s

    def finish(self) -> None:
        """Commits; raises `ProducerFenced` if that was refused for a newer instance."""
        try:
            super().finish()
        except ProducerFenced as fenced:
            self.count.instance.fenced = fenced
            raise
        except TransactionRefused as refusal:
            self.raise_if_fenced(refusal)
            raise

    def settle(self) -> None:
        """Finds out how a commit ended whose answer was lost, and ends the rest so.

        Raises `TransactionNotInProgress` if it did not take place, and
        `TransactionOutcomeUnknown` as long as nobody can tell.
        """
        refusal = TransactionNotInProgress(f"{self} did not commit, and never will")
        if self._settle(self._began_s, refusal):
            self.status = Status.COMMITTED
            try:
                self._committed(self.transaction)
            except BaseException:
                self._notify_rest(self.transaction)
                raise
            return
        self._undo(refusal, invalidate=True)
        self.raise_if_fenced(refusal)
        raise refusal

    def raise_if_fenced(self, refusal: TransactionRefused) -> None:
        """Raises `ProducerFenced` if a newer instance is why this was refused."""
        try:
            self.count.instance.require()
        except ProducerFenced as fenced:
            raise fenced from refusal
        except Exception as error:
            refusal.add_note(f"nobody can tell whether it is fenced: {error}")
