"""The state of a copy, kept in its target: its moment, its place, its progress."""

from collections.abc import Sequence

import attrs

from coordinator import codec
from coordinator.errors import MalformedTransaction
from coordinator.transaction import Transaction
from txaware.errors import StoreCorrupted, Unavailable
from txaware.model.interfaces import Row, Write
from txaware.model.reports import Progress
from txaware.service.check.table_scan import SizeBytes
from txaware.store.keys import ABOVE_ALL, COPY, COPY_PLACE
from txaware.store.shard_rows import Gets

TIME_BYTES, DIGEST_BYTES = 8, 32
_GOING_ON, _DONE = b"c", b"d"


@attrs.frozen
class AsOf:
    """The moment of a copy: who had committed, and the time that rows are from before.

    A copy that is gone on with keeps its moment.
    """

    snapshot: Transaction
    before_ms: int

    def write(self) -> Write:
        """Returns the write of the row that keeps it."""
        time = self.before_ms.to_bytes(TIME_BYTES, "big")
        return COPY, time + codec.encode(self.snapshot)


@attrs.frozen
class CopyPlace:
    """The last key that was copied, and the digest of all rows up to it."""

    key: bytes
    digest: bytes
    is_done: bool = False

    def write(self) -> Write:
        """Returns the write of the row that keeps it."""
        return COPY_PLACE, (_DONE if self.is_done else _GOING_ON) + (
            self.digest + self.key
        )


def read_as_of(rows: Gets) -> AsOf | None:
    """Returns the moment of the copy that was begun here, or None."""
    data = rows.get(COPY)
    if data is None:
        return None
    try:
        snapshot = codec.decode(data[TIME_BYTES:])
    except MalformedTransaction as error:
        raise StoreCorrupted(f"the moment of a copy cannot be read: {error}") from error
    return AsOf(snapshot, int.from_bytes(data[:TIME_BYTES], "big"))


def read_place(rows: Gets) -> CopyPlace | None:
    """Returns the last place of the copy; None where nothing was copied yet."""
    data = rows.get(COPY_PLACE)
    if data is None:
        return None
    digest, key = data[1 : 1 + DIGEST_BYTES], data[1 + DIGEST_BYTES :]
    if data[:1] not in (_GOING_ON, _DONE) or len(digest) != DIGEST_BYTES:
        raise StoreCorrupted("how far a copy has come cannot be read")
    return CopyPlace(key, digest, data[:1] == _DONE)


def is_unfinished(rows: Gets) -> bool:
    """Tells whether a copy to here was begun and never came to its end."""
    if rows.get(COPY) is None:
        return False
    place = read_place(rows)
    return place is None or not place.is_done


def check_whole(rows: Gets, name: str) -> None:
    """Raises `Unavailable` where some rows of a copy may be missing."""
    if is_unfinished(rows):
        raise Unavailable(
            f"{name} is a copy that has not come to its end; txaware copy, called "
            f"again as before, goes on with it"
        )


class Phases:
    """The progress of several phases; each goes through the same keys."""

    def __init__(
        self, size_bytes: SizeBytes, progress: Progress | None, count: int
    ) -> None:
        self._size_bytes = size_bytes
        self._progress = progress
        self._count = count
        self._all_bytes = size_bytes(b"", ABOVE_ALL) if progress else 0
        self._done_rows = 0
        self._done_phases = 0

    def report(self, rows: Sequence[Row]) -> None:
        """Reports the progress after some more rows."""
        if self._progress is None or not rows:
            return
        self._done_rows += len(rows)
        done_bytes = self._size_bytes(b"", rows[-1][0])
        part = min(1.0, done_bytes / max(self._all_bytes, 1))
        self._progress(self._done_rows, (self._done_phases + part) / self._count)

    def next(self) -> None:
        """Ends a phase, and tells the progress."""
        self._done_phases += 1
        if self._progress is not None:
            self._progress(self._done_rows, self._done_phases / self._count)
