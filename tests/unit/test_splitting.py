"""Decisions on where to cut: fair shares, few look-ups, never too many of anything."""

from itertools import pairwise

import attrs
from hypothesis import given
from hypothesis import strategies as st

from txaware.model.messages import MessageId
from txaware.model.requests import MOST_CUTS, Wanted
from txaware.service.read.split_planner import (
    ReferenceSearch,
    Stretch,
    TopicSplits,
)
from txaware.service.read.splits import (
    MOST_MARKS,
    Marks,
    divided,
    first_where,
    folded,
)
from txaware.store.columns import value_head
from txaware.store.keys import MESSAGE, payload_prefix, row_key
from txaware.store.memory import MemoryTable

LEAST, MOST = MessageId(bytes(20)), MessageId(b"\xff" * 20)


@attrs.define
class Rows:
    """Rows by their numbers; counts how often it is asked."""

    sizes: dict[int, int]
    asked: int = 0

    def size_of(self, start: int, stop: int) -> int:
        self.asked += 1
        return sum([size for at, size in self.sizes.items() if start <= at < stop])

    def narrow(self, start: int, stop: int) -> tuple[int, int] | None:
        self.asked += 1
        found = [at for at in self.sizes if start <= at < stop]
        return (min(found), max(found)) if found else None


def marked(sizes: list[int], part_bytes: int) -> Marks:
    marks = Marks(Wanted(LEAST, MOST, part_bytes))
    for at, size in enumerate(sizes, 1):
        marks.add(MessageId.of(at), size)
    return marks


def part_sizes(sizes: list[int], cuts: list[MessageId]) -> list[int]:
    begins = [0, *(one.publish_time_ms - 1 for one in cuts), len(sizes)]
    return [sum(sizes[first:last]) for first, last in pairwise(begins)]


def test_equal_messages_are_cut_into_equal_parts() -> None:
    cuts = marked([10] * 100, 100).cuts()
    assert part_sizes([10] * 100, cuts) == [100] * 10


def test_parts_are_equal_where_the_last_would_be_a_small_rest() -> None:
    assert part_sizes([10] * 11, marked([10] * 11, 100).cuts()) in ([50, 60], [60, 50])


def test_nothing_is_cut_off_in_front_of_the_first_message() -> None:
    assert marked([1000, 1, 1], 10).cuts() == [MessageId.of(2)]


def test_marks_outside_of_the_ends_do_not_count() -> None:
    marks = Marks(Wanted(MessageId.of(5), MessageId.of(8), 1))
    for at in range(20):
        marks.add(MessageId.of(at), 1)
    assert marks.cuts() == [MessageId.of(6), MessageId.of(7)]


def test_an_id_with_several_marks_is_cut_at_once() -> None:
    marks = Marks(Wanted(LEAST, MOST, 10))
    for at in (1, 2, 2, 2, 3):
        marks.add(MessageId.of(at), 10)
    assert marks.cuts() == [MessageId.of(2), MessageId.of(3)]


def test_marks_may_come_from_several_places_in_turn() -> None:
    marks = Marks(Wanted(LEAST, MOST, 10))
    for at in (1, 3, 5, 7, 2, 4, 6, 8):
        marks.add(MessageId.of(at), 10)
    assert marks.cuts() == [MessageId.of(at) for at in range(2, 9)]


def test_there_are_never_too_many_marks_or_cuts() -> None:
    sizes = [1] * (2 * MOST_MARKS + 5)
    marks = marked(sizes, 1)
    assert len(marks) <= MOST_MARKS
    cuts = marks.cuts()
    assert 0.9 * MOST_CUTS <= len(cuts) <= MOST_CUTS
    assert max(part_sizes(sizes, cuts)) <= 2 * len(sizes) / MOST_CUTS


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 5000))
def test_a_part_is_larger_than_asked_for_by_a_message_at_most(
    sizes: list[int], part_bytes: int
) -> None:
    cuts = marked(sizes, part_bytes).cuts()
    assert all(one < other for one, other in pairwise(cuts))
    found = part_sizes(sizes, cuts)
    assert sum(found) == sum(sizes)
    assert not cuts or min(found) > 0
    grain = part_bytes / 8
    assert max(found) <= part_bytes + max(sizes, default=0) + grain


rows = st.dictionaries(st.integers(0, 2**80 - 1), st.integers(1, 100), max_size=30)


