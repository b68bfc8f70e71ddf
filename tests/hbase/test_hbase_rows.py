"""How rows of HBase are read by pieces, without an HBase."""

from types import SimpleNamespace

import pytest

from txaware.model.interfaces import Row
from txaware.store.hbase.scans import FIRST_ROWS, MOST_ROWS, CellRange, _rows

MIB = 1 << 20


class Scanner:
    """Gives out rows of these sizes, and remembers how many were asked for."""

    def __init__(self, sizes: list[int]) -> None:
        self.asked: list[int] = []
        self._left = [
            SimpleNamespace(
                row=b"\0%04d" % number,
                columns={b"f:p": SimpleNamespace(value=bytes(size), timestamp=1)},
            )
            for number, size in enumerate(sizes)
        ]

    def more(self, count: int) -> list[SimpleNamespace]:
        self.asked.append(count)
        given, self._left = self._left[:count], self._left[count:]
        return given


def read(scanner: Scanner, limit: int, max_bytes: int = MIB) -> tuple[list[Row], bool]:
    wanted = CellRange(
        table=b"t",
        start=b"\0",
        stop=b"\1",
        limit=limit,
        max_bytes=max_bytes,
        reverse=False,
        before_ms=9,
        cut=1,
    )
    return _rows(wanted, scanner.more)


def test_a_page_of_small_rows_takes_two_calls() -> None:
    scanner = Scanner([100] * 2000)
    rows, is_all = read(scanner, limit=1001)
    assert [key for key, _ in rows] == [b"%04d" % number for number in range(1001)]
    assert not is_all
    assert scanner.asked == [FIRST_ROWS, 1001 - FIRST_ROWS]


def test_after_a_large_row_pieces_grow_slowly() -> None:
    scanner = Scanner([10] * 63 + [MIB // 8] + [10] * 2000)
    rows, _ = read(scanner, limit=1001)
    assert len(rows) == 1001
    assert scanner.asked == [FIRST_ROWS, 4 * FIRST_ROWS, 1001 - 5 * FIRST_ROWS]


def test_rows_end_with_the_one_that_fills_the_bytes() -> None:
    rows, is_all = read(Scanner([99] * 500), limit=500, max_bytes=1000)
    assert len(rows) == 10  # with the byte in front of each
    assert not is_all


@pytest.mark.parametrize("size", [0, 1, FIRST_ROWS, FIRST_ROWS + 1, 3 * MOST_ROWS])
def test_the_end_is_known_where_fewer_come_than_were_asked_for(size: int) -> None:
    rows, is_all = read(Scanner([1] * size), limit=5 * MOST_ROWS)
    assert len(rows) == size
    assert is_all
