"""The port under a durable table: rows of a whole key space, written batch by batch."""

from collections.abc import Sequence
from typing import Protocol

from txaware.interfaces import Row, Write


class RowBatch(Protocol):
    """Writes that become part of the store together."""

    def put(self, key: bytes, value: bytes) -> None:
        """Sets the value of a key."""

    def delete(self, key: bytes) -> None:
        """Removes a row."""

    def write(self) -> None:
        """Writes the batch; all of it is kept and can be read when this returns.

        After any error it is unknown whether the batch was written, until `reopen`.
        """


class RowStore(Protocol):
    """The store under `Batches`. Any number of threads read, one at a time writes."""

    name: str

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key; None if there is none."""

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
        """Returns rows of one consistent view; see `OrderedTable.scan`."""

    @property
    def last_batch(self) -> int:
        """The highest batch number that the store knows; 0 before the first.

        That is the number of its last batch, or of the last batch with an entry of the
        journal. It is right from `reopen` on until a write fails.
        """

    def batch(self, number: int) -> RowBatch:
        """Begins a batch to fill, with a number above that of the last one."""

    def has_batch(self, number: int, writes: Sequence[Write]) -> bool:
        """Tells whether a batch that failed is in the store; called after `reopen`.

        `writes` are all writes of that batch.
        """

    def damage(self, error: Exception) -> str | None:
        """Returns the damage that failed a write, and what helps; None without any."""

    def compact(self, start: bytes, stop: bytes) -> None:
        """Frees the space of deleted rows; see `OrderedTable.compact`."""

    def size_bytes(self, start: bytes, stop: bytes) -> int:
        """Returns about the size of a range; see `OrderedTable.size_bytes`."""

    def reopen(self) -> None:
        """Settles the outcome of a write that failed; raises if it cannot."""

    def status(self) -> str:
        """Returns at once `"OK"`, or a sentence about what is known to be wrong."""

    def close(self) -> None:
        """Gives the store back."""


def up_to(rows: list[Row], max_bytes: int) -> list[Row]:
    """Returns the first rows, up to the row that brings their values to `max_bytes`."""
    size = 0
    for at, (_, value) in enumerate(rows):
        size += len(value)
        if size >= max_bytes:
            return rows[: at + 1]
    return rows
