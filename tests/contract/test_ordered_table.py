"""What every ordered table promises: rows in order, batches whole, rows held back."""

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.errors import Unavailable
from coordinator.transaction import Transaction
from tests.support.concurrency import in_threads
from tests.support.doubles import Clock
from tests.support.hbase_stores import HBaseStores
from txaware.model.interfaces import OrderedTable, Row
from txaware.model.settings import Settings
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.table import HBaseTable
from txaware.store.journaled_table import JournaledTable
from txaware.store.keys import MESSAGE, POSITION, row_key
from txaware.store.leveldb import LevelDbTable
from txaware.store.memory import MemoryTable

PREFIX = MESSAGE + b"ns:t:\0\0\0\1"
FIVE = [row_key(time_ms) for time_ms in (1, 2, 3, 4, 5)]

TABLES = ["memory", "leveldb"]
HBASE = pytest.param("hbase", marks=pytest.mark.hbase)


SMALL = Settings(sync_limit_bytes=500)


def opened(kind: str, place: Path | str, clock: Clock) -> OrderedTable:
    if kind == "memory":
        return MemoryTable(clock_ms=clock)
    if kind == "leveldb":
        return LevelDbTable.open(place, SMALL, clock_ms=clock)
    return HBaseTable.open(HBaseAddress.parse(str(place)), SMALL, clock_ms=clock)


def place_of(kind: str, request: pytest.FixtureRequest) -> Path | str:
    """Where a table of that kind may be, which is not there yet."""
    name = "hbase_url" if kind == "hbase" else "tmp_path"
    place: Path | str = request.getfixturevalue(name)
    return place


@pytest.fixture(params=[*TABLES, HBASE])
def table(request: pytest.FixtureRequest) -> Iterator[OrderedTable]:
    """Every implementation in turn, empty."""
    found = opened(request.param, place_of(request.param, request), Clock())
    yield found
    found.close()


@pytest.fixture
def five(table: OrderedTable) -> OrderedTable:
    """Five rows of one topic, and some before and after them."""
    rows = [(PREFIX + key, key[7:8]) for key in FIVE]
    others = [(PREFIX[:-1] + b"\0", b"x"), (PREFIX[:-1] + b"\2", b"x"), (b"n", b"x")]
    table.submit([*rows, *others])()
    return table


def numbers(rows: list[Row]) -> list[int]:
    return [value[0] for _, value in rows]


def coordinator_of(table: OrderedTable) -> EmbeddedCoordinator:
    journal = table.journal if isinstance(table, JournaledTable) else None
    return EmbeddedCoordinator(journal, clock_ms=Clock())


def begun(table: OrderedTable) -> tuple[EmbeddedCoordinator, Transaction]:
    coordinator = coordinator_of(table)
    return coordinator, coordinator.start_short()


def test_a_value_is_there_until_it_is_deleted(table: OrderedTable) -> None:
    assert table.get(PREFIX) is None
    table.submit([(PREFIX, b"")])()
    assert table.get(PREFIX) == b""
    table.submit([(PREFIX, b"a"), (PREFIX + b"b", b"c")])()
    assert table.get(PREFIX) == b"a"
    table.submit([(PREFIX, None), (PREFIX + b"never", None)])()
    assert table.get(PREFIX) is None
    assert table.get(PREFIX + b"b") == b"c"


def test_of_two_writes_of_a_key_the_later_counts(table: OrderedTable) -> None:
    table.submit([(PREFIX, b"a"), (PREFIX, b"b")])()
    assert table.get(PREFIX) == b"b"
    one, two = table.submit([(PREFIX, b"c")]), table.submit([(PREFIX, None)])
    two()
    one()
    assert table.get(PREFIX) is None


