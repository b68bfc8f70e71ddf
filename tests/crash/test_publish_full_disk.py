"""Publishes to a server whose disk is full for a while, and copies that come late."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from tests.support.full_disk import FullDisk
from tests.support.http_raw import Served, serving
from tests.support.messagings import payloads
from txaware.errors import NotWritten, Unavailable
from txaware.messaging import Messaging
from txaware.model.producers import ProducerService


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


@pytest.fixture
def served(disk: FullDisk, tmp_path: Path) -> Iterator[Served]:
    """A server on that disk."""
    with serving(f"leveldb:{tmp_path / 'data'}") as opened:
        yield opened


def test_what_a_full_disk_refused_and_a_late_copy_stored_hides_no_later_message(
    disk: FullDisk, served: Served
) -> None:
    """A middlebox delivers a request twice; a line that was cut delivers it late."""
    with txaware.connect(served.url) as messaging:
        producer = messaging.producer()
        disk.is_full = True
        with pytest.raises(Unavailable, match="No space left") as refused:
            producer.publish("t", b"first")
        assert not isinstance(refused.value, NotWritten)
        disk.is_full = False
        copied: ProducerService = served.messaging._service  # type: ignore[assignment]
        copied.publish_once("t", [b"first"], producer=producer.identity, sequence=0)
        producer.publish("t", b"second")
        assert payloads(messaging.poll("t")) == [b"first", b"second"]


def test_a_plain_publish_that_a_full_disk_refused_may_come_later(
    disk: FullDisk, served: Served
) -> None:
    with txaware.connect(served.url) as messaging:
        messaging.publish("t", [b"first"])
        disk.is_full = True
        with pytest.raises(Unavailable, match="No space left") as refused:
            messaging.publish("t", [b"second"])
        assert not isinstance(refused.value, NotWritten)
        disk.is_full = False
        messaging.publish("t", [b"third"])
        assert payloads(messaging.poll("t")) == [b"first", b"third"]


@pytest.mark.parametrize("is_by_hand", [True, False])
def test_a_copy_of_what_a_full_disk_refused_in_a_transaction_is_never_seen(
    disk: FullDisk, served: Served, *, is_by_hand: bool
) -> None:
    """It comes before the block has ended, and so its transaction takes it."""
    copied = served.messaging._service

    def refused_and_copied(messaging: Messaging) -> None:
        with messaging.transaction() as tx:
            disk.is_full = True
            try:
                if is_by_hand:
                    messaging.publish("t", [b"never"], transaction=tx.transaction)
                else:
                    messaging.publisher("t").publish(b"never")
                    messaging.publisher("t").flush()
            finally:
                disk.is_full = False
                copied.publish("t", [b"never"], transaction=tx.transaction)

    with txaware.connect(served.url) as messaging:
        with pytest.raises(NotWritten):
            refused_and_copied(messaging)
        assert messaging.coordinator.invalid_size() == 1
        assert payloads(messaging.poll("t", isolation="committed")) == []
