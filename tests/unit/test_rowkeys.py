"""The keys of all rows, which never mix tables, topics or transactions."""

from hypothesis import given, settings
from hypothesis import strategies as st

from txaware.model.topics import TopicName, data_prefix
from txaware.store import keys as rowkeys
from txaware.store.keys import (
    after,
    mark_key,
    payload_prefix,
    pointer_key,
    row_key,
    row_prefix,
    topic_key,
)
from txaware.store.kinds import POSITIONS

topics = st.builds(
    TopicName,
    st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9_]{1,4}", fullmatch=True),
)
generations = st.integers(1, 2**31 - 1)
pointers = st.integers(1, 2**63 - 1)
groups = st.from_regex(r"[A-Za-z0-9_.-]{1,4}", fullmatch=True)


def test_the_golden_bytes_of_every_key() -> None:
    topic, one = TopicName("t", "ns"), b"ns:t:\0\0\0\1"
    assert topic_key(topic) == b"tns:t:"
    assert row_key(1, 2) == b"\0\0\0\0\0\0\0\1\0\2"
    assert data_prefix(topic, 1) == one
    assert payload_prefix(one, 3) == b"z" + one + b"\0\0\0\0\0\0\0\3"
    assert mark_key(one, 3) == b"k" + one + b"\0\0\0\0\0\0\0\3"
    assert POSITIONS.prefix_of(("g", topic)) == b"og:ns:t:"
    assert pointer_key(3) == b"\0\0\0\0\0\0\0\3"


def test_every_table_has_a_byte_of_its_own() -> None:
    names = "TOPIC MESSAGE PAYLOAD POSITION MARK PRODUCER JOURNAL STATE"
    tags = [getattr(rowkeys, name) for name in names.split()]
    assert len(set(tags)) == len(tags)
    assert all(len(tag) == 1 for tag in tags)


@settings(deadline=None)
@given(topics, topics, generations, generations)
def test_no_prefix_of_a_topic_begins_with_that_of_another(
    one: TopicName, other: TopicName, first: int, second: int
) -> None:
    if (one, first) == (other, second):
        return
    assert not data_prefix(one, first).startswith(data_prefix(other, second))
    if one != other:
        assert not one.key.startswith(other.key)


@settings(deadline=None)
@given(topics, generations, pointers, st.integers(0, 2**63 - 1), st.integers(0, 65_535))
def test_the_prefix_of_a_row_is_what_it_is_read_by(
    topic: TopicName, generation: int, pointer: int, time_ms: int, sequence: int
) -> None:
    prefix, end = data_prefix(topic, generation), row_key(time_ms, sequence)
    message = rowkeys.MESSAGE + prefix
    assert row_prefix(message + end) == message
    payload = payload_prefix(prefix, pointer)
    assert row_prefix(payload + end) == payload
    position = POSITIONS.prefix_of(("g", topic))
    assert row_prefix(position + pointer_key(pointer)) == position
    assert row_prefix(mark_key(prefix, pointer)) == rowkeys.MARK + prefix


@settings(deadline=None)
@given(groups, groups, topics, topics)
def test_no_position_is_taken_for_another(
    one: str, other: str, first: TopicName, second: TopicName
) -> None:
    if (one, first) != (other, second):
        prefix_of = POSITIONS.prefix_of
        mine, yours = prefix_of((one, first)), prefix_of((other, second))
        assert not mine.startswith(yours)


@settings(deadline=None)
@given(st.binary(max_size=5), st.binary(max_size=5))
def test_after_is_above_all_that_begin_with_a_prefix(prefix: bytes, end: bytes) -> None:
    prefix = b"m" + prefix
    assert prefix + end < after(prefix)
    assert not after(prefix).startswith(prefix)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 65_535))))
def test_row_keys_are_ordered_as_their_numbers(pairs: list[tuple[int, int]]) -> None:
    assert sorted(row_key(*pair) for pair in pairs) == [
        row_key(*pair) for pair in sorted(pairs)
    ]
