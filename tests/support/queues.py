"""Queues for tests: what waits, and workers that take all of it."""

from typing import Any

import pytest

from tests.support.messagings import Site
from txaware.messaging import Messaging
from txaware.model.interfaces import OrderedTable, Row, Write
from txaware.model.messages import MessageId
from txaware.model.queues import row_name
from txaware.model.topics import data_prefix
from txaware.queue import Job, Popper, Queue
from txaware.store.interfaces import pieces
from txaware.store.keys import LEASE, MESSAGE, PIPE, row_key
from txaware.store.queue_table import (
    NO_TIME,
    NOT_FINAL,
    PipeKind,
    PipeRow,
    PopCounts,
    pipe_write,
)

START = MessageId(bytes(20))


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


def rows_of(site: Site, queue: str = "mail") -> dict[bytes, bytes]:
    """All rows of a queue's pipes, items and leases, by their keys."""
    prefix = data_prefix(row_name(queue), 1)
    return {
        tag + prefix + key: value
        for tag in (PIPE, LEASE, MESSAGE)
        for rows in pieces(site.table, tag + prefix)
        for key, value in rows
    }


def fill_pipes(
    table: OrderedTable,
    count: int,
    *,
    queue: str = "mail",
    first: int = 1,
    items: int = 1,
) -> None:
    """Writes the rows of so many pipes, each of a pusher of its own, with items.

    Nobody has used the queue yet. The pipes are as after a crash: each still took
    pushes.
    """
    prefix = data_prefix(row_name(queue), 1)
    for begin in range(first, first + count, 10_000):
        writes: list[Write] = []
        for number in range(begin, min(begin + 10_000, first + count)):
            pipe, row = (
                prefix + number.to_bytes(8, "big"),
                PipeRow(
                    PipeKind.PUSHER,
                    0,
                    number,
                    NO_TIME,
                    NOT_FINAL,
                    number,
                    PopCounts(),
                    START,
                ),
            )
            writes.append(pipe_write(pipe, row))
            writes += [
                (MESSAGE + pipe + row_key(number, item), b"\0%d" % number)
                for item in range(items)
            ]
        table.submit(writes)()


class CountedScans:
    """Counts the scans of a table, and the rows that they answered."""

    def __init__(self, table: OrderedTable, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scans = self.rows = 0
        scan = table.scan

        def counted(*args: Any, **options: Any) -> list[Row]:
            found = scan(*args, **options)
            self.scans += 1
            self.rows += len(found)
            return found

        monkeypatch.setattr(table, "scan", counted)
