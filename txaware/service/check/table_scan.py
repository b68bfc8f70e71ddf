"""Reads every row of a table for a check, a bounded number at a time."""

from collections.abc import Callable, Iterator

from txaware.errors import StoreCorrupted
from txaware.model.interfaces import Row
from txaware.model.reports import Progress
from txaware.service.check.findings import Findings
from txaware.store.interfaces import CheckedRows
from txaware.store.keys import ABOVE_ALL

READ_ROWS, READ_BYTES = 2000, 4 << 20

# Returns about how much of the disk the rows of a range take.
SizeBytes = Callable[[bytes, bytes], int]


class CheckScan:
    """A walk through tables in order, which counts rows and tells its progress."""

    def __init__(
        self,
        rows: CheckedRows,
        findings: Findings,
        *,
        progress: Progress | None = None,
        size_bytes: SizeBytes | None = None,
    ) -> None:
        self._rows = rows
        self._findings = findings
        self._progress = progress
        self._size_bytes = size_bytes
        self._all_bytes = size_bytes(b"", ABOVE_ALL) if size_bytes else 0
        self._before_bytes = 0
        self._done_rows = 0

    def table(self, first_byte: bytes) -> Iterator[Row]:
        """Yields all rows of one table, with its byte left off the keys."""
        start, before = b"", None
        while rows := self._piece(first_byte, start):
            for key, value in rows:
                if before is not None and key <= before:
                    self._findings.problem(
                        "order", first_byte + key, "the keys of a table do not rise"
                    )
                before = key
                yield key, value
            start = rows[-1][0] + b"\0"
            self._done_rows += len(rows)
            self._report(first_byte, start)
        if self._size_bytes is not None:
            self._before_bytes += self._size_bytes(first_byte, first_byte + start)

    def _piece(self, first_byte: bytes, start: bytes) -> list[Row]:
        # The last byte has no successor that a table could stop at.
        stop = ABOVE_ALL if first_byte == b"\xff" else None
        try:
            return self._rows.scan(
                first_byte,
                start=start,
                stop=stop,
                limit=READ_ROWS,
                max_bytes=READ_BYTES,
            )
        except StoreCorrupted as error:
            self._findings.problem(
                "store", first_byte + start, f"nothing can be read from here: {error}"
            )
            return []

    def _report(self, first_byte: bytes, start: bytes) -> None:
        if self._progress is None:
            return
        part = None
        if self._size_bytes is not None:
            table_bytes = self._size_bytes(first_byte, first_byte + start)
            done_bytes = self._before_bytes + table_bytes
            part = min(1.0, done_bytes / max(self._all_bytes, 1))
        self._progress(self._done_rows, part)
