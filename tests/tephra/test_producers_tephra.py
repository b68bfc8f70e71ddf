"""Transactional producers beside a real Tephra, whose transactions outlive a store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.interfaces import Coordinator
from tests.support.messagings import committed, publish
from txaware.errors import OutOfOrderSequence, ProducerFenced
from txaware.messaging import Messaging
from txaware.model.messages import Message
from txaware.model.settings import Settings

pytestmark = pytest.mark.tephra

SETTINGS = Settings(janitor_interval_s=0)


def opened(directory: Path, coordinator: Coordinator) -> Messaging:
    url = f"leveldb:{directory / 'data'}"
    return txaware.connect(url, coordinator=coordinator, settings=SETTINGS)


@pytest.fixture
def messaging(tmp_path: Path, either_tephra: Coordinator) -> Iterator[Messaging]:
    with opened(tmp_path, either_tephra) as found:
        found.create_topic("t")
        yield found


def test_a_publish_is_stored_once_behind_a_transaction_that_is_open(
    messaging: Messaging, either_tephra: Coordinator
) -> None:
    """Sequences are rows of the store alone: no coordinator is asked."""
    producer = messaging.producer()
    tx = either_tephra.start_short()
    publish(messaging, b"open", transaction=tx)
    first = producer.publish("t", [b"one", b"two"])
    assert producer.publish("t", [b"one", b"two"], sequence=0) == first
    assert producer.publish("t", [b"three"])
    with pytest.raises(OutOfOrderSequence, match="missing"):
        producer.publish("t", [b"gap"], sequence=9)
    assert committed(messaging) == []
    either_tephra.invalidate(tx)
    assert committed(messaging) == [b"one", b"two", b"three"]


def test_a_repeat_is_known_by_the_next_life_of_the_store(
    tmp_path: Path, either_tephra: Coordinator
) -> None:
    with opened(tmp_path, either_tephra) as first:
        first.create_topic("t")
        producer = first.producer()
        ids = producer.publish("t", [b"one", b"two"])
    with opened(tmp_path, either_tephra) as second:
        service = second._producers
        again = service.publish_once(
            "t", [b"one", b"two"], producer=producer.identity, sequence=0
        )
        assert again == ids
        assert committed(second) == [b"one", b"two"]
        assert second.check().is_clean


def test_commits_count_and_a_newer_instance_fences(messaging: Messaging) -> None:
    old = messaging.producer("tephra-1")
    for number in range(3):
        with old.transaction():
            old.publish("t", [b"%d" % number])
    old.begin()
    old.publish("t", [b"open"])
    new = messaging.producer("tephra-1")
    assert (new.commits, new.epoch) == (3, old.epoch + 1)
    with pytest.raises(ProducerFenced):
        old.commit()
    with pytest.raises(ProducerFenced):
        old.begin()
    assert new.run_once("key", lambda: new.publish("t", [b"once"]))
    assert not new.run_once("key", lambda: new.publish("t", [b"twice"]))
    new.begin()
    new.publish("t", [b"undone"])
    new.abort()
    assert committed(messaging) == [b"0", b"1", b"2", b"once"]
    assert new.commits == 4


def test_what_a_store_left_open_ends_when_its_next_life_opens_the_producer(
    tmp_path: Path, either_tephra: Coordinator
) -> None:
    first = opened(tmp_path, either_tephra)
    first.create_topic("t")
    old: Any = first.producer("tephra-2")
    with old.transaction():
        old.publish("t", [b"done"])
    old.begin(timeout_s=1000)
    left = old._context.transaction
    first.publish("t", [b"left"], transaction=left)
    first.publish("t", [b"plain"])
    first.close()
    with opened(tmp_path, either_tephra) as second:
        assert committed(second) == [b"done"]  # the other one is in the way
        assert second.producer("tephra-2").commits == 1
        assert committed(second) == [b"done", b"plain"]
        assert not either_tephra.invalidate(left)


def test_a_processor_copies_each_message_once(messaging: Messaging) -> None:
    messaging.create_topic("out")
    messaging.publish("t", [b"%d" % number for number in range(20)])

    def same(message: Message) -> bytes:
        return message.payload

    for _ in range(4):
        processor = messaging.process(
            "t", "out", same, group="g", producer="p", messages_per_transaction=6
        )
        processor.run_once()
        processor.close()
    assert committed(messaging, "out") == [b"%d" % number for number in range(20)]
