"""A view of a store in HBase, which may have another owner."""

from collections.abc import Container

from txaware.errors import BadRequest, StoreCorrupted
from txaware.model.interfaces import Row
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.head import HeadCell, StoreHead
from txaware.store.hbase.redo import RedoLog, decode_writes
from txaware.store.hbase.scans import Scanning, ScanRequest, whole_range
from txaware.store.hbase.schema import OWN_ROWS

Writes = dict[bytes, bytes | None]


class HBaseView:
    """The rows as the last batch left them; nothing is written, and nobody has to stop.

    All rows from before the last batch are there. Those of the last batch may be on
    their way, and are taken from its redo record. Each call looks anew for the last
    batch. `tags` are the first bytes of the keys that exist; no others are looked for.
    """

    def __init__(self, connections: HBaseConnections) -> None:
        self.tags: Container[bytes] | None = None
        self._name = str(connections.address)
        self._scanning = Scanning(connections)
        self._head = HeadCell(connections)
        self._redo = RedoLog(connections)
        self._last: tuple[StoreHead, Writes] | None = None

    def head(self) -> StoreHead:
        """Reads the head; raises `BadRequest` if nobody has opened the store yet."""
        head = self._head.read()
        if head is None:
            raise BadRequest(f"{self._name} holds no data: nobody has opened it yet")
        return head

    def last_batch(self) -> tuple[StoreHead, Writes]:
        """Reads the head and the writes of its batch, or raises `StoreCorrupted`."""
        while True:
            head = self.head()
            if self._last is not None and _same_batch(self._last[0], head):
                return head, self._last[1]
            try:
                writes = dict(decode_writes(self._redo.read(head)))
            except StoreCorrupted:
                if self.head() == head:
                    raise
                continue  # batches came meanwhile, and took its place
            self._last = head, writes
            return self._last

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key; None if there is none."""
        if not key or key.startswith(OWN_ROWS):
            return None
        head, writes = self.last_batch()
        if key in writes:
            return writes[key]
        return self._scanning.get(key, before_ms=_before_ms(head, writes))

    def scan(
        self,
        prefix: bytes,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int = 1000,
        max_bytes: int = 1 << 20,
    ) -> list[Row]:
        """Returns rows whose key begins with `prefix`, in order and without it."""
        first, last = whole_range(prefix, start, stop)
        is_absent = self.tags is not None and prefix[:1] not in self.tags
        if is_absent or prefix.startswith(OWN_ROWS):
            return []
        head, writes = self.last_batch()
        cut, before_ms = len(prefix), _before_ms(head, writes)
        while True:
            rows = self._scanning.scan(
                ScanRequest(prefix, first, last, limit, max_bytes, False, before_ms)
            )
            size = sum([len(value) for _, value in rows])
            is_all = len(rows) < limit and size < max_bytes
            end = last if is_all else prefix + rows[-1][0] + b"\0"
            changed = {
                key[cut:]: value for key, value in writes.items() if first <= key < end
            }
            found = _overlaid(rows, changed)
            if found or is_all:
                return found[:limit]
            first = end


def _before_ms(head: StoreHead, writes: Writes) -> int:
    """Returns the timestamp before which the rows in HBase count.

    The rows of a batch with an empty record are all there.
    """
    return head.time_ms if writes else head.time_ms + 1


def _overlaid(rows: list[Row], changed: Writes) -> list[Row]:
    """Applies to rows what was written since to the same range."""
    if not changed:
        return rows
    values = {**dict(rows), **changed}
    return sorted((key, value) for key, value in values.items() if value is not None)


def _same_batch(one: StoreHead, other: StoreHead) -> bool:
    return (one.batch, one.time_ms, one.crc) == (other.batch, other.time_ms, other.crc)
