"""Messages that are published before the commit, for readers of the uncommitted."""

import pytest

from tests.support.messagings import payloads
from txaware.errors import MisusedTransaction
from txaware.messaging import Messaging


def committed(messaging: Messaging, topic: str = "t") -> list[bytes]:
    return payloads(messaging.poll(topic, isolation="committed"))


def uncommitted(messaging: Messaging, topic: str = "t") -> list[bytes]:
    return payloads(messaging.poll(topic, isolation="uncommitted"))


@pytest.mark.everywhere
def test_what_is_flushed_is_read_uncommitted_at_once(messaging: Messaging) -> None:
    publisher = messaging.publisher("t")
    with messaging.transaction():
        publisher.publish_all([b"a", b"b"])
        assert uncommitted(messaging) == []
        publisher.flush()
        assert uncommitted(messaging) == [b"a", b"b"]
        assert committed(messaging) == []
        publisher.publish(b"c")
        assert uncommitted(messaging) == [b"a", b"b"]
    assert committed(messaging) == [b"a", b"b", b"c"]


@pytest.mark.everywhere
def test_what_is_flushed_is_rolled_back_with_the_rest(messaging: Messaging) -> None:
    publisher = messaging.publisher("t")
    with messaging.transaction() as tx:
        publisher.publish(b"a")
        tx.flush()
        publisher.publish(b"b")
        tx.flush()
        publisher.publish(b"c")
        tx.abort()
    assert committed(messaging) == []
    publisher.publish(b"d")
    assert committed(messaging) == [b"d"]


def test_a_transaction_flushes_all_its_topics(messaging: Messaging) -> None:
    messaging.create_topic("u")
    with messaging.transaction() as tx:
        messaging.publisher("t").publish(b"a")
        messaging.publisher("u").publish(b"b")
        messaging.publisher("t").flush()
        assert (uncommitted(messaging), uncommitted(messaging, "u")) == ([b"a"], [])
        tx.flush()
        tx.flush()
        assert (uncommitted(messaging), uncommitted(messaging, "u")) == ([b"a"], [b"b"])
    assert (committed(messaging), committed(messaging, "u")) == ([b"a"], [b"b"])


@pytest.mark.everywhere
def test_after_a_spill_a_flush_publishes_the_reference(messaging: Messaging) -> None:
    publisher = messaging.publisher("t", buffer_limit_bytes=1000)
    many = [b"%03d" % number + bytes(97) for number in range(40)]
    with messaging.transaction():
        publisher.publish_all(many[:20])
        publisher.flush()
        assert uncommitted(messaging) == many[:20]
        publisher.publish_all(many[20:21])
        publisher.flush()
        publisher.publish_all(many[21:])
        assert uncommitted(messaging) == many[:21]
    assert committed(messaging) == many


def test_a_spilled_flush_is_rolled_back(messaging: Messaging) -> None:
    publisher = messaging.publisher("t", buffer_limit_bytes=1000)
    many = [b"%03d" % number + bytes(97) for number in range(20)]
    with messaging.transaction() as tx:
        publisher.publish_all(many)
        publisher.flush()
        publisher.publish_all(many)
        tx.abort()
    messaging.publish("t", [b"after"])
    assert committed(messaging) == [b"after"]


def test_a_flush_needs_a_block(messaging: Messaging) -> None:
    publisher = messaging.publisher("t")
    with pytest.raises(MisusedTransaction, match="none is open here"):
        publisher.flush()
    with messaging.transaction() as tx:
        pass
    with pytest.raises(MisusedTransaction, match="flush"):
        tx.flush()


def test_items_of_queues_wait_for_the_commit(messaging: Messaging) -> None:
    messaging.create_queue("jobs")
    queue = messaging.queue("jobs")
    with messaging.transaction() as tx:
        queue.push(b"job")
        tx.flush()
        assert queue.peek() == []
    assert [one.payload for one in queue.peek()] == [b"job"]
