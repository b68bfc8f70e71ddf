"""HBase in memory, as its Thrift server shows it: cells, versions, deletions, scans."""

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import attrs
import happybase  # noqa: F401  (that is where the next one comes from)
import Hbase_thrift
from sortedcontainers import SortedDict

_TTL = b"_ttl"
MOST_KEY_BYTES, MOST_CELL_BYTES = 32_767, 10 << 20


@attrs.frozen
class Cell:
    """A value, and until when HBase shows it."""

    value: bytes
    until_ms: float


@attrs.define(eq=False)
class Row:
    """Cells by column and timestamp; a later put of the same timestamp wins.

    What is not above `deleted_ms` is hidden, whenever it came.
    """

    cells: dict[bytes, dict[int, Cell]] = attrs.field(factory=dict)
    deleted_ms: int = -1

    def newest(self, column: bytes, before_ms: int, now_ms: int) -> int | None:
        """The timestamp of the cell that is shown."""
        found = [
            time_ms
            for time_ms, cell in self.cells.get(column, {}).items()
            if self.deleted_ms < time_ms < before_ms and cell.until_ms >= now_ms
        ]
        return max(found, default=None)


class FakeHBase:
    """The calls of the Thrift server that a store makes; any number of threads.

    `now_ms` is HBase's own clock. Late requests wait in `late` until they `arrive`.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.versions: dict[bytes, int] = {}
        self.tables: dict[bytes, SortedDict[bytes, Row]] = {}
        self.late: list[Callable[[], object]] = []
        self.lock = threading.RLock()
        self._scanners: dict[int, Iterator[Any]] = {}
        self._scanner = 0

    def arrive(self, at: int = 0) -> None:
        """One of the late requests is carried out; nobody hears of it."""
        with self.lock:
            self.late.pop(at)()

    def flush(self) -> None:
        """Keeps only so many versions; what deletions hide is gone, they stay."""
        for name, row in self._rows():
            most = self.versions[name]
            for column, versions in row.cells.items():
                kept = sorted(t for t in versions if t > row.deleted_ms)[-most:]
                row.cells[column] = {t: versions[t] for t in kept}

    def compact(self) -> None:
        """A major compaction: deletions are forgotten too."""
        self.flush()
        for _, row in self._rows():
            row.deleted_ms = -1

    def _rows(self) -> list[tuple[bytes, Row]]:
        with self.lock:
            return [
                (name, row)
                for name, table in self.tables.items()
                for row in table.values()
            ]

    def getTableNames(self) -> list[bytes]:  # noqa: N802
        return sorted(self.tables)

    def createTable(self, table: bytes, families: list[Any]) -> None:  # noqa: N802
        if table in self.tables:
            raise Hbase_thrift.AlreadyExists(message=b"table name already in use")
        (family,) = families
        self.versions[table] = family.maxVersions
        self.tables[table] = SortedDict()

    def getRow(self, table: bytes, key: bytes, _: object) -> list[Any]:  # noqa: N802
        return self.getRowTs(table, key, 1 << 62, {})

    def getRowTs(  # noqa: N802
        self, table: bytes, key: bytes, before_ms: int, _: object
    ) -> list[Any]:
        with self.lock:
            row = self._table(table).get(key)
            found = None if row is None else self._result(key, row, before_ms)
            return [] if found is None else [found]

    def mutateRow(  # noqa: N802
        self, table: bytes, key: bytes, mutations: list[Any], attributes: Any
    ) -> None:
        self.mutateRowTs(table, key, mutations, self.now_ms(), attributes)

    def mutateRowTs(  # noqa: N802
        self,
        table: bytes,
        key: bytes,
        mutations: list[Any],
        time_ms: int,
        attributes: Any,
    ) -> None:
        _check_sizes(key, mutations)
        with self.lock:
            row = self._row_to_write(table, key)
            lifetime = attributes.get(_TTL)
            until_ms: float = float("inf")
            if lifetime is not None:
                until_ms = time_ms + int.from_bytes(lifetime, "big")
            for mutation in mutations:
                if mutation.isDelete:
                    assert mutation.column == b"f", "columns are not deleted alone"
                    row.deleted_ms = max(row.deleted_ms, time_ms)
                else:
                    cell = Cell(mutation.value, until_ms)
                    row.cells.setdefault(mutation.column, {})[time_ms] = cell

    def mutateRowsTs(  # noqa: N802
        self, table: bytes, batches: list[Any], time_ms: int, attributes: Any
    ) -> None:
        for one in batches:
            self.mutateRowTs(table, one.row, one.mutations, time_ms, attributes)

    def mutateRows(  # noqa: N802
        self, table: bytes, batches: list[Any], attributes: Any
    ) -> None:
        self.mutateRowsTs(table, batches, self.now_ms(), attributes)

    def checkAndPut(  # noqa: N802
        self,
        table: bytes,
        key: bytes,
        column: bytes,
        expected: bytes | None,
        put: Any,
        _: object,
    ) -> bool:
        with self.lock:
            row = self._row_to_write(table, key)
            time_ms = row.newest(column, 1 << 62, self.now_ms())
            found = None if time_ms is None else row.cells[column][time_ms].value
            if (found or None) != (expected or None):
                return False
            new_ms = max(self.now_ms(), -1 if time_ms is None else time_ms)
            self.mutateRowTs(table, key, [put], new_ms, {})
            return True

    def deleteAllRow(self, table: bytes, key: bytes, _: object) -> None:  # noqa: N802
        deletion = Hbase_thrift.Mutation(isDelete=True, column=b"f")
        self.mutateRow(table, key, [deletion], {})

    def deleteAllRowTs(  # noqa: N802
        self, table: bytes, key: bytes, time_ms: int, _: object
    ) -> None:
        deletion = Hbase_thrift.Mutation(isDelete=True, column=b"f")
        self.mutateRowTs(table, key, [deletion], time_ms, {})

    def scannerOpenWithScan(self, table: bytes, scan: Any, _: object) -> int:  # noqa: N802
        with self.lock:
            self._scanner += 1
            self._scanners[self._scanner] = self._scan(self._table(table), scan)
            return self._scanner

    def scannerGetList(self, scanner: int, count: int) -> list[Any]:  # noqa: N802
        with self.lock:
            if scanner not in self._scanners:
                raise Hbase_thrift.IllegalArgument(message=b"scanner ID is invalid")
            rows = self._scanners[scanner]
            return list(islice(rows, count))

    def scannerClose(self, scanner: int) -> None:  # noqa: N802
        self._scanners.pop(scanner, None)

    def _scan(self, table: "SortedDict[bytes, Row]", scan: Any) -> Iterator[Any]:
        """Each row as it is when the scan comes to it."""
        at, step = scan.startRow or None, -1 if scan.reversed else 1
        taken_in = True
        while True:
            bounds = (None, at) if step < 0 else (at, None)
            keys = table.irange(*bounds, (taken_in, taken_in), reverse=step < 0)
            key = next(keys, None)
            if key is None or (
                scan.stopRow
                and (key >= scan.stopRow if step > 0 else key <= scan.stopRow)
            ):
                return
            found = self._result(key, table[key], scan.timestamp or 1 << 62)
            if found is not None:
                yield found
            at, taken_in = key, False

    def _table(self, name: bytes) -> "SortedDict[bytes, Row]":
        if name not in self.tables:
            text = f"org.apache.hadoop.hbase.TableNotFoundException: {name.decode()}"
            raise Hbase_thrift.IOError(message=text.encode())
        return self.tables[name]

    def _row_to_write(self, table: bytes, key: bytes) -> Row:
        if table not in self.tables:  # a put does not name it
            raise Hbase_thrift.IOError(message=b"Failed 1 action")
        row: Row = self.tables[table].setdefault(key, Row())
        return row

    def _result(self, key: bytes, row: Row, before_ms: int) -> Any:
        cells = {}
        for column, versions in row.cells.items():
            time_ms = row.newest(column, before_ms, self.now_ms())
            if time_ms is not None:
                value = versions[time_ms].value
                cells[column] = Hbase_thrift.TCell(value=value, timestamp=time_ms)
        return Hbase_thrift.TRowResult(row=key, columns=cells) if cells else None


def _check_sizes(key: bytes, mutations: list[Any]) -> None:
    sizes = [len(each.value) for each in mutations if not each.isDelete]
    if len(key) > MOST_KEY_BYTES:
        text = f"Row length {len(key)} is > {MOST_KEY_BYTES}"
        raise Hbase_thrift.IllegalArgument(message=text.encode())
    if len(key) + max(sizes, default=0) > MOST_CELL_BYTES:
        raise Hbase_thrift.IllegalArgument(message=b"KeyValue size too large")
