"""Producer ids: who has which, and in which epoch; nobody uses another's."""

import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import attrs

from txaware.auth import Principal
from txaware.errors import BadRequest, NotAuthorized, ProducerFenced, Unavailable
from txaware.model.clock import ClockMs
from txaware.model.interfaces import OrderedTable, Write
from txaware.model.producers import MAX_EPOCH, MAX_PRODUCER_ID, ProducerIdentity
from txaware.model.shards import HOME
from txaware.store.interfaces import Announces, table_of
from txaware.store.producer_table import (
    ProducerRow,
    ProducerTable,
    producer_key,
    producer_write,
)

# Returns a context that yields what removes the rows of a producer beside its own.
RowsBeside = Callable[[], AbstractContextManager[Sequence[Write] | None]]

# So many are kept read; the others are read again when they publish.
REMEMBERED = 50_000


def drawn_producer_id() -> int:
    """Draws a new id; nobody guesses it, and none comes twice."""
    return secrets.randbelow(MAX_PRODUCER_ID) + 1


def may_use(row: ProducerRow, caller: Principal | None) -> bool:
    """Tells whether a caller may publish as a producer; None is the data's process."""
    if caller is None:
        return True
    if row.transactional_id is not None:
        return caller.may_use_transactional_id(row.transactional_id)
    return row.owner == caller.name


AskProducer = Callable[[int], ProducerRow | None]


