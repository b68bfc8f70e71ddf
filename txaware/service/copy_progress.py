"""How far a copy has come, over all times that it goes through the rows."""

from collections.abc import Sequence

from txaware.interfaces import Row
from txaware.service.check.scan import Progress, SizeBytes

_ABOVE_ALL = b"\xff" * 64


class Phases:
    """Each phase goes through the same keys, whose places the source tells."""

    def __init__(
        self, size_bytes: SizeBytes, progress: Progress | None, count: int
    ) -> None:
        self._size_bytes = size_bytes
        self._progress = progress
        self._count = count
        self._all_bytes = size_bytes(b"", _ABOVE_ALL) if progress else 0
        self._done_rows = 0
        self._done_phases = 0

    def tell(self, rows: Sequence[Row]) -> None:
        """These are done as well."""
        if self._progress is None or not rows:
            return
        self._done_rows += len(rows)
        done_bytes = self._size_bytes(b"", rows[-1][0])
        part = min(1.0, done_bytes / max(self._all_bytes, 1))
        self._progress(self._done_rows, (self._done_phases + part) / self._count)

    def next(self) -> None:
        """A phase is over."""
        self._done_phases += 1
        if self._progress is not None:
            self._progress(self._done_rows, self._done_phases / self._count)
