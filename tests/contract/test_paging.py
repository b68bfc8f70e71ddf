"""Pages put together are the whole, whatever their size and wherever they begin."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.transaction import Transaction
from tests.support.messagings import KINDS, Site, lent_site, payloads, publish, seen_by
from txaware.messaging import Messaging
from txaware.model.messages import Message, MessageId
from txaware.service.read import scan as looks
from txaware.service.read import scan_cache

# Small pointers stand for transactions of another coordinator.
pytestmark = pytest.mark.foreign_pointers


def pages(
    messaging: Messaging,
    topic: str,
    limit: int,
    *,
    by_next: bool,
    start: MessageId | None = None,
    inclusive: bool = True,
    transaction: Transaction | None = None,
) -> Iterator[Message]:
    """What all pages deliver one after the other."""
    while True:
        page = messaging.poll(
            topic,
            start=start,
            inclusive=inclusive,
            limit=limit,
            transaction=transaction,
        )
        assert len(page) <= limit
        yield from page
        if not page and (not by_next or page.next == start):
            return
        start, inclusive = page.next if by_next else page[-1].id, False


def test_pages_of_any_size_continue_each_other(messaging: Messaging) -> None:
    """Scenario 36."""
    messaging.publish("t", [b"first"])
    for _ in range(2):
        messaging.store("t", [b"p%d" % number for number in range(10)], transaction=7)
    publish(messaging, transaction=7)
    messaging.publish("t", [b"last"])
    whole = messaging.poll("t")
    assert len(whole) == 22
    for limit in range(1, 24):
        for by_next in (True, False):
            found = list(pages(messaging, "t", limit, by_next=by_next))
            assert found == whole


def test_a_full_page_after_a_message_is_one_read_of_the_table(tmp_path: Path) -> None:
    """A read more would double what a page costs where the table is far away."""
    site = Site("memory", tmp_path, cache_bytes=0)
    site.messaging.create_topic("t")
    site.messaging.publish("t", [b"%d" % number for number in range(2500)])
    first = site.messaging.poll("t", limit=1000)
    with patch.object(site.table, "scan", wraps=site.table.scan) as scan:
        page = site.messaging.poll("t", start=first.next, inclusive=False, limit=1000)
    assert payloads(page) == [b"%d" % number for number in range(1000, 2000)]
    assert scan.call_count == 1
    site.close()


@pytest.mark.everywhere
def test_a_page_may_start_inside_an_expansion(messaging: Messaging) -> None:
    """Scenario 37: the next reference is not shifted, and nothing is skipped."""
    for pointer in (9, 8):
        stored = [b"%d-%d" % (pointer, number) for number in range(4)]
        messaging.store("t", stored, transaction=pointer)
    for pointer in (8, 9):
        publish(messaging, transaction=pointer)
    whole = messaging.poll("t")
    expected = [b"%d-%d" % (pointer, n) for pointer in (8, 9) for n in range(4)]
    assert payloads(whole) == expected
    for at, message in enumerate(whole):
        assert messaging.poll("t", start=message.id) == whole[at:]
        after = messaging.poll("t", start=message.id, inclusive=False)
        assert after == whole[at + 1 :]
        before = message.id.before()
        assert messaging.poll("t", start=before, inclusive=False) == whole[at:]
    row = MessageId(whole[0].id.row_key + bytes(10))
    for inclusive in (True, False):
        assert messaging.poll("t", start=row, inclusive=inclusive) == whole
    behind = MessageId.after_payloads(whole[0].id.row_key)
    for inclusive in (True, False):
        page = messaging.poll("t", start=behind, inclusive=inclusive)
        assert page == whole[4:]
        tx = seen_by(20, read=20, in_progress=[8])
        options: Any = {"inclusive": inclusive, "transaction": tx}
        assert messaging.poll("t", start=behind, **options) == whole[4:]


def test_no_page_is_longer_than_the_settings_allow(site: Site) -> None:
    messaging = site.open(poll_limit_messages=3, poll_limit_bytes=100)
    messaging.create_topic("t")
    messaging.publish("t", [b"%d" % number for number in range(10)])
    assert len(messaging.poll("t", limit=100)) == 3
    assert len(messaging.poll("t", limit=2)) == 2
    messaging.create_topic("large")
    sizes = [60, 40, 1, 100, 101, 500, 0, 99, 2]
    messaging.publish("large", [b"x" * size for size in sizes])
    messaging.store("large", [b"x" * size for size in sizes], transaction=7)
    publish(messaging, transaction=7, topic="large")
    found, start = [], MessageId(bytes(20))
    while page := messaging.poll("large", start=start, inclusive=False):
        found.append([len(payload) for payload in payloads(page)])
        start = page.next
    assert [size for sizes in found for size in sizes] == sizes * 2
    assert all(sum(page_sizes) <= 100 or len(page_sizes) == 1 for page_sizes in found)
    assert found[0] == [60, 40]


def test_a_page_of_skipped_rows_goes_on_behind_them(messaging: Messaging) -> None:
    for number in range(5):
        publish(messaging, *[b"%d" % number] * 1_000, transaction=5)
    messaging.store("t", [b"a"], transaction=5)
    publish(messaging, transaction=5)
    messaging.publish("t", [b"end"])
    tx = seen_by(9, read=9, invalids=[5])
    page = messaging.poll("t", transaction=tx, limit=1)
    assert payloads(page) == [b"end"]
    assert page.next == page[0].id
    page = messaging.poll("t", transaction=seen_by(9, read=9, in_progress=[5]))
    assert page.next < messaging.poll("t", limit=1)[0].id


limits = st.integers(1, 12)
writes = st.lists(
    st.tuples(
        st.sampled_from(["plain", "tx", "reference", "invalid", "empty", "later"]),
        st.integers(1, 6),
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module", params=KINDS)
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """One service for all examples, which reads and keeps few rows at a time."""
    directory: Path = tmp_path_factory.mktemp("paging")
    with (
        patch.multiple(looks, READ_ROWS=3),
        patch.multiple(scan_cache, BLOCK_ROWS=4),
        lent_site(request, directory, cache_bytes=6_000) as opened,
    ):
        yield opened


@settings(max_examples=25, deadline=None)
@given(writes, st.data())
def test_pages_of_random_topics_continue_each_other(
    shared: Site, steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    """Scenarios 36 and 37 for random rows, and the judge between them."""
    messaging, number, invalids = shared.messaging, 0, []
    if "t" in messaging.topics():
        messaging.delete_topic("t")
    messaging.create_topic("t")
    for pointer, (kind, count) in enumerate(steps, start=2):
        number += count
        messages = [b"%d.%d" % (number, part) for part in range(count)]
        if kind == "plain":
            messaging.publish("t", messages)
        elif kind in ("tx", "invalid"):
            publish(messaging, *messages, transaction=pointer)
        elif kind == "reference":
            messaging.store("t", messages, transaction=pointer)
            messaging.store("t", messages, transaction=pointer, attempt=b"x")
        else:
            shared.clock.advance_s(0.001 * (kind == "later"))
        if kind in ("reference", "empty"):
            publish(messaging, transaction=pointer)
        if kind == "invalid":
            invalids.append(pointer)
    tx = seen_by(10**9, read=10**9 - 1, invalids=invalids)
    for judge in (None, tx):
        whole = list(messaging.poll("t", transaction=judge, limit=10_000))
        ids = [message.id for message in whole]
        assert ids == sorted(set(ids))
        for limit in {*range(1, 5), len(whole), len(whole) + 1, data.draw(limits)}:
            if not limit:
                continue
            for by_next in (True, False):
                found = pages(messaging, "t", limit, by_next=by_next, transaction=judge)
                assert list(found) == whole
        for message in whole:
            for inclusive in (True, False):
                start = data.draw(st.sampled_from([message.id, message.id.before()]))
                expected = [
                    m for m in whole if m.id > start or (inclusive and m.id == start)
                ]
                found = pages(
                    messaging,
                    "t",
                    data.draw(limits),
                    by_next=data.draw(st.booleans()),
                    start=start,
                    inclusive=inclusive,
                    transaction=judge,
                )
                assert list(found) == expected
