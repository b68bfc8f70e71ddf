"""Time to live: what is still there, what is not, and what comes back."""

from typing import Any

import pytest

from coordinator.transaction import Transaction
from tests.support.messagings import DAY_S, Site, payloads, publish, seen_by
from txaware.messaging import Messaging
from txaware.model.messages import MessageId, Outgoing

JUDGES: list[Transaction | None] = [None, seen_by(100, read=99)]


def of_ten_seconds(site: Site) -> Messaging:
    site.messaging.create_topic("t", ttl_s=10)
    return site.messaging


@pytest.mark.foreign_pointers
@pytest.mark.parametrize("judge", JUDGES, ids=["uncommitted", "transaction"])
def test_what_is_older_than_the_time_to_live_is_not_delivered(
    site: Site, judge: Transaction | None
) -> None:
    """Scenario 40."""
    messaging = of_ten_seconds(site)
    messaging.publish("t", [b"a"])
    publish(messaging, b"b", transaction=5)
    site.clock.advance_s(10)
    bounds = messaging.bounds("t")
    assert (bounds.first, bounds.last) == tuple(m.id for m in messaging.poll("t"))
    messaging.publish("t", [b"c"])
    found = payloads(messaging.poll("t", transaction=judge))
    assert found == [b"a", b"b", b"c"]
    site.clock.advance_s(0.001)
    for _ in range(2):
        assert payloads(messaging.poll("t", transaction=judge)) == [b"c"]
    assert messaging.bounds("t").first == messaging.poll("t")[0].id
    site.clock.advance_s(10.001)
    assert messaging.poll("t", transaction=judge) == []
    assert messaging.bounds("t").first is None
    assert messaging.bounds("t").last is None


def test_a_longer_time_to_live_brings_back_what_was_not_removed(site: Site) -> None:
    """Scenario 41."""
    messaging = of_ten_seconds(site)
    messaging.publish("t", [b"a"])
    site.clock.advance_s(11)
    assert messaging.poll("t") == []
    messaging.update_topic("t", ttl_s=12)
    assert payloads(messaging.poll("t")) == [b"a"]
    messaging.update_topic("t", ttl_s=5)
    assert messaging.poll("t") == []


def test_an_update_of_other_properties_removes_no_message(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t", ttl_s=90 * DAY_S)
    messaging.publish("t", [b"a"])
    site.clock.advance_s(30 * DAY_S)
    messaging.update_topic("t", properties={"owner": "shop"})
    messaging.clean_up()
    assert payloads(messaging.poll("t")) == [b"a"]


def test_a_start_before_the_bound_is_a_time_at_the_bound(site: Site) -> None:
    """Scenario 43."""
    messaging = of_ten_seconds(site)
    for payload in (b"a", b"b", b"c"):
        messaging.publish("t", [payload])
        site.clock.advance_s(5)
    ids = [MessageId.of(site.clock() - after_ms) for after_ms in (15_000, 10_000)]
    bound_ms = site.clock() - 10_000
    starts: list[Any] = [ids[0], MessageId(bytes(20)), 0, bound_ms - 1]
    for start in starts:
        page = messaging.poll("t", start=start, inclusive=False)
        assert payloads(page) == [b"b", b"c"]
        assert page.skipped_before == bound_ms
    for start, expected in [
        (None, [b"b", b"c"]),
        (bound_ms, [b"b", b"c"]),
        (ids[1], [b"c"]),
    ]:
        page = messaging.poll("t", start=start, inclusive=False)
        assert payloads(page) == expected
        assert page.skipped_before is None
    site.clock.advance_s(100)
    page = messaging.poll("t", start=ids[0], inclusive=False)
    assert (page, page.next) == ([], ids[0])
    assert page.skipped_before == site.clock() - 10_000


@pytest.mark.foreign_pointers
def test_a_message_may_live_shorter_than_its_topic(site: Site) -> None:
    messaging = of_ten_seconds(site)
    messaging.publish(
        "t",
        [Outgoing(b"a", expire_after_s=2), b"b", Outgoing(b"c", expire_after_s=0.5)],
    )
    publish(messaging, b"tx", transaction=5)
    messaging.publish("t", [Outgoing(b"d", expire_after_s=100)], transaction=6)
    for seconds, expected in [
        (0, [b"a", b"b", b"c", b"tx", b"d"]),
        (0.499, [b"a", b"b", b"c", b"tx", b"d"]),
        (0.001, [b"a", b"b", b"tx", b"d"]),
        (1.5, [b"b", b"tx", b"d"]),
        (8.01, []),
    ]:
        site.clock.advance_s(seconds)
        for judge in JUDGES:
            for _ in range(2):
                page = messaging.poll("t", transaction=judge)
                assert payloads(page) == expected
                assert payloads(messaging.poll("t", limit=1)) == expected[:1]


def test_an_expired_message_does_not_end_a_page(site: Site) -> None:
    messaging = of_ten_seconds(site)
    messaging.publish(
        "t",
        [Outgoing(b"a", expire_after_s=1)] * 50
        + [b"b"]
        + [Outgoing(b"c", expire_after_s=1)] * 5,
    )
    everything = messaging.poll("t")
    site.clock.advance_s(2)
    page = messaging.poll("t", limit=5)
    assert payloads(page) == [b"b"]
    assert page.next == everything[-1].id


@pytest.mark.foreign_pointers
def test_an_expired_transaction_that_is_open_blocks_until_it_expires(
    site: Site,
) -> None:
    messaging = of_ten_seconds(site)
    publish(messaging, b"a", transaction=5)
    site.clock.advance_s(5)
    messaging.publish("t", [b"b"])
    blocked = seen_by(9, read=9, in_progress=[5])
    assert messaging.poll("t", transaction=blocked).blocked_by is not None
    site.clock.advance_s(5.001)
    assert payloads(messaging.poll("t", transaction=blocked)) == [b"b"]


def test_a_clock_that_goes_back_hides_nothing(site: Site) -> None:
    messaging = of_ten_seconds(site)
    messaging.publish("t", [b"a"])
    site.clock.advance_s(-3_600)
    messaging.publish("t", [b"b"])
    for judge in JUDGES:
        page = messaging.poll("t", transaction=judge)
        assert payloads(page) == [b"a", b"b"]
    assert payloads(messaging.poll("t", start=site.clock())) == [b"a", b"b"]


def test_the_only_message_at_the_bound_is_the_first_and_the_last(site: Site) -> None:
    messaging = of_ten_seconds(site)
    messaging.publish("t", [b"a"])
    site.clock.advance_s(10)
    (message,) = messaging.poll("t")
    bounds = messaging.bounds("t")
    assert (bounds.first, bounds.last) == (message.id, message.id)
