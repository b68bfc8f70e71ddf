"""Plain publishes with a key of the request to several partitions: one batch, once."""

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.concurrency import until
from tests.support.messagings import Site, payloads
from txaware.auth import Principal
from txaware.errors import Unavailable
from txaware.messaging import Messaging
from txaware.model.interfaces import OrderedTable
from txaware.model.messages import Outgoing
from txaware.model.partitions import partition_of
from txaware.model.producers import KeyReused, ProducerIdentity
from txaware.service.producers.sequences import SequenceKey, Turn

pytestmark = pytest.mark.in_process
PARTITIONS = 3
KEYED = ProducerIdentity(77, by_client=True)
ANN = Principal(name="ann")
SENT = [Outgoing(b"%d" % number, b"key-%d" % (number % 7)) for number in range(30)]


@pytest.fixture
def parts(site: Site) -> Messaging:
    site.messaging.create_topic("orders", partitions=PARTITIONS)
    return site.messaging


def publish(site: Site, messages: Sequence[Any], topic: str = "orders") -> None:
    site.producing.publish_alone(topic, messages, producer=KEYED, caller=ANN)


def of_partition(number: int) -> list[Outgoing]:
    return [one for one in SENT if partition_of(one.key or b"", PARTITIONS) == number]


def found(messaging: Messaging) -> dict[int, list[bytes]]:
    """What is in each partition, in its order."""
    return {
        number: payloads(messaging.poll(f"orders.{number}", limit=1000))
        for number in range(PARTITIONS)
    }


def wanted(*numbers: int) -> dict[int, list[bytes]]:
    return {
        number: [one.payload for one in of_partition(number)] * (number in numbers)
        for number in range(PARTITIONS)
    }


def key_of(site: Site, number: int) -> SequenceKey:
    place = site.producing._places.at(f"orders.{number}")
    return SequenceKey(KEYED.producer_id, place.topic.topic)


