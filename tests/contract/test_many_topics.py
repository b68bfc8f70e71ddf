"""Transactions over more topics and pipes than Python calls may be nested."""

import sys

import pytest

from tests.support.messagings import Site, committed
from tests.support.queues import made, numbered, taken

MANY = sys.getrecursionlimit() + 100

pytestmark = pytest.mark.parametrize("site", ["leveldb", "http"], indirect=True)


def test_a_transaction_publishes_to_more_topics_than_calls_nest(site: Site) -> None:
    topics = [f"t{number}" for number in range(MANY)]
    for topic in topics:
        site.embedded.create_topic(topic)
    with site.messaging.transaction(timeout_s=600):
        for topic in topics:
            site.messaging.publisher(topic).publish(topic.encode())
    assert [committed(site.embedded, topic) for topic in topics] == [
        [topic.encode()] for topic in topics
    ]


def test_a_transaction_pushes_as_more_pushers_than_calls_nest(site: Site) -> None:
    queue, items = made(site.messaging), numbered(MANY)
    with site.messaging.transaction(timeout_s=600):
        for item in items:
            queue.pusher().push(item)
    assert sorted(taken(site.embedded.queue("mail"))) == sorted(items)