def test_a_scan_goes_from_start_to_before_stop(five: OrderedTable) -> None:
    assert [key for key, _ in five.scan(PREFIX)] == FIVE
    assert numbers(five.scan(PREFIX, start=FIVE[1])) == [2, 3, 4, 5]
    assert numbers(five.scan(PREFIX, start=FIVE[1] + b"\0")) == [3, 4, 5]
    assert numbers(five.scan(PREFIX, stop=FIVE[3])) == [1, 2, 3]
    assert numbers(five.scan(PREFIX, start=FIVE[1], stop=FIVE[3])) == [2, 3]
    assert numbers(five.scan(PREFIX, start=FIVE[3], stop=FIVE[1])) == []
    assert numbers(five.scan(PREFIX, start=FIVE[2], stop=FIVE[2])) == []
    assert numbers(five.scan(PREFIX, limit=2)) == [1, 2]
    assert five.scan(MESSAGE + b"ns:u:") == []
    assert len(five.scan(MESSAGE)) == 7
    assert numbers(five.scan(PREFIX + FIVE[0][:7])) == [1, 2, 3, 4, 5]


def test_a_scan_backwards_begins_before_stop(five: OrderedTable) -> None:
    assert numbers(five.scan(PREFIX, reverse=True)) == [5, 4, 3, 2, 1]
    assert numbers(five.scan(PREFIX, stop=FIVE[3], reverse=True)) == [3, 2, 1]
    found = five.scan(PREFIX, start=FIVE[1], stop=FIVE[3], limit=1, reverse=True)
    assert numbers(found) == [3]
    assert numbers(five.scan(PREFIX, start=FIVE[1], limit=9, reverse=True)) == [
        *(5, 4, 3, 2)
    ]


def test_a_scan_backwards_includes_its_start_where_it_is_the_last_row(
    table: OrderedTable,
) -> None:
    """plyvel leaves it out."""
    table.submit([(PREFIX + key, key[7:8]) for key in FIVE[:3]])()
    for start, stop in ((FIVE[2], None), (FIVE[2], FIVE[4]), (FIVE[1], FIVE[2])):
        found = table.scan(PREFIX, start=start, stop=stop, reverse=True)
        assert [key for key, _ in found] == [start]


def test_a_scan_ends_with_the_row_that_reaches_its_bytes(table: OrderedTable) -> None:
    table.submit([(PREFIX + row_key(at), b"x" * 100) for at in range(100)])()
    for max_bytes, expected in ((1, 1), (100, 1), (101, 2), (1_999, 20), (9_999, 100)):
        for reverse in (False, True):
            rows = table.scan(PREFIX, max_bytes=max_bytes, reverse=reverse)
            assert len(rows) == expected


def test_a_prefix_that_ends_with_the_greatest_bytes_is_whole(
    table: OrderedTable,
) -> None:
    prefix = MESSAGE + b"ns:t:\xff\xff"
    table.submit([(prefix + b"\xff" * 10, b"1"), (prefix, b"0"), (b"n", b"x")])()
    assert [value for _, value in table.scan(prefix)] == [b"0", b"1"]
    assert [value for _, value in table.scan(prefix, reverse=True)] == [b"1", b"0"]


def test_only_a_value_that_is_still_the_old_one_is_replaced(
    table: OrderedTable,
) -> None:
    assert table.compare_and_set(PREFIX, None, b"a")
    assert not table.compare_and_set(PREFIX, None, b"b")
    assert not table.compare_and_set(PREFIX, b"b", b"c")
    assert table.get(PREFIX) == b"a"
    assert table.compare_and_set(PREFIX, b"a", b"b")
    assert table.get(PREFIX) == b"b"


def test_of_many_that_replace_a_value_at_once_one_wins(table: OrderedTable) -> None:
    table.submit([(PREFIX, b"0")])()
    won: list[int] = []

    def count() -> None:
        for _ in range(20):
            old = table.get(PREFIX)
            assert old is not None
            if table.compare_and_set(PREFIX, old, b"%d" % (int(old) + 1)):
                won.append(1)

    in_threads(lambda _: count(), range(8))
    assert table.get(PREFIX) == b"%d" % len(won)
    assert len(won) >= 20


def test_whoever_submits_is_told_before_waiting_ends(table: OrderedTable) -> None:
    told: list[object] = []
    table.submit([(PREFIX, b"a")], told.append)()
    assert told == [None]


def test_a_scan_sees_all_of_a_batch_or_nothing(table: OrderedTable) -> None:
    done = threading.Event()

    def write() -> None:
        for number in range(1, 200):
            rows = [(PREFIX + key, bytes([number])) for key in FIVE]
            table.submit(rows)()
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        assert len({*numbers(table.scan(PREFIX))}) <= 1
    writer.join()


