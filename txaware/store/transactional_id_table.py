"""The table of transactional ids: which producer has each of them."""

from collections.abc import Iterator

from txaware.errors import StoreCorrupted
from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.model.markers import producer_marker
from txaware.store.keys import POSITION, TRANSACTIONAL_ID_ROW
from txaware.store.ranges import pieces

PRODUCER_ID_BYTES = 8


class TransactionalIdTable:
    """The rows of all transactional ids, by their names."""

    def __init__(self, table: OrderedTable) -> None:
        self._table = table

    def get(self, name: str) -> int | None:
        """Returns the id of a producer by its name; None if nobody ever used it."""
        value = self._table.get(transactional_id_key(name))
        return None if value is None else decode_producer_id(value)

    def replace(self, name: str, old: int | None, new: int) -> bool:
        """Gives a name another producer id, if it is still `old`; that is kept then."""
        before = None if old is None else _encoded(old)
        key = transactional_id_key(name)
        return self._table.compare_and_set(key, before, _encoded(new))

    def rows_of(self, name: str) -> Iterator[Row]:
        """Reads all rows of a name: its own, its commits, and its keys."""
        key = transactional_id_key(name)
        value = self._table.get(key)
        if value is not None:
            yield key, value
        prefix = POSITION + f"{producer_marker(name)}:".encode("ascii")
        for rows in pieces(self._table, prefix):
            for tail, value in rows:
                yield prefix + tail, value


def transactional_id_key(name: str) -> bytes:
    """Returns the key of the row of a transactional id."""
    return TRANSACTIONAL_ID_ROW + name.encode("ascii")


def decode_producer_id(value: bytes) -> int:
    """Reads the value of such a row; raises `StoreCorrupted` for any other."""
    if len(value) != PRODUCER_ID_BYTES:
        raise StoreCorrupted(
            f"the row of a transactional id has {PRODUCER_ID_BYTES} bytes, not "
            f"{len(value)}"
        )
    return int.from_bytes(value, "big")


def _encoded(producer_id: int) -> bytes:
    return producer_id.to_bytes(PRODUCER_ID_BYTES, "big")


def removals(rows: Iterator[Row]) -> list[Write]:
    """Returns what removes these rows."""
    return [(key, None) for key, _ in rows]
