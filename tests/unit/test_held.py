"""Rows of open transactions: in memory until a batch carries them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from txaware.model.interfaces import Row
from txaware.store.batch_writer import UncommittedRows
from txaware.store.keys import MESSAGE, PAYLOAD, POSITION, row_key

PREFIX = MESSAGE + b"ns:t:\0\0\0\1"
ONE, TWO, THREE = (PREFIX + row_key(number) for number in (1, 2, 3))


@pytest.fixture
def held() -> UncommittedRows:
    return UncommittedRows()


def hold(
    held: UncommittedRows, pointer: int, *rows: Row, limit_bytes: int = 1_000
) -> bool:
    return held.hold(pointer, rows, limit_bytes)


def test_a_held_row_is_there_until_a_batch_carried_it(held: UncommittedRows) -> None:
    assert not held
    assert hold(held, 5, (ONE, b"a"), (TWO, b""))
    assert held
    assert (held.get(ONE), held.get(TWO), held.get(THREE)) == (b"a", b"", None)
    taken = held.take([5])
    assert taken == {5: [(ONE, b"a"), (TWO, b"")]}
    assert held.get(ONE) == b"a"
    held.carried(taken)
    assert not held
    assert held.get(ONE) is None
    assert held.take([5]) == {}


def test_a_batch_carries_rows_as_they_stand(held: UncommittedRows) -> None:
    hold(held, 5, (ONE, b"a"), (TWO, b"b"), (THREE, b"c"))
    assert held.replace(ONE, b"A")
    assert not held.replace(PREFIX + row_key(9), b"A")
    held.drop([TWO])
    assert held.get(TWO) is None
    assert held.take([5]) == {5: [(ONE, b"A"), (THREE, b"c")]}


def test_what_changes_while_a_batch_is_written_goes_with_the_next(
    held: UncommittedRows,
) -> None:
    hold(held, 5, (ONE, b"a"), (TWO, b"b"))
    taken = held.take([5])
    held.replace(ONE, b"A")
    held.carried(taken)
    assert held.get(ONE) == b"A"
    assert held.get(TWO) is None
    later = held.take([])
    assert later == {5: [(ONE, b"A")]}
    held.carried(later)
    assert not held


def test_a_batch_that_failed_carried_nothing(held: UncommittedRows) -> None:
    hold(held, 5, (ONE, b"a"))
    held.take([5])
    assert held.take([5]) == {5: [(ONE, b"a")]}
    assert held.get(ONE) == b"a"


def test_only_of_those_that_ended_rows_are_carried(held: UncommittedRows) -> None:
    hold(held, 5, (ONE, b"a"))
    hold(held, 6, (TWO, b"b"))
    hold(held, 7, (THREE, b"c"))
    assert held.take([]) == {}
    held.release([6, 99])
    assert held.take([]) == {6: [(TWO, b"b")]}
    assert held.take([5]) == {5: [(ONE, b"a")], 6: [(TWO, b"b")]}
    held.carried(held.take([5]))
    assert held.get(THREE) == b"c"


def test_rows_that_come_after_their_end_are_released_too(held: UncommittedRows) -> None:
    held.release([5])
    hold(held, 5, (ONE, b"a"))
    assert held.take([]) == {5: [(ONE, b"a")]}


def test_too_much_for_one_transaction_is_not_taken(held: UncommittedRows) -> None:
    size = len(ONE) + 10
    assert hold(held, 5, (ONE, b"x" * 10), limit_bytes=2 * size)
    assert not hold(held, 5, (TWO, b"x" * 11), limit_bytes=2 * size)
    assert held.get(TWO) is None
    assert hold(held, 5, (TWO, b"x" * 10), limit_bytes=2 * size)
    assert hold(held, 6, (THREE, b"x" * 10), limit_bytes=2 * size)
    assert not hold(held, 5, (THREE + b"", b""), limit_bytes=2 * size)


def test_what_is_not_taken_does_not_hide_what_is_written_instead(
    held: UncommittedRows,
) -> None:
    position = POSITION + b"g:ns:t:" + bytes(8)
    assert hold(held, 5, (position, b"old"), limit_bytes=30)
    assert not hold(held, 5, (position, b"x" * 40), limit_bytes=30)
    assert held.get(position) is None
    assert held.take([5]) in ({5: []}, {})


def test_what_was_released_and_not_carried_is_bounded(held: UncommittedRows) -> None:
    for pointer in range(1, 200):
        key = PREFIX + row_key(pointer)
        hold(held, pointer, (key, b"x" * 10), limit_bytes=100)
        held.release([pointer])
    kept = sum(len(rows) for rows in held.take([]).values())
    assert kept <= 5


def test_a_scan_finds_rows_of_its_range_only(held: UncommittedRows) -> None:
    other = PAYLOAD + PREFIX[1:] + bytes(8) + row_key(1)
    hold(held, 5, (ONE, b"1"), (TWO, b"2"), (THREE, b"3"), (other, b"p"))

    def scan(prefix: bytes, start: bytes, stop: bytes) -> list[bytes]:
        found = held.scan(prefix, prefix + start, prefix + stop)
        return sorted(value for _, value in found)

    assert scan(PREFIX, b"", b"\xff") == [b"1", b"2", b"3"]
    assert scan(PREFIX, row_key(2), row_key(3)) == [b"2"]
    assert scan(MESSAGE, b"", b"\xff") == [b"1", b"2", b"3"]
    assert scan(PAYLOAD, b"", b"\xff") == [b"p"]
    assert scan(b"", b"", b"\xff") == [b"1", b"2", b"3", b"p"]
    assert held.scan(PREFIX, ONE, TWO) == [(row_key(1), b"1")]


steps = st.lists(
    st.tuples(
        st.sampled_from(["hold", "replace", "drop", "take", "carried", "release"]),
        st.integers(1, 3),
        st.integers(0, 4),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(steps)
def test_no_row_is_lost_whatever_the_order(todo: list[tuple[str, int, int]]) -> None:
    """What is held and what was carried make up all that was written."""
    held = UncommittedRows()
    disk: dict[bytes, bytes] = {}
    model: dict[bytes, bytes] = {}
    owner: dict[bytes, int] = {}
    taken: dict[int, list[Row]] = {}
    for number, (what, pointer, at) in enumerate(todo):
        key, value = PREFIX + row_key(at, pointer), b"%d" % number
        if what == "hold":
            if key in model:
                continue
            assert hold(held, pointer, (key, value))
            model[key], owner[key] = value, pointer
        elif what == "replace":
            if held.replace(key, value):
                model[key] = value
        elif what == "drop":
            if held.get(key) is not None and key not in disk:
                if any(key == k for rows in taken.values() for k, _ in rows):
                    continue
                held.drop([key])
                del model[key]
        elif what == "take":
            if not taken:
                taken = held.take([pointer])
        elif what == "carried":
            for rows in taken.values():
                disk.update(rows)
            held.carried(taken)
            taken = {}
        else:
            held.release([pointer])
        found = {key: held.get(key) or disk.get(key) for key in model}
        assert found == model
    for rows in taken.values():
        disk.update(rows)
    held.carried(taken)
    last = held.take([1, 2, 3])
    for rows in last.values():
        disk.update(rows)
    held.carried(last)
    assert disk == model
    assert not held
