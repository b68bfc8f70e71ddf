"""Copies and backups of stores with queues: what waits, and what comes again."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import txaware
from tests.support.messagings import Site
from tests.support.queues import popped, taken, waiting
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.service.check.checking import check_directory
from txaware.service.transfer.backup import restore

SETTINGS = Settings(janitor_interval_s=0)


def backed_up(site: Site, directory: Path) -> None:
    """A backup of the store in use, restored."""
    file = io.BytesIO()
    site.messaging.backup(file)
    file.seek(0)
    restore(file, directory, SETTINGS, clock_ms=site.clock)


def copied(site: Site, directory: Path) -> None:
    """A copy of the store, made while nobody has it."""
    site.close()
    txaware.copy(
        f"leveldb:{site.directory}",
        f"leveldb:{directory}",
        settings=SETTINGS,
        clock_ms=site.clock,
    )


@contextmanager
def opened(site: Site, directory: Path) -> Iterator[Messaging]:
    report = check_directory(directory, SETTINGS)
    assert report.is_clean, report.problems
    url = f"leveldb:{directory}"
    with txaware.connect(url, settings=SETTINGS, clock_ms=site.clock) as messaging:
        yield messaging


@pytest.mark.parametrize("made", [backed_up, copied])
def test_what_waits_is_in_the_copy_and_what_was_in_work_comes_again(
    durable: Site, tmp_path: Path, made: object
) -> None:
    messaging = durable.messaging
    messaging.create_queue("mail", lease_s=60, max_deliveries=5)
    mail = messaging.queue("mail")
    mail.push_all([b"done", b"done in a transaction", b"in work", b"waits"])
    mail.push(b"urgent", priority=9, key=b"k", headers={"h": b"v"})
    mail.push(b"later", delay_s=3600)
    with messaging.transaction():
        mail.push(b"committed")
    jobs = {job.payload: job for job in mail.pop_many(5)}
    assert {b"urgent", b"done", b"done in a transaction", b"in work"} <= jobs.keys()
    jobs[b"done"].commit()
    with messaging.transaction():
        jobs[b"done in a transaction"].commit()
    jobs[b"urgent"].rollback(error="not now")
    open_one = messaging.coordinator.start_short()
    pipe = messaging._parts.queues.pipe_for("mail", transaction=open_one)
    messaging.publish(pipe, [b"open"], transaction=open_one)
    before = mail.stats()
    directory = tmp_path / "other"
    made(durable, directory)  # type: ignore[operator]
    with opened(durable, directory) as other:
        queue = other.queue("mail")
        assert queue.descriptor.max_deliveries == 5
        now = queue.stats()
        assert (now.in_work, now.delayed) == (0, 1)
        assert now.depth == before.depth + before.in_work
        assert (now.pushed, now.popped) == (before.pushed, before.popped)
        assert (now.committed, now.rolled_back) == (2, 1)
        assert now.expired_leases == before.in_work
        found = {item.payload: item for item in queue.peek()}
        assert found[b"in work"].deliveries == 1
        urgent = found[b"urgent"]
        assert (urgent.key, dict(urgent.headers)) == (b"k", {"h": b"v"})
        assert sorted(taken(queue)) == [b"committed", b"in work", b"urgent", b"waits"]
        durable.clock.advance_s(3601)
        assert taken(queue) == [b"later"]
        queue.push(b"new")
        assert waiting(queue) == [b"new"]


@pytest.mark.parametrize("made", [backed_up, copied])
def test_an_item_that_was_popped_too_often_is_a_dead_letter_in_the_copy(
    durable: Site, tmp_path: Path, made: object
) -> None:
    messaging = durable.messaging
    messaging.create_queue("mail", max_deliveries=1)
    messaging.queue("mail").push(b"killer")
    popped(messaging.queue("mail"))  # its worker dies with the store
    directory = tmp_path / "other"
    made(durable, directory)  # type: ignore[operator]
    with opened(durable, directory) as other:
        assert other.queue("mail").pop() is None
        [letter] = other.queue("mail-dead").peek()
        assert (letter.payload, letter.headers["deliveries"]) == (b"killer", b"1")
        assert other.queue("mail").redrive() == 1
        assert waiting(other.queue("mail")) == [b"killer"]
