"""What clients of Kafka rely on, in every store: fences, late calls, hung rows."""

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.errors import TransactionNotInProgress
from coordinator.transaction import Status
from tests.support.cli_runs import run, run_json
from tests.support.messagings import committed, publish
from txaware.consume.consumer import Consumer
from txaware.errors import MisusedTransaction, ProducerFenced
from txaware.messaging import Messaging
from txaware.publish.producer_states import State
from txaware.publish.transactional_producer import TransactionalProducer

FOREIGN = 6  # a pointer that no coordinator of a store has given out

FENCED: dict[str, Callable[[TransactionalProducer, Consumer], object]] = {
    "begin": lambda producer, _: producer.begin(),
    "publish": lambda producer, _: producer.publish("t", [b"late"]),
    "publish to another topic": lambda producer, _: producer.publish("u", [b"late"]),
    "save_positions": lambda producer, consumer: producer.save_positions(consumer),
    "commit": lambda producer, _: producer.commit(),
    "abort": lambda producer, _: producer.abort(),
}


@pytest.mark.parametrize("late", FENCED)
def test_after_a_newer_instance_every_call_of_the_older_is_fenced(
    messaging: Messaging, late: str
) -> None:
    """Scenario 91. What was open is undone, whatever the older one tries."""
    messaging.create_topic("u")
    messaging.publish("u", [b"read"])
    consumer = messaging.consumer("u", group="g")
    old: Any = messaging.producer("p")
    consumer.poll()
    old.begin()
    old.publish("t", [b"old"])
    old.save_positions(consumer)
    new = messaging.producer("p")
    with pytest.raises(ProducerFenced):
        old.commit()
    with pytest.raises(ProducerFenced):
        FENCED[late](old, consumer)
    assert committed(messaging) == []
    assert committed(messaging, "u") == [b"read"]
    assert messaging.position("g", "u") is None
    with new.transaction():
        new.publish("t", [b"new"])
    assert (committed(messaging), new.commits) == ([b"new"], 1)


def test_a_commit_whose_answer_was_lost_is_sent_again(messaging: Messaging) -> None:
    """Scenario 95: it is found to have happened, and counts once."""
    producer: Any = messaging.producer("p")
    producer.begin()
    producer.publish("t", [b"m"])
    context = producer._context
    producer.commit()
    context.status, producer._is_over = Status.UNKNOWN, False  # as if nobody heard
    assert producer.state is State.UNKNOWN
    with pytest.raises(MisusedTransaction):
        producer.abort()  # nobody may undo what may be visible
    producer.commit()
    with pytest.raises(MisusedTransaction):
        producer.commit()  # there is none any more
    assert (committed(messaging), producer.commits) == ([b"m"], 1)


def test_an_abort_after_the_commit_is_refused_and_changes_nothing(
    messaging: Messaging,
) -> None:
    """Scenario 95, by the verb and by the coordinator's call."""
    producer: Any = messaging.producer("p")
    producer.begin()
    producer.publish("t", [b"m"])
    tx = producer._context.transaction
    producer.commit()
    with pytest.raises(MisusedTransaction):
        producer.abort()
    messaging.coordinator.abort(tx)
    assert not messaging.coordinator.invalidate(tx)
    assert committed(messaging) == [b"m"]
    with pytest.raises(TransactionNotInProgress):
        messaging.coordinator.commit(tx)
    assert (committed(messaging), producer.commits) == ([b"m"], 1)


@pytest.mark.foreign_pointers
def test_rows_that_hang_by_force_are_found_and_released(messaging: Messaging) -> None:
    """Scenario 98: readers go on once it is aborted; a healthy long one is left."""

    def hanging() -> list[int]:
        command = ("transactions", "find-hanging", "--older-than", "0")
        return [one["transaction"] for one in run_json(*command, obj=messaging)]

    healthy = messaging.coordinator.start_long()
    publish(messaging, b"hangs", transaction=FOREIGN)
    messaging.publish("t", [b"behind"])
    stuck = messaging.bounds("t", isolation="committed")
    assert stuck.next == messaging.poll("t")[0].id
    assert committed(messaging) == []
    assert hanging() == [FOREIGN]
    run("transactions", "abort", str(FOREIGN), obj=messaging)
    assert hanging() == []
    assert committed(messaging) == [b"behind"]
    assert messaging.bounds("t", isolation="committed") != stuck
    assert messaging.coordinator.snapshot().is_in_progress(healthy.transaction_id)
    messaging.coordinator.abort(healthy)
