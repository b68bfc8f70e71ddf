"""Queues beside a real Tephra, which another process might stop at any moment."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from coordinator.interfaces import Coordinator
from tests.support.queues import made, numbered, popped, taken
from txaware.messaging import Messaging
from txaware.model.settings import Settings

pytestmark = pytest.mark.tephra

SETTINGS = Settings(janitor_interval_s=0)


class Abandoned(Exception):
    """The error of a worker."""


@pytest.fixture(params=["memory", "leveldb", "http"])
def messaging(
    request: pytest.FixtureRequest, tmp_path: Path, either_tephra: Coordinator
) -> Iterator[Messaging]:
    url = f"leveldb:{tmp_path / 'data'}" if request.param == "leveldb" else "memory:"
    with txaware.connect(url, coordinator=either_tephra, settings=SETTINGS) as opened:
        if request.param != "http":
            yield opened
            return
        with opened.serve() as server, txaware.connect(server.url) as client:
            yield client


def test_a_step_from_queue_to_queue_happens_once(messaging: Messaging) -> None:
    first, second = made(messaging, "first"), made(messaging, "second")
    with messaging.transaction():
        first.push_all(numbered(3))
    tries = 0
    while first.stats().depth:
        tries += 1
        try:
            with messaging.transaction():
                job = popped(first)
                second.push(job.payload)
                if job.deliveries == 1:
                    raise Abandoned
        except Abandoned:
            continue
    assert tries == 6
    assert sorted(taken(second)) == numbered(3)
    stats = first.stats()
    assert (stats.pushed, stats.committed, stats.in_work) == (3, 3, 0)


def test_what_is_rolled_back_is_not_pushed(messaging: Messaging) -> None:
    queue = made(messaging)
    with pytest.raises(Abandoned):
        push_and_raise(messaging)
    queue.push(b"a")
    assert taken(queue) == [b"a"]
    assert (queue.stats().pushed, queue.stats().depth) == (1, 0)


def test_a_transaction_that_somebody_invalidates_gives_its_jobs_back(
    messaging: Messaging,
) -> None:
    queue = made(messaging)
    queue.push(b"a")
    with pytest.raises(txaware.TransactionRefused):
        pop_and_lose(messaging)
    job = popped(queue)
    assert (job.payload, job.deliveries) == (b"a", 2)
    job.commit()


def pop_and_lose(messaging: Messaging) -> None:
    """Pops in a transaction that somebody else ends meanwhile."""
    with messaging.transaction() as context:
        popped(messaging.queue("mail"))
        messaging.coordinator.invalidate(context.transaction)


def push_and_raise(messaging: Messaging) -> None:
    """Pushes in a transaction whose block raises."""
    with messaging.transaction():
        messaging.queue("mail").push(b"never")
        raise Abandoned
