"""A round through what partitions promise, for servers that each test of them costs."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from txaware.messaging import Messaging
from txaware.model.messages import Message

Opens = Callable[[], AbstractContextManager[Messaging]]
NAMES = [b"ann", b"bob", b"cid", b"dan", b"eve", b"fay"]
SENT = 300


def read(messaging: Messaging, **options: Any) -> list[Message]:
    """All messages of all partitions."""
    found: list[Message] = []
    options = {"limit": 70, **options}
    page = messaging.poll("orders", **options)
    while page:
        found += page
        page = messaging.poll("orders", start=page.next, inclusive=False, **options)
    return found


def go_round(opens: Opens) -> None:
    """Publishes across partitions in all ways, and reads it in a later life, too."""
    with opens() as messaging:
        messaging.create_topic("orders", partitions=3)
        publisher = messaging.publisher("orders")
        with messaging.transaction():
            for name in NAMES:
                publisher.publish(b"committed", key=name)
        with pytest.raises(ZeroDivisionError):
            _roll_back(messaging)
        with messaging.sender(compression="gzip") as s:
            futures = [
                s.send("orders", b"sent, as many others %d" % n, key=NAMES[n % 6])
                for n in range(SENT)
            ]
        sent = [future.result(0) for future in futures]
        found = read(messaging, isolation="committed")
        check(found)
        by_place = {(one.partition, one.id): one.payload for one in found}
        assert [by_place[one.partition, one.id] for one in sent] == [
            b"sent, as many others %d" % n for n in range(SENT)
        ]
        for number in range(3):
            with messaging.transaction():
                page = messaging.consumer("orders", group="g", partition=number).poll(
                    limit=40
                )
            assert {one.partition for one in page} <= {number}
        last = messaging.offsets("orders", at="last")
        assert messaging.check().is_clean
    with opens() as messaging:
        check(read(messaging, isolation="committed"))
        assert messaging.offsets("orders", at="last") == last
        rest = 0
        for number in range(3):
            consumer = messaging.consumer("orders", group="g", partition=number)
            with messaging.transaction():
                rest += len(consumer.poll(limit=1000))
        before = sum(min(40, sum(p.partition == n for p in found)) for n in range(3))
        assert before + rest == len(found)
        messaging.update_topic("orders", partitions=4)
        messaging.publish("orders.3", [b"in a new one"])
        assert [one.payload for one in messaging.poll("orders.3")] == [b"in a new one"]
        messaging.clean_up()
        assert messaging.check().is_clean


def _roll_back(messaging: Messaging) -> None:
    publisher = messaging.publisher("orders")
    with messaging.transaction():
        for name in NAMES:
            publisher.publish(b"rolled back", key=name)
        raise ZeroDivisionError


def check(found: list[Message]) -> None:
    """Each message is there once, and those of a partition are in order."""
    assert [one.payload for one in found].count(b"committed") == len(NAMES)
    assert len(found) == len(NAMES) + SENT
    for number in range(3):
        here = [one.id for one in found if one.partition == number]
        assert here == sorted(set(here))
