"""The messaging core beside a real Tephra, whose pointers are taken as they come."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from coordinator.interfaces import Coordinator
from tests.support.messagings import HBASE, payloads
from txaware.errors import BadRequest
from txaware.messaging import Messaging
from txaware.model.settings import Settings

pytestmark = pytest.mark.tephra

SETTINGS = Settings(janitor_interval_s=0)


@pytest.fixture(params=["memory", "leveldb", HBASE])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "hbase":
        return str(request.getfixturevalue("hbase_url"))
    return "memory:" if request.param == "memory" else f"leveldb:{tmp_path / 'data'}"


@pytest.fixture
def messaging(url: str, either_tephra: Coordinator) -> Iterator[Messaging]:
    with txaware.connect(url, coordinator=either_tephra, settings=SETTINGS) as opened:
        opened.create_topic("t")
        yield opened


def test_a_transaction_of_tephra_commits_messages_and_positions(
    messaging: Messaging,
) -> None:
    with messaging.transaction():
        publisher = messaging.publisher("t", buffer_limit_bytes=300)
        for number in range(10):
            publisher.publish(b"%d" % number)
    with messaging.transaction():
        first = messaging.consumer("t", group="g").poll(limit=4)
    with messaging.transaction():
        rest = messaging.consumer("t", group="g").poll()
    assert payloads([*first, *rest]) == [b"%d" % number for number in range(10)]


def test_nothing_is_prepared_and_a_sentence_says_why(messaging: Messaging) -> None:
    def run() -> None:
        with messaging.transaction() as tx:
            messaging.publisher("t").publish(b"never")
            tx.prepare("p")

    for call in (run, messaging.prepared, lambda: messaging.commit_prepared("p")):
        with pytest.raises(BadRequest, match="a Tephra has no such state"):
            call()
    assert payloads(messaging.poll("t", isolation="committed")) == []


def test_what_is_rolled_back_is_seen_by_nobody(messaging: Messaging) -> None:
    def fail() -> None:
        messaging.publisher("t").publish(b"never")
        messaging.publish("t", [b"nor this"], transaction=tx.transaction)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), messaging.transaction() as tx:
        fail()
    messaging.publish("t", [b"plain"])
    assert payloads(messaging.poll("t", isolation="committed")) == [b"plain"]


def test_an_open_transaction_of_tephra_is_the_last_stable_position(
    messaging: Messaging,
) -> None:
    tx = messaging.coordinator.start_short()
    messaging.publish("t", [b"a"])
    messaging.publish("t", [b"open"], transaction=tx)
    messaging.publish("t", [b"b"])
    a, open_, b = (row.id for row in messaging.peek("t"))
    found = messaging.bounds("t", isolation="committed")
    assert (found.first, found.last, found.next) == (a, a, open_)
    consumer = messaging.consumer("t", start="next")
    messaging.coordinator.invalidate(tx)
    found = messaging.bounds("t", isolation="committed")
    assert (found.first, found.last) == (a, b)
    assert payloads(consumer.poll()) == [b"b"]


def test_a_consumer_waits_for_a_commit_that_nobody_tells_of(
    messaging: Messaging,
) -> None:
    tx = messaging.coordinator.start_short()
    messaging.publish("t", [b"m"], transaction=tx)
    consumer = messaging.consumer("t")
    assert not consumer.wait(0.05)
    assert messaging.poll("t", isolation="committed").blocked_by is not None
    timer = threading.Timer(0.1, messaging.coordinator.commit, [tx])
    messaging.coordinator.can_commit(tx, [])
    timer.start()
    assert consumer.wait(30)
    timer.join()
    assert payloads(consumer.poll()) == [b"m"]


def test_an_invalid_transaction_stays_hidden_and_is_pruned_only_when_told(
    messaging: Messaging,
) -> None:
    tx = messaging.coordinator.start_short()
    messaging.publish("t", [b"never"], transaction=tx)
    messaging.coordinator.invalidate(tx)
    assert not messaging.poll("t", isolation="committed")
    assert messaging.clean_up().marked_rows == 1
    assert messaging.prune().pruned == 0
    assert messaging.poll("t", isolation="committed") == []


def test_data_of_one_coordinator_is_not_opened_with_another(
    tmp_path: Path, either_tephra: Coordinator
) -> None:
    url = f"leveldb:{tmp_path / 'data'}"
    txaware.connect(url, coordinator=either_tephra, settings=SETTINGS).close()
    with pytest.raises(txaware.BadRequest, match="would confuse"):
        txaware.connect(url, settings=SETTINGS)
    txaware.connect(url, coordinator=either_tephra, settings=SETTINGS).close()
