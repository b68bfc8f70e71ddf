"""Where to cut a topic: parts that cover it, about equal, for little reading."""

import random
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.transaction import Transaction
from tests.support.messagings import KINDS, Site, lent_site, table_of
from txaware.errors import BadRequest, TopicNotFound
from txaware.messaging import Messaging
from txaware.model.messages import MessageId, Receipt
from txaware.model.requests import MOST_CUTS
from txaware.service.read import split_planner as referring
from txaware.service.read import split_planner as splits

LEAST, MOST = MessageId(bytes(20)), MessageId(b"\xff" * 20)
MIB = 1 << 20
AT_ONCE = 1000


def everything(messaging: Messaging, topic: str = "t") -> list[tuple[MessageId, int]]:
    """All ids, and what each message counts: its keys and its payload."""
    found, at, inclusive = [], LEAST, True
    while page := messaging.poll(topic, start=at, inclusive=inclusive, limit=10_000):
        found += [(message.id, 12 + len(message.payload)) for message in page]
        at, inclusive = page.next, False
    return found


def total(messages: Iterable[tuple[MessageId, int]]) -> int:
    return sum(size for _, size in messages)


def cut(
    messaging: Messaging,
    part_bytes: int,
    *,
    start: MessageId = LEAST,
    stop: MessageId = MOST,
) -> list[MessageId]:
    """The cuts, which rise and lie strictly between both ends."""
    ids = messaging.splits("t", start=start, stop=stop, part_bytes=part_bytes)
    assert all(type(one) is MessageId and len(one) == 20 for one in ids)
    assert all(one < other for one, other in pairwise([start, *ids, stop]))
    return ids


def parts(
    messages: Sequence[tuple[MessageId, int]], ids: Sequence[MessageId]
) -> list[int]:
    """How many bytes each part has."""
    sizes = [0] * (len(ids) + 1)
    for message_id, size in messages:
        sizes[bisect_right(ids, message_id)] += size
    return sizes


def assert_balanced(
    messaging: Messaging, count: int, *, most: float = 2, least: float = 0.5
) -> list[MessageId]:
    """A part of that fraction gives so many parts, all about as large as asked for."""
    messages = everything(messaging)
    part_bytes = total(messages) // count
    ids = cut(messaging, part_bytes)
    sizes = parts(messages, ids)
    assert count * 0.8 <= len(sizes) <= count * 1.25 + 1
    assert max(sizes) <= most * part_bytes
    assert sum(size < least * part_bytes for size in sizes) <= 1 + count // 50
    return ids


def published(messaging: Messaging, sizes: Iterable[int], seed: int = 1) -> None:
    made = random_messages(sizes, seed)
    for at in range(0, len(made), AT_ONCE):
        messaging.publish("t", made[at : at + AT_ONCE])


def random_messages(sizes: Iterable[int], seed: int = 1) -> list[bytes]:
    return list(map(random.Random(seed).randbytes, sizes))


def stored(
    messaging: Messaging, tx: Transaction, sizes: Iterable[int], attempt: bytes = b"a"
) -> list[Receipt]:
    made = random_messages(sizes)
    return [
        messaging.store("t", made[at : at + AT_ONCE], transaction=tx, attempt=attempt)
        for at in range(0, len(made), AT_ONCE)
    ]


def referred(messaging: Messaging, sizes: Iterable[int]) -> None:
    """Stores messages and publishes them by one reference."""
    with messaging.transaction() as tx:
        receipts = stored(messaging, tx.transaction, sizes)
        messaging.publish("t", [], transaction=tx.transaction, receipts=receipts)


def inside(ids: Iterable[MessageId]) -> list[MessageId]:
    return [one for one in ids if any(one.payload_key)]


def test_a_small_topic_gives_about_as_many_parts_as_asked_for(
    messaging: Messaging,
) -> None:
    published(messaging, [100] * 1000)
    for count in (2, 10, 100):
        ids = assert_balanced(messaging, count, most=1.3)
        assert inside(ids) == []
    assert len(cut(messaging, 1)) == 999


def test_what_fits_one_part_is_not_cut(messaging: Messaging) -> None:
    assert cut(messaging, 1) == []
    published(messaging, [100] * 10)
    assert cut(messaging, 10 * (100 + 12)) == []
    assert cut(messaging, 2**63 - 1) == []
    assert len(cut(messaging, 5 * (100 + 12))) == 1


def test_between_ends_that_meet_there_is_nothing_to_cut(messaging: Messaging) -> None:
    published(messaging, [100] * 10)
    (first, *_, last) = [message_id for message_id, _ in everything(messaging)]
    assert len(cut(messaging, 1, start=first, stop=last)) == 8
    for start, stop in ((first, first), (last, first), (MOST, LEAST)):
        ids = messaging.splits("t", start=start, stop=stop, part_bytes=1)
        assert ids == []


