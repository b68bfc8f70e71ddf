"""Prepares transactions, and ends them by their names."""

from collections.abc import Callable

from coordinator.embedded.commit_log import CommitLog, Wait
from coordinator.embedded.ledger import Ledger
from coordinator.embedded.open_transactions import OpenTransaction
from coordinator.embedded.records import Prepared
from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.errors import PreparedExists, PreparedNotFound
from coordinator.prepared_transactions import PreparedTransaction, checked_prepared_name
from coordinator.threads import Condition
from coordinator.transaction import ClockMs, Transaction


class TwoPhaseCommit:
    """The part of the embedded coordinator that prepares transactions.

    A transaction is prepared when its record is on disk, together with its rows where
    they share the journal. Names are taken from when that is asked for.
    """

    barrier: WriteBarrier
    _ledger: Ledger
    _ends: CommitLog
    _lock: Condition
    _clock_ms: ClockMs

    def prepare(
        self, tx: Transaction, name: str, *, principal: str | None = None
    ) -> None:
        """Returns when only its name can end `tx`, which a crash cannot undo."""
        checked_prepared_name(name)
        self._tidy_if_due()
        with self._lock:
            now_ms = self._now_ms()
            entry = self._ends.settled(tx.transaction_id)
            if entry is not None and entry.prepared and entry.name == name:
                return  # the answer was lost, and it is asked again
            entry = self._require(tx.transaction_id)
            self.barrier.drain(entry)
            self._ledger.check_commit(entry)
            if name in self._ledger.open.by_name:
                raise PreparedExists(
                    f"transaction {tx.transaction_id} cannot be prepared as {name!r}: "
                    f"another one has that name"
                )
            keys = tuple(entry.changes)
            record = Prepared(tx.transaction_id, now_ms, name, principal, keys)
            wait = self._ends.prepare(entry, record)
        wait()

    def prepared(self) -> list[PreparedTransaction]:
        """Returns all that are prepared, the oldest transaction first."""
        self._tidy_if_due()
        with self._lock:
            self._now_ms()
            found = [entry.prepared for entry in self._ledger.open.by_name.values()]
        listed = [
            PreparedTransaction(
                one.name, one.transaction_id, one.since_ms, one.principal
            )
            for one in found
            if one is not None
        ]
        return sorted(listed, key=lambda one: one.transaction_id)

    def commit_prepared(self, name: str, *, transaction_id: int | None = None) -> None:
        """Commits a prepared transaction; raises `PreparedNotFound` without one."""
        self._end_by_name(name, transaction_id, self._ends.commit)

    def rollback_prepared(
        self, name: str, *, transaction_id: int | None = None
    ) -> None:
        """Has nobody ever see a prepared one; raises `PreparedNotFound` without one.

        Its participants cannot undo anything any more, so it is invalid.
        """
        self._end_by_name(name, transaction_id, self._ends.invalidate)

    def _end_by_name(
        self,
        name: str,
        transaction_id: int | None,
        end: Callable[[OpenTransaction, int], Wait],
    ) -> None:
        checked_prepared_name(name)
        self._tidy_if_due()
        with self._lock:
            now_ms = self._now_ms()
            found = self._ledger.open.by_name.get(name)
            entry = found and self._ends.settled(found.transaction_id)
            if entry is None or entry.prepared is None or entry.name != name:
                raise PreparedNotFound(f"no transaction is prepared as {name!r}")
            if transaction_id not in (None, entry.transaction_id):
                raise PreparedNotFound(
                    f"transaction {transaction_id} is no longer prepared as {name!r}, "
                    f"and {entry.transaction_id} is"
                )
            wait = end(entry, now_ms)
        wait()

    def _require(self, transaction_id: int) -> OpenTransaction:
        """Returns the open transaction; refuses one that has ended."""
        raise NotImplementedError

    def _tidy_if_due(self) -> int:
        """Settles and times out what is due."""
        raise NotImplementedError

    def _now_ms(self) -> int:
        """Returns the time for ids; called under the lock."""
        raise NotImplementedError
