"""The cache of recent rows: bounded, never wrong, and left out where it is not sure."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.messagings import Site, payloads, publish, seen_by
from txaware.model.interfaces import Row
from txaware.model.labels import ItemForm
from txaware.model.messages import MessageId
from txaware.protocol.formats import AVRO, PollRequest
from txaware.protocol.formats.avro_format import ITEMS
from txaware.server.routes.polls import EncodedItems
from txaware.service.read import scan_cache
from txaware.service.read.scan import CachedRows, Query
from txaware.service.read.scan_cache import (
    JOINED_BYTES,
    ROW_BYTES,
    CachedSpan,
    ScanCache,
    weight_bytes,
)
from txaware.store.columns import value_head
from txaware.store.keys import row_key
from txaware.store.memory import MemoryTable
from txaware.store.message_table import Block, Encoded, MessageTable, decode_block

pytestmark = pytest.mark.in_process

WEIGHT = 1_000  # of a block of one row
TOP = row_key(2**62)


def block(first: int, *, rows: int = 1, pointer: int | None = None) -> Block:
    """Rows that weigh 1,000 together, keyed by their number."""
    size = WEIGHT // rows - ROW_BYTES - 1
    written: list[Row] = [
        (row_key(first + at), value_head(pointer) + b"%d" % (first + at) + b"x" * size)
        for at in range(rows)
    ]
    found = decode_block(written)
    return Block(found.keys, found.payloads, found.pointers, found.more, size + 1)


def filled(cache: ScanCache, *numbers: int, prefix: bytes = b"p") -> None:
    for number in numbers:
        cache.add(prefix, row_key(number), block(number), cache.version(prefix))


def numbers(cache: ScanCache, start: int, *, prefix: bytes = b"p") -> list[int] | None:
    """What the cache has from there on, as far as it goes."""
    found: list[int] = []
    key = row_key(start)
    while (part := cache.read(prefix, key, TOP, 100)) is not None and len(part):
        found += [int.from_bytes(key[:8], "big") for key in part.keys]
        key = part.keys[-1] + b"\0"
    return found or None


@pytest.fixture(autouse=True)
def one_row_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_cache, "BLOCK_ROWS", 1)


def adding(cache: ScanCache, number: int) -> None:
    """Rows follow each other: what is behind the last one continues it."""
    start = cache._spans[b"p"].end if b"p" in cache._spans else row_key(number)
    cache.add(b"p", start, block(number), cache.version(b"p"))


def test_the_oldest_go_when_it_grows_too_large() -> None:
    """Scenario 64: 5, 7 and 10 blocks."""
    cache = ScanCache(10 * WEIGHT)
    sizes = []
    for number in range(1, 30):
        adding(cache, number)
        sizes.append(cache.size_bytes // WEIGHT)
        assert numbers(cache, number) == [number]
    assert sizes[:8] == [1, 2, 3, 4, 5, 6, 7, 5]
    assert max(sizes) == 7
    assert min(sizes[7:]) == 5
    assert numbers(cache, 1) is None
    assert cache.size_bytes == sum(
        weight_bytes(block) for span in cache._spans.values() for block in span.blocks
    )


def test_a_block_larger_than_the_limit_is_not_kept() -> None:
    cache = ScanCache(WEIGHT - 1)
    filled(cache, 1)
    assert cache.size_bytes == 0
    empty = ScanCache(0)
    filled(empty, 1)
    assert numbers(empty, 1) is None


def test_the_topic_that_was_read_last_is_kept_longest() -> None:
    cache = ScanCache(10 * WEIGHT)
    for prefix in (b"a", b"b", b"c", b"d", b"e", b"f", b"g"):
        filled(cache, 1, prefix=prefix)
    assert numbers(cache, 1, prefix=b"a") == [1]
    filled(cache, 1, prefix=b"h")
    assert numbers(cache, 1, prefix=b"a") == [1]
    assert numbers(cache, 1, prefix=b"b") is None


def test_rows_that_do_not_rise_drop_all_of_their_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Scenario 65."""
    cache = ScanCache(10 * WEIGHT)
    filled(cache, 1)
    filled(cache, 1, prefix=b"other")
    wrong = decode_block([(row_key(3), b"\0"), (row_key(3), b"\0")])
    cache.add(b"p", row_key(2), wrong, cache.version(b"p"))
    assert "do not rise" in caplog.text
    assert numbers(cache, 1) is None
    assert numbers(cache, 1, prefix=b"other") == [1]


def test_rows_are_kept_where_they_continue_what_is_there() -> None:
    cache = ScanCache(100 * WEIGHT)
    for number in (5, 6, 7):
        adding(cache, number)
    filled(cache, 2)  # before it: the others are worth more
    assert numbers(cache, 5) == [5, 6, 7]
    assert numbers(cache, 2) is None
    filled(cache, 9)  # behind a gap: takes their place
    assert numbers(cache, 9) == [9]
    assert numbers(cache, 5) is None
    assert cache.size_bytes == WEIGHT


