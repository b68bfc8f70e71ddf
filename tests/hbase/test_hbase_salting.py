"""Buckets of HBase: nobody looks for a row where it is not, and all come in order."""

from collections.abc import Iterator
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.doubles import Clock
from tests.support.hbase_stores import HBaseStores
from txaware.model.interfaces import OrderedTable
from txaware.model.settings import Settings
from txaware.model.topics import TopicName, data_prefix
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.salting import (
    BUCKETS,
    SLICE_BITS,
    Salt,
    bucket_of,
    buckets_of,
    salted_key,
)
from txaware.store.hbase.salting import slice_end as cut_of
from txaware.store.hbase.schema import PAYLOADS, kind_of
from txaware.store.hbase.table import HBaseTable
from txaware.store.keys import (
    FIRST_PAYLOAD,
    MESSAGE,
    PAYLOAD,
    after,
    payload_prefix,
    row_key,
)

SLICE_MS = 1 << SLICE_BITS
# Generation 58 ends with a colon, as the names before it do.
TOPICS = [
    data_prefix(TopicName(name), generation)
    for name, generation in (("t", 1), ("t-", 1), ("t", 58), ("u", 0x3A3A3A3A))
]
times = st.integers(0, 40).map(lambda at: at * SLICE_MS // 2) | st.integers(0, 1 << 47)
suffixes = st.builds(row_key, times, st.integers(0, 2))
topics = st.sampled_from(TOPICS)
messages = st.builds(lambda topic, end: MESSAGE + topic + end, topics, suffixes)
payloads = st.builds(
    lambda topic, pointer, end: payload_prefix(topic, pointer) + end,
    topics,
    st.integers(1, 3),
    suffixes,
)
cuts = st.integers(0, 40)


@given(payloads)
def test_payloads_of_the_first_format_are_where_they_were(key: bytes) -> None:
    first = FIRST_PAYLOAD + key[1:]
    assert bucket_of(key) == crc32(first[:-10]) % BUCKETS
    assert kind_of(first) == kind_of(key) == PAYLOADS


@settings(max_examples=300)
@given(
    messages | payloads,
    st.none() | st.integers(1, 40),
    messages | payloads,
    cuts,
    cuts,
)
def test_the_bucket_of_a_row_is_among_those_of_every_range_around_it(
    key: bytes, size: int | None, other: bytes, start_cut: int, stop_cut: int
) -> None:
    prefix = key[:size] if size else key[:-10]  # of a message, that is its topic
    bounds = [prefix, after(prefix)]
    near = key[:-10] + other[-10:]
    for bound in (key[:start_cut], other[:stop_cut], other, key, near, key + b"\0"):
        if bound.startswith(prefix):
            bounds.append(bound)
    for start in bounds:
        for stop in bounds:
            if start <= key < stop:
                assert bucket_of(key) in buckets_of(prefix, start, stop)


@given(st.lists(messages | payloads, max_size=20), st.lists(cuts, max_size=20))
def test_keys_salted_one_after_the_other_are_those_salted_each_alone(
    keys: list[bytes], some_cuts: list[int]
) -> None:
    keys = [*sorted(keys), *(key[:cut] or key for key in keys for cut in some_cuts[:3])]
    salt = Salt()
    for key in keys:
        assert salt.key(key) == salted_key(key)
        assert salt.key(key + b"\0") == salted_key(key + b"\0")


@given(topics, suffixes, suffixes, suffixes, st.booleans())
def test_what_is_read_first_is_in_one_bucket_and_before_all_else(
    topic: bytes, one: bytes, other: bytes, end: bytes, reverse: bool
) -> None:
    prefix, key = MESSAGE + topic, MESSAGE + topic + end
    start, stop = prefix + min(one, other), prefix + max(one, other)
    cut = cut_of(prefix, start, stop, reverse=reverse)
    if cut is None:
        return
    assert start < cut < stop
    first = (cut, stop) if reverse else (start, cut)
    assert len(buckets_of(prefix, *first)) == 1
    if first[0] <= key < first[1]:
        assert [bucket_of(key)] == buckets_of(prefix, *first)


def test_topics_and_times_are_spread_over_all_buckets() -> None:
    prefixes = [MESSAGE + data_prefix(TopicName(f"t{at}"), 1) for at in range(1000)]
    now = row_key(1_700_000_000_000)
    by_topic = [bucket_of(prefix + now) for prefix in prefixes]
    by_time = [bucket_of(prefixes[0] + row_key(at * SLICE_MS)) for at in range(BUCKETS)]
    for bucket in range(BUCKETS):
        assert 30 <= by_topic.count(bucket) <= 100
        assert by_time.count(bucket) == 1


def test_the_newest_of_a_topic_is_looked_for_in_one_or_two_buckets() -> None:
    prefix, now_ms = MESSAGE + TOPICS[0], 1_700_000_000_000
    for ago_ms in (0, 1, SLICE_MS):
        start, stop = prefix + row_key(now_ms - ago_ms), prefix + row_key(now_ms, 5)
        assert len(buckets_of(prefix, start, stop)) <= 2
    assert len(buckets_of(prefix, prefix, prefix + row_key(now_ms))) == BUCKETS
    whole = payload_prefix(TOPICS[0], 7)
    assert len(buckets_of(whole, whole, after(whole))) == 1
    assert len(buckets_of(PAYLOAD, PAYLOAD, after(PAYLOAD))) == BUCKETS


@pytest.fixture(scope="module")
def table(hbase_stores: HBaseStores) -> Iterator[OrderedTable]:
    """One table for all examples."""
    with hbase_stores.lent() as url:
        found = HBaseTable.open(HBaseAddress.parse(url), Settings(), clock_ms=Clock())
        yield found
        found.close()


@pytest.mark.hbase
@settings(max_examples=40, deadline=None)
@given(
    st.lists(messages | payloads, max_size=60),
    st.sampled_from([MESSAGE, PAYLOAD, *(MESSAGE + topic for topic in TOPICS)]),
    suffixes,
    st.none() | suffixes,
    st.integers(1, 70),
    st.integers(1, 200),
    st.booleans(),
)
def test_rows_of_all_buckets_come_in_the_order_of_their_keys(
    table: OrderedTable,
    keys: list[bytes],
    prefix: bytes,
    start: bytes,
    stop: bytes | None,
    limit: int,
    max_bytes: int,
    reverse: bool,
) -> None:
    """Scenario 71."""
    old = [key for tag in (MESSAGE, PAYLOAD) for key, _ in _whole(table, tag)]
    written = {key: bytes(1) + key[-4:] for key in keys}
    table.submit([*((key, None) for key in old), *written.items()])()
    expected = sorted(
        (key[len(prefix) :], value)
        for key, value in written.items()
        if key.startswith(prefix)
    )
    assert table.scan(prefix) == expected
    some = [
        row for row in expected if start <= row[0] and (stop is None or row[0] < stop)
    ]
    if reverse:
        some.reverse()
    some = some[: min(limit, -(-max_bytes // 5))]
    found = table.scan(
        prefix,
        start=start,
        stop=stop,
        limit=limit,
        max_bytes=max_bytes,
        reverse=reverse,
    )
    assert found == some


def _whole(table: OrderedTable, tag: bytes) -> list[tuple[bytes, bytes]]:
    return [(tag + key, value) for key, value in table.scan(tag)]