class ProducerIds:
    """The producers of a store, each with a durable row.

    An id is a random number of 63 bits, so that nobody guesses one, and belongs to the
    principal that opened it. `most` limits how many a principal has at once.
    `transactions` are the ones that those with a transactional id began last.
    """

    def __init__(self, table: OrderedTable, clock_ms: ClockMs, *, most: int) -> None:
        self._table = table
        self._rows = ProducerTable(table)
        self._clock_ms = clock_ms
        self._most = most
        self._lock = threading.RLock()
        self._known: OrderedDict[int, ProducerRow] = OrderedDict()
        self._owned: Counter[str | None] | None = None
        self._named: Counter[str] = Counter()
        self.transactions: dict[int, int] = {}
        # Asks the server that producers are opened at, where that is another one.
        self.ask_home: AskProducer | None = None

    def open(self, owner: str | None = None) -> ProducerRow:
        """Opens a producer with an id of its own; its row is on disk when it returns.

        `owner` is None for the process that owns the data, which has no limit.
        """
        row = self.new(owner)
        try:
            self._submit([producer_write(row)])
        except BaseException:
            self.failed()
            raise
        self.opened(row)
        return row

    def new(self, owner: str | None, *, producer_id: int | None = None) -> ProducerRow:
        """Makes the row of a new producer, for who writes it.

        Then `opened` or `failed` is called. With a `producer_id` it is one that a
        client chose.
        """
        with self._lock:
            self._count(owner)
        drawn = drawn_producer_id() if producer_id is None else producer_id
        by_client = producer_id is not None
        return ProducerRow(drawn, 0, owner, self._clock_ms(), by_client=by_client)

    def adopt(self, transactional_id: str, owner: str | None) -> ProducerRow:
        """Opens the producer of a transactional id; its row is on disk then.

        It counts for `owner`, who was the first, and all that may use the id use it.
        """
        with self._lock:
            row = attrs.evolve(self.new(owner), transactional_id=transactional_id)
            try:
                self._change(row)
            except BaseException:
                self.failed()
                raise
            if self._owned is not None:
                self._named[transactional_id] += 1
            return row

    def opened(self, row: ProducerRow) -> None:
        """Notes that the row of a new producer is on disk.

        It takes no lock: the thread that wrote the row calls it, and whoever has the
        lock may wait for that thread. What was read meanwhile is newer.
        """
        self._known.setdefault(row.producer_id, row)

    def failed(self) -> None:
        """Notes that the row of a new producer may not be on disk."""
        with self._lock:
            self._owned = None

    def find(self, producer_id: int) -> ProducerRow | None:
        """Returns a producer; None if there is none of that id."""
        found = self._known.get(producer_id)
        if found is not None:
            return found
        with self._lock:
            found = self._rows.producer(producer_id)
            may_change = self.ask_home is not None and found is not None
            if found is not None and not (may_change and found.transactional_id):
                self._remember(found)
            return found

    def is_anywhere(self, producer_id: int) -> bool:
        """Tells whether there is a producer of that id, here or where it was opened."""
        if self.find(producer_id) is not None:
            return True
        return self.ask_home is not None and self.ask_home(producer_id) is not None

    def known(self, producer_id: int) -> ProducerRow | None:
        """Returns a producer without reading; None also where that would be needed."""
        return self._known.get(producer_id)

    def require(
        self, producer: ProducerIdentity, caller: Principal | None
    ) -> ProducerRow:
        """Returns the producer of an identity that may publish; raises why it may not.

        Another's producer is told apart from an unknown one by nobody.
        """
        row = self.find(producer.producer_id)
        if self.ask_home is not None and not producer.by_client:
            row = self._copied(producer, row, self.ask_home)
        if row is None or producer.epoch != row.epoch:
            self.look_owned()
        if row is None or not may_use(row, caller):
            raise ProducerFenced(
                f"producer {producer.producer_id} is not known here: it was not used "
                f"for too long, or was forgotten, or is somebody else's; open a new one"
            )
        if producer.epoch != row.epoch:
            raise ProducerFenced(
                f"producer {producer.producer_id} is at epoch {row.epoch}, and nothing "
                f"is published under epoch {producer.epoch}"
            )
        if producer.by_client is not row.by_client:
            how = "drawn by its client" if row.by_client else "opened by a call"
            raise BadRequest(
                f"producer {producer.producer_id} was {how}, and publishes as such"
            )
        return row

    def look_owned(self) -> None:
        """Finds out whether another process has these rows, and raises then.

        One that hung, was replaced and goes on does not know of what came since.
        """
        store = table_of(self._table, HOME)
        if isinstance(store, Announces):
            store.look_owned()

    def _copied(
        self, producer: ProducerIdentity, row: ProducerRow | None, ask: AskProducer
    ) -> ProducerRow | None:
        """Returns a producer of another server, and keeps a copy for its clean-up here.

        One with a transactional id may be fenced there at any moment, and is asked for
        each time.
        """
        is_sure = row is not None and row.transactional_id is None
        if row is not None and is_sure and row.epoch == producer.epoch:
            return row
        found = ask(producer.producer_id)
        if found is None:
            return None
        with self._lock:
            if found.transactional_id is None:
                return self._change(found)
            self._submit([producer_write(found)])
            return found

    def raise_epoch(self, producer_id: int) -> ProducerRow | None:
        """Fences all that a producer did before; durable when it returns.

        None where its epochs are used up, or it is not known: it takes a new id then.
        The greatest epoch is nobody's, so that it fences the one before.
        """
        with self._lock:
            row = self.find(producer_id)
            if row is None or row.epoch >= MAX_EPOCH:
                return None
            row = self._change(
                attrs.evolve(row, epoch=row.epoch + 1, opened_ms=self._clock_ms())
            )
            return row if row.epoch < MAX_EPOCH else None

    def end(self, producer_id: int) -> None:
        """Ends a producer: it publishes nothing more, also after a restart."""
        with self._lock:
            row = self.find(producer_id)
            if row is not None and not row.has_ended:
                self._change(attrs.evolve(row, has_ended=True))

    def forget(self, row: ProducerRow, rows_beside: RowsBeside) -> bool:
        """Removes a producer's row and those beside it; tells whether it did.

        `rows_beside` has it publish nothing meanwhile. It yields what removes the other
        rows, or None if the producer stays.
        """
        # The lock comes after: a publish that is waited for may take it.
        with rows_beside() as more, self._lock:
            if more is None:
                return False
            self._table.submit([(producer_key(row.producer_id), None), *more])()
            self._known.pop(row.producer_id, None)
            self.transactions.pop(row.producer_id, None)
            if self._owned is not None:
                self._owned[row.owner] -= 1
                name = row.transactional_id
                if name is not None:
                    self._named[name] -= 1
                    if not self._named[name]:
                        del self._named[name]
            return True

    def totals(self) -> tuple[int, int]:
        """Returns the numbers of producers and of transactional ids.

        They are read for that once, and are 0 while they cannot be read. Where a read
        may wait for a network, they are 0 until a clean-up has counted them.
        """
        with self._lock:
            if self._owned is None and self._table.reads_wait:
                return 0, 0
            try:
                producers = sum(self.counts().values())
            except Unavailable:
                return 0, 0
            return producers, len(+self._named)

    def counts(self) -> Counter[str | None]:
        """Returns how many producers each owner has."""
        with self._lock:
            if self._owned is None:
                rows = list(self._rows.producers())
                self._owned = Counter(row.owner for row in rows)
                names = [row.transactional_id for row in rows]
                self._named = Counter(name for name in names if name is not None)
            return self._owned

    def _count(self, owner: str | None) -> None:
        """Counts one more of an owner; that of this process has as many as it wants."""
        if owner is None:
            if self._owned is not None:
                self._owned[owner] += 1
            return
        counts = self.counts()
        if counts[owner] >= self._most:
            raise NotAuthorized(
                f"{owner} may not have more producers than it has, {self._most:,} "
                f"(max_producers_per_principal): forget some of them, or wait until "
                f"they expire"
            )
        counts[owner] += 1

    def _change(self, row: ProducerRow) -> ProducerRow:
        self._submit([producer_write(row)])
        self._remember(row)
        return row

    def _submit(self, writes: Sequence[Write]) -> None:
        self._table.submit([*self._table.newest_format(), *writes])()

    def _remember(self, row: ProducerRow) -> None:
        self._known[row.producer_id] = row
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
