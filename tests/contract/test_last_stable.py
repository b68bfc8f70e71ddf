"""A page tells the last stable position that its poll found (KIP-98)."""

from typing import Any

from tests.support.messagings import commit, payloads, publish
from txaware.messaging import Messaging
from txaware.model.messages import MessageId, Page


def polled(messaging: Messaging, **options: Any) -> Page:
    return messaging.poll("t", isolation="committed", **options)


def stable(messaging: Messaging) -> MessageId:
    return messaging.bounds("t", isolation="committed").next


def test_a_poll_to_the_end_tells_where_the_next_message_goes(
    messaging: Messaging,
) -> None:
    assert polled(messaging).last_stable == stable(messaging)
    messaging.publish("t", [b"a", b"b"])
    page = polled(messaging)
    assert page.last_stable == stable(messaging)
    again = polled(messaging, start=page.next, inclusive=False)
    assert not again
    assert again.last_stable == page.last_stable
    messaging.publish("t", [b"c"])
    (message,) = polled(messaging, start=page.last_stable)
    assert message.payload == b"c"
    assert message.id == page.last_stable


def test_a_poll_that_is_held_up_tells_the_first_open_message(
    messaging: Messaging,
) -> None:
    messaging.publish("t", [b"before"])
    tx = messaging.coordinator.start_short()
    publish(messaging, b"open", b"too", transaction=tx)
    messaging.publish("t", [b"after"])
    _, open_, *_ = [message.id for message in messaging.poll("t")]
    page = polled(messaging)
    assert page.blocked_by
    assert page.last_stable == open_ == stable(messaging)
    held_up = polled(messaging, start=page.next, inclusive=False)
    assert not held_up
    assert held_up.last_stable == open_
    commit(messaging, tx)
    assert polled(messaging).last_stable == stable(messaging) > open_


def test_a_page_that_is_full_tells_none(messaging: Messaging) -> None:
    messaging.publish("t", [b"a", b"b", b"c"])
    page = polled(messaging, limit=2)
    assert payloads(page) == [b"a", b"b"]
    assert page.last_stable is None
    rest = polled(messaging, limit=2, start=page.next, inclusive=False)
    assert rest.last_stable == stable(messaging)


def test_a_reader_of_everything_is_told_none(messaging: Messaging) -> None:
    publish(messaging, b"open", transaction=messaging.coordinator.start_short())
    assert messaging.poll("t").last_stable is None
    assert messaging.poll("t", start=2**40).last_stable is None


def test_what_a_transaction_cannot_decide_is_not_stable_to_it(
    messaging: Messaging,
) -> None:
    messaging.publish("t", [b"a"])
    with messaging.transaction():
        later = messaging.coordinator.start_short()
        publish(messaging, b"later", transaction=later)
        commit(messaging, later)
        page = messaging.poll("t")
    _, newer = messaging.poll("t")
    assert payloads(page) == [b"a"]
    assert page.last_stable == newer.id


def test_a_consumer_that_decodes_passes_it_on(messaging: Messaging) -> None:
    messaging.publish("t", [b"5"])
    page = messaging.consumer("t", decode=int).poll()
    assert page[0].payload == 5
    assert page.last_stable == stable(messaging)
