"""Sorted pointers answer as a set of ints would, and share what did not change."""

import itertools
from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from coordinator.pointers import (
    NO_POINTERS,
    NO_RANGES,
    Pointers,
    PointersAndRanges,
    Ranges,
    as_pointers,
)
from coordinator.transaction import Transaction
from tests.support.strategies import few_pointers, pointers
from txaware.service.visibility import DELIVER, Visibility


@given(few_pointers, pointers)
def test_a_pointer_is_found_exactly_when_it_was_put_in(
    listed: list[int], other: int
) -> None:
    kept = Pointers(listed)
    assert all(pointer in kept for pointer in listed)
    assert (other in kept) == (other in set(listed))
    assert list(kept) == sorted(listed)
    assert len(kept) == len(listed)


small = st.integers(min_value=1, max_value=30)


@given(st.frozensets(small, max_size=4), small, st.integers(0, 3), small, small)
def test_a_span_is_delivered_when_all_of_it_is(
    taken: frozenset[int], begin: int, length: int, one: int, two: int
) -> None:
    first, last = min(one, two), max(one, two)
    ranges = Ranges([(begin, begin + length)])
    kept = PointersAndRanges(taken, ranges)
    inside = range(first, last + 1)
    assert kept.any_between(first, last) == any(each in kept for each in inside)
    lists = (Pointers(taken), kept, NO_POINTERS)
    for invalids, in_progress, lost in itertools.product(
        lists, lists[::2], (ranges, NO_RANGES)
    ):
        tx = Transaction(31, 25, invalids=invalids, in_progress=in_progress)
        judge = Visibility(tx, lambda each: each < 20, lost=lost)
        assert judge.delivers_between(first, last) == all(
            judge.verdict(each) == DELIVER for each in inside
        )
        assert not judge.delivers_between(-last, last)


@given(few_pointers)
def test_bytes_are_big_endian_and_read_back_equal(listed: list[int]) -> None:
    kept = Pointers(listed)
    assert kept.to_bytes() == b"".join(p.to_bytes(8, "big") for p in sorted(listed))
    assert Pointers.from_bytes(kept.to_bytes()) == kept
    assert hash(Pointers.from_bytes(kept.to_bytes())) == hash(kept)


@given(few_pointers, few_pointers)
def test_updates_answer_as_set_operations_do(one: list[int], two: list[int]) -> None:
    kept = Pointers(one)
    assert list(kept.added(two)) == sorted({*one, *two})
    assert list(kept.without(two)) == sorted({*one} - {*two})
    assert list(kept) == sorted(one)
    for pointer in two:
        assert list(kept.removed(pointer)) == sorted({*one} - {pointer})


@given(few_pointers, st.integers(min_value=0, max_value=5))
def test_appending_keeps_the_order(listed: list[int], more: int) -> None:
    kept = Pointers(pointer // 2 for pointer in listed)
    longer = kept.appended(2**62 + more)
    assert list(longer) == [*kept, 2**62 + more]


def test_an_update_that_changes_nothing_shares_the_object() -> None:
    kept = Pointers([1, 2, 3])
    assert kept.added([2]) is kept
    assert kept.without([9]) is kept
    assert kept.removed(9) is kept
    assert as_pointers(kept) is kept


def test_slices_and_single_places_read_as_in_a_list() -> None:
    kept = Pointers([30, 10, 20])
    assert (kept[0], kept[-1], list(kept[1:])) == (10, 30, [20, 30])
    assert bisect_left(kept, 15) == 1
    assert repr(kept) == "Pointers([10, 20, 30])"
    assert repr(Pointers(range(100))) == "Pointers(100 from 0 to 99)"
    assert not NO_POINTERS
    assert NO_POINTERS != []
