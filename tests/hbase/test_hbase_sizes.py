"""Sizes of ranges in HBase: told by what was counted, within a tally at either end."""

import random
from collections.abc import Iterator
from itertools import accumulate, pairwise

import pytest

from tests.support.doubles import Clock
from txaware.model.interfaces import Row
from txaware.model.settings import Settings
from txaware.model.topics import TopicName, data_prefix
from txaware.service.retention.deletion import Deleting
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.table import HBaseTable
from txaware.store.hbase.tallies import COUNTED_BYTES, TALLY_BYTES
from txaware.store.keys import MESSAGE, PAYLOAD, pointer_key, row_key

pytestmark = pytest.mark.hbase

PREFIX = MESSAGE + data_prefix(TopicName("t"), 1)
STORED = PAYLOAD + data_prefix(TopicName("t"), 1)
FIRST_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def opened(url: str) -> HBaseTable:
    return HBaseTable.open(HBaseAddress.parse(url), Settings(), clock_ms=Clock())


@pytest.fixture
def table(hbase_url: str) -> Iterator[HBaseTable]:
    found = opened(hbase_url)
    yield found
    found.close()


def bursts(count: int, *, rows: int = 500) -> list[list[Row]]:
    """Many rows in one ms, and then none for an hour or less."""
    chance, time_ms, made = random.Random(count), FIRST_MS, []
    for _ in range(count):
        time_ms += chance.randrange(1, HOUR_MS)
        size = chance.choice((100, 1000))
        value = b"\0" + chance.randbytes(size)
        made.append([(PREFIX + row_key(time_ms, at), value) for at in range(rows)])
    return made


def sizes(made: list[list[Row]]) -> list[int]:
    return [sum(len(key) + len(value) for key, value in rows) for rows in made]


def test_sizes_are_right_but_for_a_tally_at_either_end_however_uneven_rows_come(
    hbase_url: str,
) -> None:
    made = bursts(24)
    table = opened(hbase_url)
    for rows in made:
        table.submit(rows)()
    table.close()
    again = opened(hbase_url)  # who tells what another process has counted
    try:
        begins = [rows[0][0] for rows in made]
        sums = [0, *accumulate(sizes(made))]
        assert sums[-1] > 4 * COUNTED_BYTES
        for first, last in ((0, 23), (0, 12), (12, 23), (5, 20), (8, 9)):
            told = again.size_bytes(begins[first], begins[last])
            assert abs(told - (sums[last] - sums[first])) <= 2 * TALLY_BYTES
        silent_ms = FIRST_MS - HOUR_MS
        assert again.size_bytes(PREFIX, PREFIX + row_key(silent_ms)) == 0
    finally:
        again.close()


def test_what_is_small_is_counted_to_the_byte(table: HBaseTable) -> None:
    rows = [(PREFIX + row_key(FIRST_MS, at), b"\0" + bytes(at)) for at in range(200)]
    table.submit(rows)()
    for first, last in ((0, 200), (10, 20), (199, 200)):
        end = PREFIX + row_key(FIRST_MS, last)
        expected = sum(len(key) + len(value) for key, value in rows[first:last])
        assert table.size_bytes(rows[first][0], end) == expected


def test_payloads_of_transactions_at_once_are_told_apart(table: HBaseTable) -> None:
    pointers, value = [10**18, 10**18 + 1, 10**18 + 5000], b"\0" + bytes(1000)
    for at in range(0, 1500, 100):
        table.submit(
            [
                (STORED + pointer_key(pointer) + row_key(FIRST_MS, at + n), value)
                for pointer in pointers
                for n in range(100)
            ]
        )()
    each = 1500 * (len(STORED) + 18 + len(value))
    bounds = [STORED + pointer_key(one) for one in (*pointers, pointers[-1] + 1)]
    for start, stop in pairwise(bounds):
        assert abs(table.size_bytes(start, stop) - each) <= TALLY_BYTES
    assert abs(table.size_bytes(bounds[0], bounds[-1]) - 3 * each) <= TALLY_BYTES


def test_what_was_removed_counts_until_that_is_said(
    table: HBaseTable, hbase_url: str
) -> None:
    made = bursts(8)
    for rows in made:
        table.submit(rows)()
    end = PREFIX + b"\xff" * 10
    kept = made[4][0][0]
    deleting = Deleting(table, table._setting)
    deleting.delete_range(PREFIX, stop=kept[len(PREFIX) :])
    deleting.compact(())
    left = sum(sizes(made)[4:])
    assert abs(table.size_bytes(PREFIX, end) - left) <= 2 * TALLY_BYTES
    deleting.delete_range(PREFIX)
    deleting.compact(())
    table.close()
    again = opened(hbase_url)
    assert again.size_bytes(PREFIX, end) == 0
    again.close()
