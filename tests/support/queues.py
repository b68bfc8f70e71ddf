"""Queues for tests: what waits, and workers that take all of it."""

import pytest

from tests.support.messagings import Site
from txaware.messaging import Messaging
from txaware.queue import Job, Popper, Queue


def taken(queue: Popper, limit: int = 10_000) -> list[bytes]:
    """Pops and commits one job after the other; returns their payloads."""
    found: list[bytes] = []
    while len(found) < limit and (job := queue.pop()) is not None:
        found.append(job.payload)
        job.commit()
    return found


def popped(queue: Popper) -> Job:
    """Pops a job that is there."""
    job = queue.pop()
    assert job is not None
    return job


def waiting(queue: Queue) -> list[bytes]:
    """The payloads of what waits, the oldest first."""
    return [item.payload for item in queue.peek(10_000)]


def numbered(count: int, prefix: str = "m") -> list[bytes]:
    """So many payloads, all different."""
    return [f"{prefix}{number}".encode() for number in range(count)]


@pytest.fixture
def mail(site: Site) -> Queue:
    """An empty queue, in every implementation in turn."""
    return made(site.messaging)


def made(messaging: Messaging, name: str = "mail") -> Queue:
    """A new queue with the usual settings."""
    messaging.create_queue(name)
    return messaging.queue(name)