class Submits:
    """The submits of a table, which fail where that is wanted."""

    def __init__(self, table: OrderedTable, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.error: Exception | None = None
        submit = table.submit

        def counted(writes: Any, then: Any = None) -> Any:
            self.count += 1
            if self.error is not None:
                raise self.error
            return submit(writes, then)

        monkeypatch.setattr(table, "submit", counted)


def test_all_partitions_have_one_batch(
    site: Site, parts: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    submits = Submits(site.table, monkeypatch)
    publish(site, SENT)
    assert submits.count == 1
    assert found(parts) == wanted(0, 1, 2)
    publish(site, SENT)
    assert submits.count == 1
    assert found(parts) == wanted(0, 1, 2)


def test_a_repeat_after_a_crash_stores_nothing(lasting: Site) -> None:
    lasting.messaging.create_topic("orders", partitions=PARTITIONS)
    publish(lasting, SENT)
    messaging = lasting.crash()
    publish(lasting, SENT)
    assert found(messaging) == wanted(0, 1, 2)
    (producer,) = messaging.producers()
    described = messaging.describe_producer(producer.producer_id)
    assert len(described.topics) == PARTITIONS
    assert messaging.check().is_clean


@pytest.mark.parametrize("stored", [[0], [1], [2], [0, 2]])
def test_parts_that_are_stored_already_are_not_stored_again(
    site: Site, parts: Messaging, stored: list[int]
) -> None:
    for number in stored:
        publish(site, of_partition(number), f"orders.{number}")
    assert found(parts) == wanted(*stored)
    for _ in range(2):
        publish(site, SENT)
        assert found(parts) == wanted(0, 1, 2)


def test_other_messages_with_the_same_key_are_refused(
    site: Site, parts: Messaging
) -> None:
    publish(site, SENT)
    others = [
        *(SENT[1:], [*SENT, SENT[0]], of_partition(1), SENT[::-1]),
        [*SENT[:-1], Outgoing(b"other", SENT[-1].key)],
    ]
    for other in others:
        with pytest.raises(KeyReused):
            publish(site, other)
    assert found(parts) == wanted(0, 1, 2)


def test_more_partitions_with_the_same_key_store_nothing_where_one_is_another(
    site: Site, parts: Messaging
) -> None:
    publish(site, of_partition(1)[1:], "orders.1")
    with pytest.raises(KeyReused):
        publish(site, SENT)
    assert sum(map(len, found(parts).values())) == len(of_partition(1)) - 1


def test_what_has_no_key_goes_where_it_went(site: Site, parts: Messaging) -> None:
    mixed = [b"loose", *SENT, b"more"]
    for _ in range(4):
        publish(site, mixed)
    counts = Counter(one for part in found(parts).values() for one in part)
    assert counts == Counter([b"loose", b"more", *(one.payload for one in SENT)])


def test_a_batch_that_fails_stores_nothing_and_is_stored_by_the_repeat(
    site: Site, parts: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    submits = Submits(site.table, monkeypatch)
    submits.error = Unavailable("no disk")
    for _ in range(2):
        with pytest.raises(Unavailable, match="no disk"):
            publish(site, SENT)
    assert found(parts) == wanted()
    assert parts.producers() == []
    submits.error = None
    publish(site, SENT)
    assert found(parts) == wanted(0, 1, 2)


def test_parts_stored_before_are_left_while_the_others_wait_for_their_producer(
    site: Site, parts: Messaging
) -> None:
    """Whoever removes a producer has its turn, and waits for what is stored of it."""
    publish(site, of_partition(1), "orders.1")
    sequences, removal, stored = site.producing._sequences, Turn(), Turn()
    sequences.enter_first(KEYED.producer_id, removal)
    thread = threading.Thread(target=publish, args=(site, SENT), daemon=True)
    thread.start()
    one, last = key_of(site, 1), key_of(site, 2)
    assert until(lambda: last in sequences._lines)
    assert until(lambda: sequences._lines[last].free.empty())
    assert sequences.enter_at_once(one, stored)
    stored.leave()
    removal.leave()
    thread.join()
    assert found(parts) == wanted(0, 1, 2)


def test_of_several_shards_a_repeat_stores_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site("leveldb", tmp_path, shards=2)
    site.messaging.create_topic("orders", partitions=PARTITIONS, shards=[1, 0, 1])
    table: Any = site.table
    with monkeypatch.context() as patched:
        submits = Submits(table.store_of(1), patched)
        submits.error = Unavailable("no disk")
        with pytest.raises(Unavailable, match="a part of it is written, and then: no"):
            publish(site, SENT)
    assert found(site.messaging) == wanted(1)
    home, other = (Submits(table.store_of(n), monkeypatch) for n in range(2))
    for _ in range(2):
        publish(site, SENT)
        assert found(site.messaging) == wanted(0, 1, 2)
    assert (home.count, other.count) == (0, 1)
    messaging = site.crash()
    publish(site, SENT)
    assert found(messaging) == wanted(0, 1, 2)
    assert messaging.check().is_clean
    site.close()


def test_a_producer_is_forgotten_after_its_parts_that_are_under_way(
    site: Site, parts: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(site, of_partition(1), "orders.1")
    producing = site.producing
    admitted, go_on = threading.Event(), threading.Event()
    together = producing._publishing.plain_together
    enter_first = producing._sequences.enter_first

    def together_late(parts: Any) -> None:
        admitted.set()
        assert go_on.wait(30)
        together(parts)

    def enter_now(*arguments: Any) -> None:
        go_on.set()
        enter_first(*arguments)

    monkeypatch.setattr(producing._publishing, "plain_together", together_late)
    thread = threading.Thread(target=publish, args=(site, SENT), daemon=True)
    thread.start()
    assert admitted.wait(30)
    monkeypatch.setattr(producing._sequences, "enter_first", enter_now)
    parts.forget_producer(KEYED.producer_id)
    go_on.set()  # a removal that does not wait for them has missed their rows
    thread.join()
    assert found(parts) == wanted(0, 1, 2)
    assert parts.producers() == []
    assert parts.check().is_clean