def test_held_rows_are_read_like_others(five: OrderedTable) -> None:
    coordinator, tx = begun(five)
    pointer = tx.transaction_id
    rows = [(PREFIX + row_key(at, 1), bytes([at * 10])) for at in (0, 3, 6)]
    assert five.hold(pointer, rows)
    merged = [0, 1, 2, 3, 30, 4, 5, 60]
    for _ in range(2):
        assert numbers(five.scan(PREFIX)) == merged
        assert numbers(five.scan(PREFIX, reverse=True)) == merged[::-1]
        for limit in range(1, 9):
            assert numbers(five.scan(PREFIX, limit=limit)) == merged[:limit]
            found = five.scan(PREFIX, limit=limit, reverse=True)
            assert numbers(found) == merged[::-1][:limit]
        assert numbers(five.scan(PREFIX, start=FIVE[2], stop=FIVE[3])) == [3, 30]
        assert numbers(five.scan(PREFIX, stop=FIVE[0])) == [0]
        assert five.get(PREFIX + row_key(3, 1)) == b"\x1e"
        assert len(five.scan(MESSAGE)) == 10
        if pointer:
            coordinator.can_commit(tx, [])
            coordinator.commit(tx)
            pointer = 0
    assert five.replace_held(PREFIX + FIVE[0], b"x") == isinstance(five, MemoryTable)


def test_a_held_row_is_changed_where_it_is(table: OrderedTable) -> None:
    coordinator, tx = begun(table)
    key = PREFIX + FIVE[0]
    assert table.hold(tx.transaction_id, [(key, b"a")])
    assert table.replace_held(key, b"b")
    assert table.get(key) == b"b"
    coordinator.can_commit(tx, [])
    coordinator.commit(tx)
    assert table.get(key) == b"b"


def test_a_held_row_that_is_deleted_does_not_come_back(table: OrderedTable) -> None:
    coordinator, tx = begun(table)
    key, other = PREFIX + FIVE[0], POSITION + b"g:ns:t:" + bytes(8)
    table.hold(tx.transaction_id, [(key, b"a"), (other, b"b")])
    table.submit([(key, None)])()
    assert table.get(key) is None
    coordinator.can_commit(tx, [])
    coordinator.commit(tx)
    assert table.get(key) is None
    assert table.get(other) == b"b"


DURABLE = ["leveldb", HBASE]


@pytest.mark.parametrize("kind", DURABLE)
def test_the_time_goes_on_after_a_restart_with_the_clock_set_back(
    kind: str, request: pytest.FixtureRequest
) -> None:
    clock, place = Clock(), place_of(kind, request)
    with_time = opened(kind, place, clock)
    with_time.clock.given(clock() + 5_000)
    with_time.reserve_time()
    given_ms = with_time.clock.now_ms()
    assert given_ms == clock() + 5_000
    with_time.close()
    clock.advance_s(-3_600)
    again = opened(kind, place, clock)
    assert again.clock.now_ms() > given_ms
    again.close()


@pytest.mark.parametrize("kind", DURABLE)
def test_what_was_submitted_is_there_after_a_restart(
    kind: str, request: pytest.FixtureRequest
) -> None:
    place = place_of(kind, request)
    table = opened(kind, place, Clock())
    table.submit([(PREFIX, b"a")])()
    table.close()
    again = opened(kind, place, Clock())
    assert again.get(PREFIX) == b"a"
    again.close()


@pytest.mark.parametrize("kind", [*TABLES, HBASE])
def test_a_closed_table_is_unavailable(
    kind: str, request: pytest.FixtureRequest
) -> None:
    table = opened(kind, place_of(kind, request), Clock())
    table.submit([(PREFIX, b"a")])()
    assert table.status() == "OK"
    table.close()
    with pytest.raises(Unavailable):
        table.get(PREFIX)
    with pytest.raises(Unavailable):
        table.scan(PREFIX)
    with pytest.raises(Unavailable):
        table.size_bytes(PREFIX, PREFIX + b"\xff")
    with pytest.raises(Unavailable):
        table.submit([(PREFIX, b"b")])()


