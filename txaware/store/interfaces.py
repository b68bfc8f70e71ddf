"""The port under a durable table: rows of a whole key space, written batch by batch."""

from collections.abc import Sequence
from typing import Protocol

from txaware.interfaces import Row, Write


class RowBatch(Protocol):
    """Writes that become part of the store together."""

    def put(self, key: bytes, value: bytes) -> None:
        """Sets a value."""

    def delete(self, key: bytes) -> None:
        """Removes a row."""

    def write(self) -> None:
        """Returns when all of it is kept and can be read.

        Whatever it raises leaves open whether that came about, until `reopen`.
        """


class RowStore(Protocol):
    """What `Batches` writes to. Any number of threads read, one at a time writes."""

    name: str

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""

    def scan(
        self,
        prefix: bytes,
        *,
        start: bytes,
        stop: bytes | None,
        limit: int,
        max_bytes: int,
        reverse: bool,
    ) -> list[Row]:
        """Rows of one consistent view; see `OrderedTable.scan`."""

    @property
    def last_batch(self) -> int:
        """The highest number that the store knows of; 0 before the first.

        That of its last batch, or of the last one with an entry of the journal. Right
        from `reopen` on until a write fails.
        """

    def batch(self, number: int) -> RowBatch:
        """A batch to fill, with a number above the last one's."""

    def has_batch(self, number: int, writes: Sequence[Write]) -> bool:
        """Whether the batch that failed is part of the store; asked after `reopen`.

        `writes` are all that it had.
        """

    def damage(self, error: Exception) -> str | None:
        """What is damaged and what helps, where a write failed for that; or None."""

    def compact(self, start: bytes, stop: bytes) -> None:
        """See `OrderedTable.compact`."""

    def size_bytes(self, start: bytes, stop: bytes) -> int:
        """See `OrderedTable.size_bytes`."""

    def reopen(self) -> None:
        """Settles what became of a write that failed; raises where it cannot."""

    def status(self) -> str:
        """`"OK"`, or a sentence about what is known to be wrong, at once."""

    def close(self) -> None:
        """Gives everything back."""


def up_to(rows: list[Row], max_bytes: int) -> list[Row]:
    """As far as the row with which they have so many bytes."""
    size = 0
    for at, (_, value) in enumerate(rows):
        size += len(value)
        if size >= max_bytes:
            return rows[: at + 1]
    return rows
