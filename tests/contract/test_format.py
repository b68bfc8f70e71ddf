"""The format of a store: this version opens the one before, that one refuses ours."""

from collections.abc import Callable
from pathlib import Path

import pytest

import txaware
from tests.support.doubles import Clock
from tests.support.messagings import Site, committed
from tests.support.store_of_0_1_0 import WRITTEN_MS, unpack
from txaware.errors import StoreCorrupted
from txaware.messaging import Messaging
from txaware.model.messages import Outgoing
from txaware.store import journaled_table
from txaware.store.journaled_table import (
    FORMAT,
    FORMATS,
    NEWEST_FORMAT,
    OUR_FORMAT,
    PARTITIONED_FORMAT,
    keep_earlier_versions_away,
)


def of_the_version_before(site: Site) -> Messaging:
    """A store with a message, a position and payloads that were stored ahead."""
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"plain"])
    with messaging.transaction():
        messaging.publisher("t", buffer_limit_bytes=8).publish_all([b"spilled"] * 3)
    with messaging.transaction():
        messaging.consumer("t", group="g").poll(limit=1)
    assert site.table.get(FORMAT) == OUR_FORMAT
    return site.open()


def publish_once(messaging: Messaging) -> None:
    with messaging.producer() as producer:
        producer.publish("t", [b"once"])


def open_an_id(messaging: Messaging) -> None:
    messaging.producer("loader").close()


def put_a_row(messaging: Messaging) -> None:
    with messaging.transaction(accounts := messaging.table("accounts")):
        accounts.put(b"ann", b"5")


def create_a_queue(messaging: Messaging) -> None:
    messaging.create_queue("mail")


NEW_ROWS = [publish_once, open_an_id, put_a_row, create_a_queue]


def test_a_store_that_0_1_0_wrote_opens_and_works(tmp_path: Path) -> None:
    data = unpack(tmp_path / "data")
    clock = Clock(WRITTEN_MS + 60_000)
    old = [b"plain", b"second", b"committed", b"spilled 1", b"spilled 2"]
    for life, new in enumerate([[], [b"once", b"keyed"]]):
        with txaware.connect(f"leveldb:{data}", clock_ms=clock) as messaging:
            assert committed(messaging) == old + new
            assert messaging.check().is_clean
            if life == 0:
                with messaging.transaction():
                    read = messaging.consumer("t", group="g").poll()
                assert [message.payload for message in read] == old[2:]
                publish_once(messaging)
                messaging.publish("t", [Outgoing(b"keyed", key=b"ann")])
                put_a_row(messaging)
                messaging.prune()
            else:
                keys = [message.key for message in messaging.poll("t")]
                assert keys == [None] * 6 + [b"ann"]


def test_a_store_of_the_version_before_opens_and_works(lasting: Site) -> None:
    messaging = of_the_version_before(lasting)
    before = [b"plain", *[b"spilled"] * 3]
    assert committed(messaging) == before
    with messaging.transaction():
        read = messaging.consumer("t", group="g").poll()
    assert [message.payload for message in read] == before[1:]
    assert messaging.check().is_clean
    for make in NEW_ROWS:
        make(messaging)
    assert lasting.table.get(FORMAT) == NEWEST_FORMAT
    messaging = lasting.open()
    assert committed(messaging) == [*before, b"once"]
    assert messaging.check().is_clean


def test_messages_with_keys_and_headers_are_for_the_version_before_too(
    lasting: Site,
) -> None:
    """It keeps columns that it does not know, and delivers the payloads."""
    messaging = of_the_version_before(lasting)
    messaging.publish("t", [Outgoing(b"x", key=b"ann", headers={"n": b"1"})])
    assert lasting.table.get(FORMAT) == OUR_FORMAT


@pytest.mark.parametrize("make", NEW_ROWS)
def test_the_version_before_refuses_what_it_does_not_know(
    lasting: Site, make: Callable[[Messaging], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(of_the_version_before(lasting))
    lasting.close()
    # That version knew three formats, the last of which was `OUR_FORMAT`.
    monkeypatch.setattr(journaled_table, "FORMATS", FORMATS[:3])
    with pytest.raises(StoreCorrupted, match=r"'txaware 4'.* reads .* to b'txaware 3'"):
        lasting.messaging = lasting._connect()
    monkeypatch.undo()
    lasting.messaging = lasting._connect()
    assert lasting.messaging.check().is_clean


def test_the_version_before_refuses_partitions_and_nothing_else(
    lasting: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = of_the_version_before(lasting)
    messaging.create_topic("one", partitions=1)
    for make in NEW_ROWS:
        make(messaging)
    assert lasting.table.get(FORMAT) == NEWEST_FORMAT
    lasting.messaging.update_topic("one", partitions=2)
    assert lasting.table.get(FORMAT) == PARTITIONED_FORMAT
    lasting.messaging.delete_topic("one")
    lasting.close()
    monkeypatch.setattr(journaled_table, "FORMATS", FORMATS[:4])
    sentence = r"has the format b'txaware 4\.1', and .* b'txaware 1' to b'txaware 4'$"
    with pytest.raises(StoreCorrupted, match=sentence):
        lasting.messaging = lasting._connect()
    monkeypatch.undo()
    lasting.messaging = lasting._connect()
    assert lasting.messaging.check().is_clean
    publish_once(lasting.messaging)
    assert lasting.table.get(FORMAT) == PARTITIONED_FORMAT


def test_a_format_that_does_not_tell_of_partitions_is_found(lasting: Site) -> None:
    lasting.messaging.create_topic("orders", partitions=2)
    for found in (OUR_FORMAT, NEWEST_FORMAT):
        lasting.table.submit([(FORMAT, found)])()
        [problem] = lasting.messaging.check().problems
        assert problem.kind == "format"
        assert "artition" in problem.sentence


def test_the_format_rises_with_one_batch_and_then_costs_nothing(durable: Site) -> None:
    messaging = of_the_version_before(durable)
    keep_earlier_versions_away(durable.table)
    assert durable.table.get(FORMAT) == NEWEST_FORMAT
    writes = messaging.metrics().writes
    keep_earlier_versions_away(durable.table)
    assert messaging.metrics().writes == writes