def test_a_gap_between_rows_that_was_read_is_no_gap() -> None:
    cache = ScanCache(100 * WEIGHT)
    cache.add(b"p", row_key(1), block(4), 0)
    adding(cache, 9)
    assert numbers(cache, 1) == [4, 9]
    assert numbers(cache, 5) == [9]
    assert cache.read(b"p", row_key(5), row_key(8), 10) is not None
    assert not cache.read(b"p", row_key(5), row_key(8), 10)
    assert cache.read(b"p", row_key(9) + b"\0", TOP, 10) is None
    assert (cache.hits > 0, cache.misses > 0) == (True, True)


def test_what_was_read_before_a_change_is_not_kept_after_it() -> None:
    cache = ScanCache(100 * WEIGHT)
    changes: list[Callable[[], None]] = [
        lambda: cache.negate(b"p", [row_key(1)]),
        lambda: cache.drop(b"p"),
    ]
    for change in changes:
        version = cache.version(b"p")
        change()
        cache.add(b"p", row_key(1), block(1), version)
        assert numbers(cache, 1) is None


def test_a_rolled_back_row_is_negative_in_the_cache_too() -> None:
    cache = ScanCache(100 * WEIGHT)
    for number in range(1, 4):
        start = row_key(1) if number == 1 else cache._spans[b"p"].end
        cache.add(b"p", start, block(number, pointer=7), 0)
    cache.negate(b"p", [row_key(2), row_key(3)])
    pointers = [
        found.pointers
        for number in (1, 2, 3)
        if (found := cache.read(b"p", row_key(number), TOP, 1)) is not None
    ]
    assert pointers == [[7], [-7], [-7]]
    cache.clear()
    assert cache.size_bytes == 0
    assert numbers(cache, 1) is None


def of_size(number: int, size_bytes: int) -> Block:
    """One row."""
    return decode_block([(row_key(number), value_head(None) + bytes(size_bytes))])


