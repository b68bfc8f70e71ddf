"""The table of transactional ids: who holds each of them now."""

import struct
from collections.abc import Iterator
from typing import Self

import attrs

from txaware.errors import StoreCorrupted
from txaware.interfaces import OrderedTable
from txaware.keys import TRANSACTIONAL_ID_ROW
from txaware.producers import ProducerIdentity
from txaware.store.ranges import pieces

# Producer id, epoch, and when that epoch began, in ms.
_ROW = struct.Struct(">qhq")


@attrs.frozen
class TransactionalIdRow:
    """The newest instance of a transactional id, and when it began."""

    producer: ProducerIdentity
    opened_ms: int

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Reads the value of a row."""
        try:
            producer_id, epoch, opened_ms = _ROW.unpack(data)
        except struct.error as error:
            raise StoreCorrupted(
                f"the row of a transactional id has {_ROW.size} bytes, not {len(data)}"
            ) from error
        return cls(ProducerIdentity(producer_id, epoch), opened_ms)

    def to_bytes(self) -> bytes:
        """Returns the value of the row."""
        producer = self.producer
        return _ROW.pack(producer.producer_id, producer.epoch, self.opened_ms)


class TransactionalIdTable:
    """The rows of all transactional ids, by their names."""

    def __init__(self, table: OrderedTable) -> None:
        self._table = table

    def get(self, name: str) -> TransactionalIdRow | None:
        """Returns the row of an id; None if nobody ever used it."""
        value = self._table.get(_key(name))
        return None if value is None else TransactionalIdRow.from_bytes(value)

    def replace(
        self, name: str, old: TransactionalIdRow | None, new: TransactionalIdRow
    ) -> bool:
        """Sets the row of an id if it is still `old`; returns once that is kept."""
        before = None if old is None else old.to_bytes()
        return self._table.compare_and_set(_key(name), before, new.to_bytes())

    def all(self) -> Iterator[tuple[str, TransactionalIdRow]]:
        """Reads the rows of all ids, in order."""
        for rows in pieces(self._table, TRANSACTIONAL_ID_ROW):
            for key, value in rows:
                yield key.decode("ascii"), TransactionalIdRow.from_bytes(value)

    def delete(self, names: list[str]) -> None:
        """Forgets ids; returns once that is kept."""
        self._table.submit([(_key(name), None) for name in names])()


def _key(name: str) -> bytes:
    return TRANSACTIONAL_ID_ROW + name.encode("ascii")
