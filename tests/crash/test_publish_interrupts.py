"""Ctrl-C at any moment of a transaction with messages: all are seen, or none."""

import random
import signal
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path

import pytest

import txaware
from coordinator.context import TransactionContext
from tests.support.interrupts import (
    Interrupted,
    Moments,
    elsewhere,
    interrupted_at,
    places,
)
from txaware.publish import Publisher
from txaware.service.producers import sequences

ROUNDS = 300


def publish(messaging: txaware.Messaging, tx: TransactionContext, number: int) -> None:
    """Ten messages to each of two topics; those to the second are stored first."""
    with tx:
        for topic, limit_bytes in (("a", 1 << 20), ("b", 200)):
            Publisher(
                messaging._service,
                messaging.coordinator,
                topic,
                buffer_limit_bytes=limit_bytes,
                message_limit_bytes=1 << 20,
                shares_journal=True,
            ).publish_all(b"%d %d" % (number, place) for place in range(10))


# An interrupt in a generator that is being thrown away is reported there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_leaves_all_messages_or_none(tmp_path: Path) -> None:
    moments = Moments(random.Random())
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
        messaging.create_topic("a")
        messaging.create_topic("b")
        for number in range(ROUNDS):
            tx = messaging.transaction()
            # A place of its own: an interrupt on the way into the block leaves the
            # transaction open there.
            work = partial(copy_context().run, publish, messaging, tx, number)
            with suppress(Interrupted, txaware.TxAwareError, RuntimeError):
                moments.interrupt(work)
            with suppress(Interrupted):
                signal.setitimer(signal.ITIMER_REAL, 0)
            if tx._tx is not None:
                messaging.coordinator.invalidate(tx._tx)
        seen = messages_seen(messaging)
    for number in range(ROUNDS):
        whole = [b"%d %d" % (number, place) for place in range(10)]
        assert seen.get(number, []) in ([], whole + whole), number
    assert 10 < len(seen) < ROUNDS - 10, "the interrupts came too early, or too late"


def messages_seen(messaging: txaware.Messaging) -> dict[int, list[bytes]]:
    """What a transaction that begins now reads of each round."""
    found: dict[int, list[bytes]] = {}
    snapshot = messaging.coordinator.snapshot()
    for topic in ("a", "b"):
        page = messaging.poll(topic, transaction=snapshot, limit=10 * ROUNDS)
        assert page.blocked_by is None
        for message in page:
            number = int(message.payload.split()[0])
            found.setdefault(number, []).append(message.payload)
    return found


def test_an_interrupt_at_any_place_of_a_producer_hangs_nobody_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequences, "LOOK_S", 0.001)

    def interrupt(place: int) -> bool:
        done: list[bytes] = []
        settings = txaware.Settings(janitor_interval_s=0)
        with txaware.connect("memory:", settings=settings) as messaging:
            messaging.create_topic("a")
            producer = messaging.producer()

            def call() -> None:
                for payload in (b"1", b"2"):
                    producer.publish("a", [payload])
                    done.append(payload)

            found = interrupted_at(place, call)
            assert elsewhere(lambda: producer.publish("a", [b"later"])), place
            seen = [message.payload for message in messaging.poll("a")]
        assert seen[-1] == b"later", place
        assert seen[:-1] in ([b"1", b"2"], [b"1"], []), place
        assert done == seen[: len(done)], place
        return found

    assert places(interrupt) > 100