@given(rows, st.integers(1, 300))
def test_a_range_is_divided_until_no_piece_is_above_a_grain_but_single_rows(
    sizes: dict[int, int], grain: int
) -> None:
    table = Rows(sizes)
    pieces = list(
        divided(0, 2**80, size_of=table.size_of, narrow=table.narrow, grain_bytes=grain)
    )
    begins = [first for first, _ in pieces]
    assert begins == sorted(set(begins))
    assert sum(size for _, size in pieces) == sum(sizes.values())
    for (first, size), after in zip(pieces, [*begins[1:], 2**80], strict=True):
        inside = [at for at in sizes if first <= at < after]
        assert size <= grain or len(inside) == 1
    assert table.asked <= 3 + 8 * max(1, len(sizes)) * 8


def test_a_piece_may_be_as_large_as_a_grain() -> None:
    table = Rows({0: 10, 5: 10})
    pieces = divided(0, 10, size_of=table.size_of, narrow=table.narrow, grain_bytes=20)
    assert [*pieces] == [(0, 20)]


def test_a_single_row_above_a_grain_is_not_looked_into() -> None:
    table = Rows({7: 10})
    found = divided(7, 8, size_of=table.size_of, narrow=table.narrow, grain_bytes=5)
    assert [*found] == [(7, 10)]
    assert table.asked == 1


def test_a_gap_costs_two_look_ups_and_not_one_for_every_half() -> None:
    table = Rows({0: 10, 2**79 + 1: 10})
    found = divided(
        0, 2**80, size_of=table.size_of, narrow=table.narrow, grain_bytes=10
    )
    assert len(list(found)) == 2
    assert table.asked < 10


def test_deleted_rows_that_still_have_a_size_are_left_out() -> None:
    found = divided(
        0, 100, size_of=lambda a, b: 50 * (a <= 7 < b), narrow=lambda a, b: None,
        grain_bytes=1,
    )  # fmt: skip
    assert list(found) == []


def test_rows_are_joined_until_a_grain_is_full() -> None:
    weights = [(b"a", 1.0), (b"b", 1.0), (b"c", 1.0), (b"d", 3.0), (b"e", 1.0)]
    joined = [(b"a", 2.0), (b"c", 1.0), (b"d", 3.0), (b"e", 1.0)]
    assert [*folded(weights, 2.0)] == joined


@given(st.lists(st.integers(1, 20), max_size=30), st.integers(1, 50))
def test_joined_rows_keep_their_sum_and_stay_below_a_grain(
    sizes: list[int], grain: int
) -> None:
    rows = [(bytes([at]), float(size)) for at, size in enumerate(sizes)]
    joined = list(folded(rows, grain))
    assert sum(size for _, size in joined) == sum(sizes)
    assert all(size <= max(grain, 20) for _, size in joined)
    assert [key for key, _ in joined] == sorted({key for key, _ in joined})


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))
def test_the_first_number_where_something_holds(
    start: int, length: int, bound: int
) -> None:
    stop = start + length
    found = first_where(start, stop, lambda number: number >= bound)
    assert found == min(max(start, bound), stop)


def stored_rows(table: MemoryTable, pointer: int, sizes: list[int]) -> None:
    """Writes payloads of a transaction, and a reference to them at that time."""
    key = MESSAGE + b"p" + row_key(pointer)
    table.submit([(key, value_head(pointer, reference=True))])()
    before = payload_prefix(b"p", pointer)
    for at, size in enumerate(sizes):
        table.submit([(before + row_key(1, at), value_head(None) + bytes(size))])()


def test_few_payloads_are_counted_one_by_one() -> None:
    table = MemoryTable()
    stored_rows(table, 1, [100] * 6)
    ids = TopicSplits(table, b"p", Wanted(LEAST, MOST, 224)).ids()
    assert [one.payload_key for one in ids] == [row_key(1, 2), row_key(1, 4)]


def test_a_reference_is_found_among_those_of_others() -> None:
    table = MemoryTable()
    for pointer in (1, 2, 3):
        stored_rows(table, pointer, [100])
    rows = Stretch(MESSAGE + b"p", row_key(0), b"\xff" * 10)
    search = ReferenceSearch(table, rows)
    assert search.row_key(2, bytes(18)) == row_key(2)
    assert search.row_key(7, bytes(18)) is None