def test_large_messages_among_small_ones_get_parts_of_their_own(
    messaging: Messaging,
) -> None:
    sizes = [50] * 500 + [20_000] * 5 + [50] * 500 + [20_000, 50] * 5
    published(messaging, sizes)
    assert_balanced(messaging, 8)


def test_a_message_larger_than_a_part_is_alone_in_one(messaging: Messaging) -> None:
    published(messaging, [10, 100_000, 10, 10])
    large = next(one for one, size in everything(messaging) if size > 100_000)
    ids = cut(messaging, 10_000)
    assert ids[0] == large
    assert len(ids) == 2


def test_one_reference_is_cut_inside(messaging: Messaging) -> None:
    referred(messaging, [100] * 2000)
    ids = assert_balanced(messaging, 10)
    assert len(inside(ids)) == len(ids) >= 8
    assert len({one.row_key for one in ids}) == 1


def test_references_among_messages_are_cut_where_the_bytes_are(
    messaging: Messaging,
) -> None:
    published(messaging, [100] * 300)
    referred(messaging, [300] * 1000)
    published(messaging, [100] * 300)
    referred(messaging, [30] * 100)
    referred(messaging, [1000] * 200)
    published(messaging, [100] * 300)
    ids = assert_balanced(messaging, 20)
    assert len({one.row_key for one in inside(ids)}) >= 2


def test_what_a_reference_does_not_name_does_not_count(messaging: Messaging) -> None:
    with messaging.transaction() as tx:
        own = tx.transaction
        named = stored(messaging, own, [100] * 500, b"1")
        stored(messaging, own, [100] * 3000, b"lost")
        named += stored(messaging, own, [100] * 500, b"2")
        messaging.publish("t", [], transaction=own, receipts=named)
    assert len(everything(messaging)) == 1000
    assert_balanced(messaging, 10, most=1.5)


def test_each_reference_of_a_transaction_counts_what_it_names(
    messaging: Messaging,
) -> None:
    with messaging.transaction() as tx:
        for name, count in ((b"1", 100), (b"2", 900)):
            receipts = stored(messaging, tx.transaction, [100] * count, name)
            messaging.publish("t", [], transaction=tx.transaction, receipts=receipts)
    assert_balanced(messaging, 10, most=1.5)


