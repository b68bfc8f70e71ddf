"""Transactional ids: fences older instances, and counts the commits of each id."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from coordinator.interfaces import Coordinator
from coordinator.transaction import POINTERS_PER_MS, Transaction, TransactionType
from txaware.errors import (
    BadRequest,
    ProducerFenced,
    TransactionNotInProgress,
    TransactionPrepared,
)
from txaware.model.interfaces import Write
from txaware.model.markers import COMMITTED, once_marker
from txaware.model.metrics import Counters, ProducerMetrics
from txaware.model.producers import (
    Entered,
    ProducerIdentity,
    ProducerOpened,
    checked_identity,
    checked_key,
    checked_left_key,
)
from txaware.model.requests import Pointer, checked_pointer, checked_transaction
from txaware.service.producers.transactional_holders import Holder
from txaware.service.store_context import StoreContext
from txaware.service.visibility import DELIVER, Visibility
from txaware.service.write.message_cargo import RowCargo
from txaware.store.columns import pointer_of
from txaware.store.kinds import COMMITS, Place
from txaware.store.producer_table import ProducerRow, TransactionalIdTable
from txaware.store.versioned_rows import VersionedRows, without_pointer

# Clocks of a coordinator elsewhere and of this process differ by less.
AHEAD_MS = 3_600_000


class TransactionalIds:
    """The transactional ids of a store.

    An id is a row with the id of a producer, whose epoch each new instance raises. Each
    of its transactions has a row with the number of commits, which counts once the
    transaction has committed, like the position of a group. What a row names that has
    not committed is what an older instance left open.

    The store has one owner, so a lock orders the beginning of a transaction and the
    opening of a newer instance: this one finds all that began before it, and refuses
    what begins after it.
    """

    def __init__(
        self,
        store_context: StoreContext,
        *,
        judge: Callable[[Transaction | None], Visibility],
        carrying: Coordinator | None,
    ) -> None:
        self._ids = TransactionalIdTable(store_context.table)
        self._rows = VersionedRows(store_context.table)
        self._coordinator: Coordinator = store_context.coordinator
        self._producers = store_context.producer_ids
        self._retention = store_context.versions
        self._writes = store_context.writes
        self._judge = judge
        self._carrying = carrying
        self._reads_wait = store_context.table.reads_wait
        self._barrier = store_context.barrier
        self._clock_ms = store_context.clock_ms
        self._holders = store_context.transactional_holders
        self._removal = store_context.producer_removal
        self.counters = Counters(ProducerMetrics)

    def open(self, name: str, owner: str | None = None) -> ProducerOpened:
        """Fences every older instance, and settles the transactions that it left.

        An id that is new counts for the principal `owner`.
        """
        holder = self._holders.of(name)
        with holder.lock:
            row = self._raise_epoch(name, holder, owner)
            self._settle(name, holder)
        commits = self.producer_commits(name)
        return ProducerOpened(row.producer_id, row.epoch, commits)

    @contextmanager
    def fenced(self, row: ProducerRow) -> Iterator[None]:
        """Ends all instances of an id; none begins while its producer is removed."""
        name = row.transactional_id or ""
        holder = self._holders.of(name)
        with holder.lock:
            if self._ids.get(name) == row.producer_id:
                self._producers.raise_epoch(row.producer_id)
                self._settle(name, holder)
            yield

    def enter_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        transaction: Transaction,
        *,
        key: str | None = None,
        ahead: bool = True,
    ) -> Entered:
        """Begins a transaction of an instance; returns the commits that it sees.

        With `ahead` its rows are on disk before this returns. Otherwise they are there
        at the latest with its `producer_cargo`, if the commit carries that; a process
        that knows of the transaction after a crash has them, too. Nothing is written
        if the key was committed before.
        """
        name, tx = transactional_id, checked_transaction(transaction)
        self._check_begun(name, tx)
        if key is not None:
            checked_key(key)
        holder = self._holders.of(name)
        with holder.lock:
            self._require(name, holder, producer)
            commits = self._commits_before(name, holder, tx)
            is_done = key is not None and bool(
                self._before((name, once_marker(key)), tx)
            )
            self._advance(name, holder, tx)
            holder.commits = commits
            is_written = ahead or self._carrying is None
            rows = _writes(name, tx.transaction_id, commits + 1, key)
            if is_done:
                pass
            elif is_written:
                self._writes.write(tx, rows)
                if holder.with_start:
                    holder.with_start.update(rows)
            elif self._writes.write_with_start(tx.transaction_id, rows):
                holder.with_start.update(rows)
        return Entered(commits, is_done, is_written)

    def enter_at_once(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        transaction: Transaction,
        *,
        key: str | None = None,
    ) -> Entered | None:
        """Enters a transaction whose commit carries its rows, for an event loop.

        Returns None, and has done nothing, where that may wait: for the disk, another
        call for the same id, or a network.
        """
        holder = self._holders.known(transactional_id)
        if self._carrying is None or self._reads_wait or holder is None:
            return None
        if not holder.lock.acquire(blocking=False):
            return None
        try:
            is_known = holder.producer_id and self._producers.known(holder.producer_id)
            if not is_known or transaction.is_in_progress(holder.pointer):
                return None
            return self.enter_transaction(
                transactional_id, producer, transaction, key=key, ahead=False
            )
        finally:
            holder.lock.release()

    def leave_transaction(
        self, transactional_id: str, transaction: Pointer, *, key: str | None = None
    ) -> None:
        """Takes back what `enter_transaction` wrote, for a rollback."""
        pointer, holder = (
            checked_pointer(transaction),
            self._holders.of(transactional_id),
        )
        self._require_begun(transactional_id, pointer)
        left = _writes(transactional_id, pointer, 0, checked_left_key(key))
        rows = [place for place, _ in left]
        with holder.lock:
            self._read_producer(transactional_id, holder)  # a call to come asks `left`
            holder.left = max(holder.left, pointer)
            self._retention.wrote(COMMITS, [without_pointer(rows[0])])
            with self._writes.undoing(pointer):
                if holder.pointer == pointer and holder.with_start:
                    self._rows.negate(holder.with_start.items())
                    return
                self._rows.take_back(rows)

    def producer_cargo(
        self,
        coordinator: Coordinator,
        transactional_id: str,
        producer: ProducerIdentity,
        tx: Transaction,
        *,
        key: str | None = None,
    ) -> RowCargo | None:
        """Returns the rows of a transaction for its commit to carry.

        Returns None where the coordinator cannot carry rows. The store may have been
        opened anew since the transaction began: then it is entered here, where a fresh
        snapshot sees as many commits, or the commit conflicts.
        """
        if coordinator is not self._carrying:
            return None
        if key is not None:
            checked_key(key)
        name, pointer = transactional_id, tx.transaction_id
        holder = self._holders.of(name)
        with holder.lock:
            self._require(name, holder, producer)
            if holder.pointer != pointer:
                self._check_begun(name, tx)
                seen = self._seen(name)
                self._advance(name, holder, tx)
                holder.commits = seen
            commits = holder.commits + 1
        writes = _writes(name, pointer, commits, key)

        def count() -> None:
            holder.committed = max(holder.committed, pointer)
            # Now and then rows are removed that nobody reads any more.
            self._retention.wrote(COMMITS, [without_pointer(writes[0][0])])

        return RowCargo(writes, count)

    def may_wait(self, transactional_id: str) -> bool:
        """Tells whether `producer_cargo` may wait for another call for the same id."""
        holder = self._holders.known(transactional_id)
        if self._reads_wait or holder is None:
            return True
        is_free = holder.lock.acquire(blocking=False)
        if is_free:
            holder.lock.release()
        return not is_free

    def producer_commits(
        self, transactional_id: str, producer: ProducerIdentity | None = None
    ) -> int:
        """Returns how many transactions of an id have committed.

        Raises `ProducerFenced` if `producer` is named, and is not the newest instance.
        """
        holder = self._holders.of(transactional_id)
        if producer is not None:
            with holder.lock:
                self._require(transactional_id, holder, producer)
        return self._seen(transactional_id)

    def _seen(self, name: str) -> int:
        """Returns the number of commits as a fresh snapshot sees it."""
        prefix = COMMITS.prefix_of((name, COMMITTED))
        version = self._retention.as_seen(
            None, self._judge, lambda judge: self._rows.visible(prefix, judge)
        )
        return _number(version)

    def _raise_epoch(self, name: str, holder: Holder, owner: str | None) -> ProducerRow:
        # Until it is known how this ended, only the row says who has the id.
        holder.producer_id = None
        while True:
            old = self._ids.get(name)
            row = None if old is None else self._producers.raise_epoch(old)
            if row is None:  # a new id, also where the epochs are used up
                row = self._producers.adopt(name, owner)
                if not self._ids.replace(name, old, row.producer_id):
                    continue
                holder.forgotten = holder.pointer
                self._remove(old)
            holder.producer_id = row.producer_id
            self._holders.keep(name, holder)
            return row

    def _remove(self, producer_id: int | None) -> None:
        """Removes the producer that had an id before; the id has another one now."""
        row = None if producer_id is None else self._producers.find(producer_id)
        if row is not None:
            self._removal.remove(row)

    def _settle(self, name: str, holder: Holder) -> None:
        """Ends what older instances left open; returns once nobody can commit it.

        It invalidates: only who knows that all was undone may abort.
        """
        left = {holder.pointer} if holder.pointer else set()
        judge = self._judge(None)
        for version in self._rows.newest_first(COMMITS.prefix_of((name, COMMITTED))):
            pointer = pointer_of(version) or 0
            if judge.verdict(pointer) == DELIVER:
                break
            if pointer > 0:
                left.add(pointer)
        now = self._coordinator.snapshot()
        for pointer in left:
            if now.is_in_progress(pointer):
                self._end(pointer)

    def _end(self, pointer: int) -> None:
        """Ends a transaction; a prepared one stays, for whoever ends it by its name."""
        with suppress(TransactionPrepared):
            self._coordinator.invalidate(pointer)

    def _require(self, name: str, holder: Holder, producer: ProducerIdentity) -> None:
        checked_identity(producer)
        self._read_producer(name, holder)
        newest = holder.producer_id and self._producers.find(holder.producer_id)
        if not newest:
            self._fence(f"producer {name} is not known here, or was forgotten")
        elif producer.producer_id != newest.producer_id:
            self._fence(f"another instance of producer {name} has taken over")
        elif producer.epoch > newest.epoch:
            raise BadRequest(f"producer {name} never had epoch {producer.epoch}")
        elif producer.epoch < newest.epoch:
            self._fence(
                f"a newer instance of producer {name} has taken over: its epoch is "
                f"{newest.epoch}, and that of this one is {producer.epoch}"
            )

    def _read_producer(self, name: str, holder: Holder) -> None:
        """Reads which producer has an id, if any, and keeps the holder of one."""
        if holder.producer_id is None:
            holder.producer_id = self._ids.get(name)
            if holder.producer_id is not None:
                self._holders.keep(name, holder)

    def _fence(self, why: str) -> NoReturn:
        self.counters.add("fenced")
        raise ProducerFenced(why)

    def _check_begun(self, name: str, tx: Transaction) -> None:
        self._require_begun(name, tx.transaction_id)
        if tx.type is TransactionType.LONG:
            raise BadRequest(
                f"producer {name} takes no long transactions: two of them could commit "
                f"at once without a conflict"
            )

    def _require_begun(self, name: str, pointer: int) -> None:
        """Refuses a transaction of the future: all that really begin would be late."""
        if (
            self._barrier is None
        ):  # the coordinator is elsewhere, with a clock of its own
            latest_ms = self._clock_ms() + AHEAD_MS
            is_begun = pointer <= latest_ms * POINTERS_PER_MS
        else:
            is_begun = self._barrier.gave_out(pointer)
        if not is_begun:
            raise TransactionNotInProgress(
                f"transaction {pointer} of producer {name} was never given out here"
            )

    def _advance(self, name: str, holder: Holder, tx: Transaction) -> None:
        """Makes `tx` the open transaction of an instance.

        A call that comes late, for an earlier one, is refused. What the instance left
        open before ends here, as it has one at a time.
        """
        pointer, before = tx.transaction_id, holder.pointer
        if pointer < before or pointer <= holder.left:
            raise TransactionNotInProgress(
                f"transaction {pointer} of producer {name} is over: a later one has "
                f"begun, or it was rolled back"
            )
        if before not in (0, pointer) and tx.is_in_progress(before):
            self._end(before)
        if before != pointer:
            holder.pointer, holder.with_start = pointer, {}
        if holder.producer_id is not None:
            self._producers.transactions[holder.producer_id] = pointer

    def _commits_before(self, name: str, holder: Holder, tx: Transaction) -> int:
        """Returns how many commits a transaction sees.

        It is one more than the last one of this process saw, if it sees that this has
        committed: all transactions of an id conflict.
        """
        last = holder.pointer
        is_known = holder.forgotten < holder.committed == last < tx.transaction_id
        if is_known and self._judge(tx).verdict(last) == DELIVER:
            return holder.commits + 1
        return self._before((name, COMMITTED), tx)

    def _before(self, place: Place, tx: Transaction) -> int:
        """Returns what a transaction sees, but for its own row: a call may come again.

        What an open transaction sees is never removed.
        """
        prefix, judge = COMMITS.prefix_of(place), self._judge(tx)
        return _number(self._rows.visible(prefix, judge, but=tx.transaction_id))


def _writes(name: str, pointer: int, commits: int, key: str | None) -> list[Write]:
    places = [COMMITTED] if key is None else [COMMITTED, once_marker(key)]
    return [COMMITS.write((name, place), pointer, commits) for place in places]


def _number(version: bytes | None) -> int:
    return 0 if version is None else COMMITS.read(version) or 0