def test_a_deleted_range_may_be_given_back(five: OrderedTable) -> None:
    five.submit([(PREFIX + key, None) for key in FIVE])()
    five.compact(PREFIX, PREFIX + b"\xff")
    assert five.scan(PREFIX) == []
    assert len(five.scan(MESSAGE)) == 2


def filled_with_rows(table: OrderedTable, *, first: int, count: int) -> None:
    rows = [
        (PREFIX + row_key(at), random.Random(at).randbytes(1000))
        for at in range(first, first + count)
    ]
    table.submit(rows)()


def test_the_size_of_a_range_is_about_what_its_rows_hold(
    table: OrderedTable,
) -> None:
    filled_with_rows(table, first=0, count=4000)
    table.compact(PREFIX, PREFIX + b"\xff")  # LevelDB tells of what is in its files
    for first, last in ((0, 4000), (1000, 3000), (0, 400), (3600, 4000)):
        start, stop = PREFIX + row_key(first), PREFIX + row_key(last)
        expected = (last - first) * 1000
        assert 0.9 * expected <= table.size_bytes(start, stop) <= 1.2 * expected


def test_a_range_without_rows_has_no_size(five: OrderedTable) -> None:
    five.compact(PREFIX, PREFIX + b"\xff")
    for start, stop in (
        (PREFIX + FIVE[1], PREFIX + FIVE[1]),
        (PREFIX + FIVE[3], PREFIX + FIVE[1]),
        (b"x", b"y"),
    ):
        assert five.size_bytes(start, stop) == 0


def test_the_sizes_of_neighbours_add_up(table: OrderedTable) -> None:
    filled_with_rows(table, first=0, count=2000)
    table.compact(PREFIX, PREFIX + b"\xff")
    bounds = [PREFIX + row_key(at) for at in (0, 700, 1100, 2000)]
    parts = [table.size_bytes(*pair) for pair in pairwise(bounds)]
    whole = table.size_bytes(bounds[0], bounds[-1])
    assert 0.95 * whole <= sum(parts) <= 1.05 * whole


keys = st.builds(row_key, st.integers(0, 5), st.integers(0, 2))
operations = st.lists(
    st.tuples(keys, st.none() | st.binary(max_size=30), st.sampled_from("shr")),
    max_size=25,
)


@pytest.fixture(scope="module", params=[*TABLES, HBASE])
def of_all(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OrderedTable]:
    """One table for all examples."""
    with ExitStack() as lent:
        place: Path | str = tmp_path_factory.mktemp("all")
        if request.param == "hbase":
            stores: HBaseStores = request.getfixturevalue("hbase_stores")
            place = lent.enter_context(stores.lent())
        found = opened(request.param, place, Clock())
        yield found
        found.close()


@settings(max_examples=60, deadline=None)
@given(operations, keys, st.none() | keys, st.integers(1, 9), st.booleans())
def test_all_tables_answer_as_a_sorted_map(
    of_all: OrderedTable,
    steps: list[tuple[bytes, bytes | None, str]],
    start: bytes,
    stop: bytes | None,
    limit: int,
    reverse: bool,
) -> None:
    table, model = of_all, dict[bytes, bytes]()
    coordinator, tx = begun(table)
    table.submit([(PREFIX + key, None) for key, _ in table.scan(PREFIX)])()
    held: set[bytes] = set()
    for key, value, how in steps:
        full = PREFIX + key
        if how == "h" and value is not None and key not in model:
            if table.hold(tx.transaction_id, [(full, value)]):
                held.add(key)
            else:
                table.submit([(full, value)])()
        elif how == "r" and value is not None and key in held:
            assert table.replace_held(full, value)
        elif key not in held or value is None:
            table.submit([(full, value)])()
            held.discard(key)
        else:
            continue
        model.pop(key, None)
        if value is not None:
            model[key] = value
    whole = sorted(model.items())
    assert table.scan(PREFIX) == whole
    expected = [
        row for row in whole if start <= row[0] and (stop is None or row[0] < stop)
    ]
    found = table.scan(PREFIX, start=start, stop=stop, limit=limit, reverse=reverse)
    assert found == expected[:: -1 if reverse else 1][:limit]
    coordinator.abort(tx)
