"""A look at a topic, and one at all its partitions: what a piece of it takes."""

from typing import Any, cast

import attrs

from txaware.model.compression import Packed, compression_of
from txaware.model.messages import MessageId
from txaware.model.packed_batches import pack
from txaware.model.requests import checked_payloads
from txaware.service.read.partition_scan import PartitionScan
from txaware.service.read.scan import CachedRows, Messages, Query, Scan
from txaware.service.read.scan_cache import ScanCache
from txaware.service.visibility import NoJudge
from txaware.store.columns import value_head
from txaware.store.keys import MESSAGE, row_key
from txaware.store.memory import MemoryTable
from txaware.store.message_table import Block, MessageTable
from txaware.store.packed_rows import packed_rows

NOBODY = cast(Any, None)
LEAST = MessageId(bytes(20))
EACH, IN_BATCH = 100, 3


class TakenRows(Messages):
    """Takes whole batches, and notes how many messages came at once."""

    compressions = frozenset({"gzip"})

    def __init__(self) -> None:
        self.at_once: list[int] = []

    def add_rows(self, block: Block, first: int, last: int) -> None:
        self.at_once.append(last - first)
        super().add_rows(block, first, last)


def batch_of(count: int) -> Packed:
    """A batch of so many messages."""
    messages = checked_payloads([bytes(EACH)] * count, limit_bytes=EACH)
    found = pack(messages, compression_of("gzip"))
    assert found is not None
    return found


BATCH = batch_of(IN_BATCH)


def look_at_two_batches(**limits: Any) -> tuple[int, list[int], int]:
    """Reads two batches, each of a millisecond of its own, up to some limits.

    Returns how many messages there were, how many came in whole rows, and their bytes.
    """
    table = MemoryTable()
    table.has_batches = True
    for time_ms in (1, 2):
        keys = [row_key(time_ms, number) for number in range(1, 1 + IN_BATCH)]
        table.submit(packed_rows(MESSAGE + b"p", BATCH, keys))()
    query = Query(b"p", LEAST, LEAST, True, row_key(99), 1000, 1 << 20, 0)
    rows = CachedRows(MessageTable(table), ScanCache(1 << 20))
    scan = Scan(
        *(rows, NOBODY, NOBODY, attrs.evolve(query, **limits), NoJudge()),
        seen=0,
        foreign_pointers=NOBODY,
    )
    found = TakenRows()
    scan.read(found)
    return len(found), found.at_once, scan.size_bytes


def test_a_batch_comes_as_a_whole_where_the_page_has_room_for_it() -> None:
    room = 2 * BATCH.size_bytes
    assert look_at_two_batches(limit_bytes=room) == (6, [3, 3], room)
    count, at_once, size_bytes = look_at_two_batches(limit_bytes=room - EACH)
    assert (count, at_once) == (5, [3])
    assert size_bytes < room
    count, at_once, _ = look_at_two_batches(limit=5)
    assert (count, at_once) == (5, [3])


def test_a_batch_whose_messages_have_not_expired_comes_as_a_whole() -> None:
    count, at_once, _ = look_at_two_batches(keyless_from=row_key(2, 1))
    assert (count, at_once) == (3, [3])


def read_in_pieces(
    *, limit: int | None = None, limit_bytes: int | None = None
) -> list[int]:
    """How many messages a page of 350 bytes has after each piece, until it is over."""
    table = MemoryTable()
    for number in range(1, 5):
        table.submit(
            [(MESSAGE + b"p" + row_key(number), value_head(None) + bytes(EACH))]
        )()
    query = Query(b"p", LEAST, LEAST, True, row_key(99), 1000, 350, 0)
    rows = CachedRows(MessageTable(table), ScanCache(1 << 20))
    scan = Scan(
        *(rows, NOBODY, NOBODY, query, NoJudge()), seen=0, foreign_pointers=NOBODY
    )
    found, counts = Messages(), list[int]()
    while not scan.is_over:
        scan.read(found, limit=limit, limit_bytes=limit_bytes)
        counts.append(scan.count)
    return counts


def test_a_piece_has_one_message_at_least_and_the_page_goes_on_behind_it() -> None:
    assert read_in_pieces(limit=1) == [1, 2, 3, 3]
    assert read_in_pieces(limit_bytes=1) == [1, 2, 3, 3]
    assert read_in_pieces(limit_bytes=2 * EACH) == [2, 3, 3]


class OneMessage:
    """The look at a partition that has a single message."""

    count = size_bytes = 0
    next = LEAST
    blocked_by = skipped_before = None
    is_over = False

    def read(self, *_: object, **__: object) -> None:
        self.count, self.size_bytes, self.is_over = 1, EACH, True


def test_a_page_of_partitions_is_over_once_it_is_full_in_one_way() -> None:
    def counted(**limits: int) -> int:
        before = dict.fromkeys(range(4), LEAST)
        begin: Any = lambda *_, **__: OneMessage()  # noqa: E731
        scan = PartitionScan(NOBODY, before, begin, seen=0, **limits)
        scan.read(Messages())
        return scan.count

    assert counted(limit=1000, limit_bytes=2 * EACH) == 2
    assert counted(limit=3, limit_bytes=1 << 20) == 3
    assert counted(limit=1000, limit_bytes=1 << 20) == 4


def test_each_partition_has_the_room_that_those_before_it_left() -> None:
    rooms = list[tuple[int, int]]()

    def begin(number: int, *, messages: int, size_bytes: int) -> Any:
        rooms.append((messages, size_bytes))
        return OneMessage()

    before = dict.fromkeys(range(4), LEAST)
    scan = PartitionScan(NOBODY, before, begin, seen=0, limit=9, limit_bytes=3 * EACH)
    scan.read(Messages())
    assert rooms == [(9, 3 * EACH), (8, 2 * EACH), (7, EACH)]