@pytest.mark.parametrize(
    ("size_bytes", "most"),
    [(100, 512), (JOINED_BYTES // 4 - 9, 4), (JOINED_BYTES // 2, 1), (2 << 20, 1)],
)
def test_small_rows_share_a_block_and_large_ones_do_not(
    size_bytes: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_cache, "BLOCK_ROWS", 512)
    span = CachedSpan(row_key(1))
    for number in range(1, most * 2 + 2):
        span.append(of_size(number, size_bytes))
    assert [len(block) for block in span.blocks] == [most, most, 1]


def test_large_rows_are_encoded_once_however_many_follow(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_cache, "BLOCK_ROWS", 512)
    made, make = [0], Encoded._make

    def counted(encoded: Encoded, form: ItemForm) -> Any:
        data, ends = make(encoded, form)
        made[0] += len(data)
        return data, ends

    monkeypatch.setattr(Encoded, "_make", counted)
    size_bytes, count = 150_000, 20
    service: Any = small(site, cache_bytes=1 << 24)._parts.service
    starts: list[Any] = [None, None]
    for _ in range(count):
        service.publish("t", [bytes(size_bytes)])
        for reader, start in enumerate(starts):
            found = EncodedItems(AVRO.page_writer(PollRequest()), ITEMS)
            scan = service.begin_poll(service.place("t"), start=start, inclusive=False)
            scan.read(found)
            assert [items for items, _ in found.blocks] == [1]
            starts[reader] = scan.next
    assert count * size_bytes <= made[0] < 2 * count * size_bytes


def small(site: Site, **options: Any) -> Any:
    """Few rows at a time, so that pages cross from the table into the cache."""
    options = {"cache_bytes": 10_000} | options
    messaging = site.open(**options)
    messaging.create_topic("t")
    return messaging


def test_a_page_goes_on_from_the_table_into_the_cache(site: Site) -> None:
    """Scenario 66."""
    messaging = small(site)
    messaging.publish("t", [b"%d" % number for number in range(200)])
    ids = [message.id for message in messaging.poll("t", limit=1_000)]
    messaging.poll("t", start=ids[150])
    expected = [b"%d" % number for number in range(200)]
    for first in (0, 1, 100, 149, 150, 151, 199):
        page = messaging.poll("t", start=ids[first], limit=1_000)
        assert payloads(page) == expected[first:]


@pytest.mark.foreign_pointers
def test_a_row_that_is_rolled_back_is_skipped_from_the_cache(site: Site) -> None:
    """Scenario 67."""
    messaging = small(site)
    messaging.publish("t", [b"a"])
    response = publish(messaging, b"b", b"c", transaction=5)
    messaging.publish("t", [b"d"])
    tx = seen_by(9, read=9)
    for _ in range(2):
        found = payloads(messaging.poll("t", transaction=tx))
        assert found == [b"a", b"b", b"c", b"d"]
    messaging.rollback("t", response)
    cache: Any = messaging._parts.service.cache
    hits = cache.hits
    assert payloads(messaging.poll("t", transaction=tx)) == [b"a", b"d"]
    assert cache.hits > hits


@pytest.mark.foreign_pointers
def test_a_rollback_while_rows_are_being_read_is_not_lost(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = small(site)
    response = publish(messaging, b"a", b"b", transaction=5)
    read = MessageTable.read

    def read_and_roll_back(table: MessageTable, *args: Any, **options: Any) -> Block:
        found = read(table, *args, **options)
        monkeypatch.setattr(MessageTable, "read", read)
        messaging.rollback("t", response)
        return found

    monkeypatch.setattr(MessageTable, "read", read_and_roll_back)
    assert payloads(messaging.poll("t")) == [b"a", b"b"]
    assert payloads(messaging.poll("t", transaction=seen_by(9, read=9))) == []


@pytest.mark.foreign_pointers
def test_a_judged_poll_uses_only_rows_younger_than_half_the_grace(site: Site) -> None:
    """Scenario 68: others may have forgotten by then that a pointer was invalid."""
    messaging = small(site, prune_grace_s=6)
    for number in range(10):
        publish(messaging, b"%d" % number, transaction=5)
        site.clock.advance_s(1)
    expected = [b"%d" % number for number in range(10)]
    messaging.poll("t")
    cache: Any = messaging._parts.service.cache
    tx = seen_by(9, read=9)
    with patch.object(cache, "read", wraps=cache.read) as read:
        assert payloads(messaging.poll("t", transaction=tx)) == expected
        bound = row_key(site.clock() - 3_000)
        assert read.call_args_list[0].args[1] == bound
        assert all(call.args[1] >= bound for call in read.call_args_list)
        read.reset_mock()
        assert payloads(messaging.poll("t")) == expected
        assert read.call_args_list[0].args[1] < bound


def test_a_deleted_topic_leaves_nothing_in_the_cache(site: Site) -> None:
    messaging = small(site)
    messaging.publish("t", [b"a"])
    messaging.poll("t")
    cache: Any = messaging._parts.service.cache
    assert cache.size_bytes > 0
    messaging.delete_topic("t")
    assert cache.size_bytes == 0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, 60), st.integers(1, 9)),
        st.tuples(st.just("write"), st.integers(1, 9), st.none() | st.integers(1, 3)),
        st.tuples(st.just("negate"), st.integers(0, 60), st.integers(1, 3)),
        st.tuples(st.just("drop"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=80, deadline=None)
@given(steps, st.integers(1_000, 8_000), st.integers(1, 5))
def test_what_the_cache_answers_is_what_the_table_holds(
    todo: list[tuple[str, int, Any]], limit_bytes: int, block_rows: int
) -> None:
    cache = ScanCache(limit_bytes)
    rows: dict[bytes, tuple[int | None, bytes]] = {}
    number = 0
    with patch.object(scan_cache, "BLOCK_ROWS", block_rows):
        for what, first, second in todo:
            if what == "write":
                for _ in range(first):
                    number += 1
                    rows[row_key(number)] = (second, b"%d" % number)
            elif what == "negate":
                keys = [key for key in rows if key >= row_key(first)][:second]
                for key in keys:
                    pointer, payload = rows[key]
                    rows[key] = (pointer and -abs(pointer), payload)
                cache.negate(b"p", keys)
            elif what == "drop":
                cache.drop(b"p")
            else:
                start, stop = row_key(first), row_key(number + 1)
                wanted = [key for key in sorted(rows) if key >= start][:second]
                found = cache.read(b"p", start, stop, second)
                if found is None:
                    written: list[Row] = [
                        (key, value_head(rows[key][0]) + rows[key][1]) for key in wanted
                    ]
                    version = cache.version(b"p")
                    cache.add(b"p", start, decode_block(written), version)
                    continue
                assert list(found.keys) == wanted[: len(found)]
                assert len(found) or not wanted
                for at, key in enumerate(found.keys):
                    pointer = found.pointers[at] if found.pointers else None
                    assert (pointer, found.payloads[at]) == rows[key]
            assert 0 <= cache.size_bytes <= limit_bytes


def test_rows_are_kept_where_they_were_read_and_are_to_be_trusted() -> None:
    cache, table = ScanCache(10_000), MessageTable(MemoryTable())
    cache.add(b"p", row_key(1), block(1, rows=3), cache.version(b"p"))
    rows, least = CachedRows(table, cache), MessageId(bytes(20))
    query = Query(b"p", least, least, True, TOP, 10, 10_000, 0)
    found = rows.kept(query, row_key(2), 10)
    assert found is not None
    assert [*found.keys] == [row_key(2), row_key(3)]
    assert rows.kept(query, row_key(9), 10) is None
    later = attrs.evolve(query, cached_from=row_key(3))
    assert rows.kept(later, row_key(2), 10) is None
