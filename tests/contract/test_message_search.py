"""Messages are searched by key, header, text and time; none is consumed."""

from typing import Any

import pytest

from tests.support.messagings import Site
from txaware.errors import BadRequest, TopicNotFound
from txaware.messaging import Messaging
from txaware.model.messages import MessageId, Outgoing
from txaware.model.reports import Peeked
from txaware.service.monitor import message_search


@pytest.fixture
def orders(site: Site) -> Messaging:
    """A topic with messages of ann and bob, a minute apart."""
    messaging = site.messaging
    messaging.create_topic("orders")
    messaging.publish("orders", [Outgoing(b"Apples for ann", b"ann", {"till": b"3"})])
    site.clock.advance_s(60)
    messaging.publish("orders", [Outgoing(b"pears for ann", b"ann"), b"nuts"])
    messaging.publish("orders", [Outgoing(b"apples for bob", b"bob", {"till": b"4"})])
    return messaging


def found(messaging: Messaging, **search: Any) -> list[bytes | None]:
    """The payloads of all that a search finds, call by call."""
    payloads: list[bytes | None] = []
    while True:
        page = messaging.search("orders", **search)
        payloads += [row.payload for row in page.rows]
        if page.next is None:
            return payloads
        search["start"] = page.next


def test_a_message_is_found_by_each_of_its_parts(orders: Messaging, site: Site) -> None:
    ann, bob = b"Apples for ann", b"apples for bob"
    assert found(orders, key=b"ann") == [ann, b"pears for ann"]
    assert found(orders, header="till") == [ann, bob]
    assert found(orders, header="till", header_value=b"4") == [bob]
    assert found(orders, header_value=b"3") == [ann]
    assert found(orders, text="APPLES for") == [ann, bob]
    assert found(orders, text="apples", key=b"bob") == [bob]
    half_ms = site.clock() - 30_000
    assert found(orders, text="apples", until=half_ms) == [ann]
    assert found(orders, text="apples", start=half_ms) == [bob]
    assert found(orders, key=b"") == []
    assert len(found(orders)) == 4
    assert found(orders, limit=1, header="till") == [ann, bob]


def test_a_search_shows_rows_as_they_stand_and_consumes_nothing(
    orders: Messaging, site: Site
) -> None:
    with orders.transaction():
        orders.publisher("orders").publish(b"apples in a transaction")
    tx = orders.coordinator.start_short()
    orders.publish("orders", [b"apples held"], transaction=tx)
    rows = orders.search("orders", text="apples").rows
    assert [row.state for row in rows] == ["plain", "plain", "committed", "in progress"]
    assert [row.id for row in rows] == sorted(row.id for row in rows)
    assert orders.position("billing", "orders") is None


def test_what_was_stored_ahead_is_found_piece_by_piece(orders: Messaging) -> None:
    with orders.transaction():
        publisher = orders.publisher("orders", buffer_limit_bytes=1)
        for number in range(5):
            publisher.publish(Outgoing(b"ahead %d" % number, b"k", {"h": b"1"}))
    wanted = [b"ahead %d" % number for number in range(5)]
    assert found(orders, text="ahead", limit=2) == wanted
    assert found(orders, key=b"k", header="h", header_value=b"1") == wanted
    [one] = orders.search("orders", text="ahead 3").rows
    assert isinstance(one, Peeked)
    assert (one.state, one.id.payload_key != bytes(10)) == ("committed", True)


def test_a_call_looks_at_a_bounded_number_and_the_next_goes_on(
    orders: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_search, "MOST_ROWS", 3)
    page = orders.search("orders", text="apples")
    assert (len(page.rows), page.looked) == (1, 3)
    assert isinstance(page.next, MessageId)
    page = orders.search("orders", text="apples", start=page.next)
    assert (len(page.rows), page.looked, page.next) == (1, 1, None)
    monkeypatch.setattr(message_search, "MOST_BYTES", 1)
    assert orders.search("orders").looked == 1


def test_the_count_of_a_last_full_page_ends_it(orders: Messaging) -> None:
    page = orders.search("orders", limit=4)
    assert (len(page.rows), page.next) == (4, None)


@pytest.mark.parametrize(
    ("search", "match"),
    [
        ({"key": "ann"}, "key is bytes, not 'ann'"),
        ({"header": ""}, "header is a text, not ''"),
        ({"header_value": "3"}, "header_value is bytes, not '3'"),
        ({"text": b"a"}, "text is a text, not b'a'"),
        ({"text": "\ud800"}, "text is no text"),
        ({"until": 1.5}, "until is a time in ms, not 1.5"),
        ({"until": -1}, "until is a time from 0 to"),
        ({"limit": 0}, "limit"),
        ({"start": "now"}, "start"),
    ],
)
def test_a_wrong_search_is_refused(
    orders: Messaging, search: dict[str, Any], match: str
) -> None:
    with pytest.raises(BadRequest, match=match):
        orders.search("orders", **search)


def test_a_topic_that_is_not_there_is_told(site: Site) -> None:
    with pytest.raises(TopicNotFound):
        site.messaging.search("nothing", text="a")