def test_ends_inside_an_expansion_are_kept_to(messaging: Messaging) -> None:
    referred(messaging, [100] * 1000)
    messages = everything(messaging)
    start, stop = messages[200][0], messages[600][0]
    ids = cut(messaging, total(messages[200:600]) // 4, start=start, stop=stop)
    assert 3 <= len(ids) <= 4
    sizes = parts(messages[200:600], ids)
    assert max(sizes) < 1.5 * min(sizes)
    assert all(one.row_key == start.row_key for one in ids)


def test_only_what_is_between_both_ends_counts(messaging: Messaging) -> None:
    referred(messaging, [1000] * 300)
    published(messaging, [100] * 100)
    referred(messaging, [1000] * 300)
    messages = everything(messaging)
    start, stop = messages[300][0], messages[400][0]
    assert cut(messaging, 112 * 100, start=start, stop=stop) == []
    assert len(cut(messaging, 112 * 10, start=start, stop=stop)) == 9


def test_beyond_ten_thousand_cuts_parts_are_larger(messaging: Messaging) -> None:
    published(messaging, [1] * (3 * MOST_CUTS))
    ids = cut(messaging, 1)
    assert 0.8 * MOST_CUTS <= len(ids) <= MOST_CUTS
    assert max(parts(everything(messaging), ids)) <= 6 * 13


def test_many_references_are_weighed_together(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "MOST_REFERENCES", 5)
    for _ in range(10):
        referred(messaging, [1000] * 100)
    referred(messaging, [1000] * 1000)
    assert_balanced(messaging, 10)


def test_one_pass_over_messages_and_references_that_are_large(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    published(messaging, [500] * 20_000)
    site.clock.advance_s(1)
    referred(messaging, [1000] * 15_000)
    published(messaging, [500] * 10_000)
    ids = assert_balanced(messaging, 20)
    assert inside(ids)
    assert_balanced(site.open() if site.kind == "leveldb" else messaging, 20)


Fill = tuple[Callable[[Messaging, list[int]], None], int]
FILLS: dict[str, list[Fill]] = {
    "messages": [(published, 45_000)],
    "a reference": [(referred, 45_000)],
    "references": [(referred, 9_000)] * 5,
    "both": [(published, 15_000), (referred, 15_000), (published, 15_000)],
}


@pytest.mark.parametrize("kind", FILLS)
def test_a_large_topic_is_cut_without_reading_it(durable: Site, kind: str) -> None:
    durable.messaging.create_topic("t")
    for fill, count in FILLS[kind]:
        fill(durable.messaging, [1000] * count)
        durable.clock.advance_s(1)
    messaging = durable.open()  # which leaves nothing in the write buffer
    began_s = time.perf_counter()
    messages = everything(messaging)
    scan_s = time.perf_counter() - began_s
    assert total(messages) > 40 * MIB
    table: Any = table_of(messaging)
    read: list[int] = []
    scan = table.scan

    def counted(*args: Any, **options: Any) -> Any:
        rows = scan(*args, **options)
        read.append(sum(len(value) for _, value in rows))
        return rows

    table.scan = counted
    assert_balanced_parts(messaging, messages, 30)
    assert sum(read) < total(messages) / 4
    took_s = []
    for _ in range(3):
        began_s = time.perf_counter()
        cut(messaging, total(messages) // 30)
        took_s.append(time.perf_counter() - began_s)
    assert min(took_s) < scan_s / 2


def assert_balanced_parts(
    messaging: Messaging, messages: list[tuple[MessageId, int]], count: int
) -> None:
    """The same for what was read already; a little less strict with small parts."""
    part_bytes = total(messages) // count
    sizes = parts(messages, cut(messaging, part_bytes))
    assert max(sizes) <= 2 * part_bytes
    assert min(sizes) >= part_bytes / 3
    assert count * 0.8 <= len(sizes) <= count * 1.25 + 1


def test_rows_that_compress_well_count_as_what_they_are(durable: Site) -> None:
    messaging = durable.messaging
    messaging.create_topic("t")
    for _ in range(20):
        messaging.publish("t", [b"the same all over again, " * 40] * AT_ONCE)
    published(messaging, [1000] * 20_000)
    messaging = durable.open()
    assert_balanced_parts(messaging, everything(messaging), 20)


def test_a_reference_that_is_not_found_is_one_part_at_most(
    durable: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(referring, "SEARCH_BYTES", 0)
    messaging = durable.messaging
    messaging.create_topic("t")
    published(messaging, [1000] * 15_000)
    referred(messaging, [1000] * 10_000)
    ids = cut(messaging, MIB)
    assert inside(ids) == []
    assert len(ids) > 10


@pytest.fixture(scope="module", params=KINDS)
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Messaging]:
    """Messages of all sizes, and references, for all examples."""
    with lent_site(request, tmp_path_factory.mktemp("splits")) as site:
        messaging = site.messaging
        messaging.create_topic("t")
        published(messaging, [1, 50, 3000] * 30)
        referred(messaging, [10, 700] * 40)
        referred(messaging, [1])
        published(messaging, [5] * 20)
        yield messaging


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_cuts_rise_and_lie_between_both_ends(
    filled: Messaging, data: st.DataObject
) -> None:
    ids = [message_id for message_id, _ in everything(filled)]
    end = st.sampled_from(ids) | st.binary(min_size=20, max_size=20).map(MessageId)
    start, stop = sorted([data.draw(end), data.draw(end)])
    part_bytes = data.draw(st.integers(1, 2**63 - 1) | st.integers(1, 10_000))
    if start == stop:
        return
    found = cut(filled, part_bytes, start=start, stop=stop)
    between = [one for one in everything(filled) if start <= one[0] < stop]
    assert len(found) <= max(0, len(between) - 1)
    if found:
        largest = max(size for _, size in between)
        assert max(parts(between, found)) <= 2 * (part_bytes + largest)


@pytest.mark.parametrize("part_bytes", [0, -1, True, 1.0, "5", None, 2**63])
def test_parts_have_a_whole_number_of_bytes(
    messaging: Messaging, part_bytes: Any
) -> None:
    with pytest.raises(BadRequest, match="part_bytes is a whole number from 1"):
        messaging.splits("t", start=LEAST, stop=MOST, part_bytes=part_bytes)


@pytest.mark.parametrize("end", [None, 5, "00" * 20, bytes(20), MessageId(b"x")])
def test_both_ends_are_ids(messaging: Messaging, end: Any) -> None:
    with pytest.raises(BadRequest, match="start is a MessageId"):
        messaging.splits("t", start=end, stop=MOST, part_bytes=1)
    with pytest.raises(BadRequest, match="stop is a MessageId"):
        messaging.splits("t", start=LEAST, stop=end, part_bytes=1)


def test_a_topic_that_is_not_there_is_not_found(messaging: Messaging) -> None:
    for topic, error in (("absent", TopicNotFound), ("a b", BadRequest)):
        with pytest.raises(error):
            messaging.splits(topic, start=LEAST, stop=MOST, part_bytes=1)
