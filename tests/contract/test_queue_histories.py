"""Histories of queues: workers work, pause past their lease, die, and roll back."""

import random
from collections import Counter

import pytest

from tests.support.messagings import Site
from txaware.errors import LeaseLost
from txaware.queue import Job, Queue
from txaware.service.queue import loading, pushing

STEPS = 250
# Where each step waits for a server, there are fewer.
STEPS_OF_A_SERVER = 80
SERVERS = ("hbase", "http")


class Abandoned(Exception):
    """The error of a worker that gives up in a transaction."""


class History:
    """Random steps of pushers and workers, and what has to be true after each."""

    def __init__(self, site: Site, seed: int, *, max_pop_width: int = 100) -> None:
        self.site = site
        self.choose = random.Random(seed)
        self.pushed: list[bytes] = []
        self.done: Counter[bytes] = Counter()
        self.held: list[Job] = []
        self.rolled_back = 0
        self.steps = STEPS_OF_A_SERVER if site.kind in SERVERS else STEPS
        site.messaging.create_queue(
            "mail", lease_s=10, max_pushes_per_pipe=4, max_pop_width=max_pop_width
        )
        site.messaging.create_queue("done")

    @property
    def queue(self) -> Queue:
        return self.site.messaging.queue("mail")

    def payload(self) -> bytes:
        self.pushed.append(f"item {len(self.pushed)}".encode())
        return self.pushed[-1]

    def push(self) -> None:
        self.queue.push(
            self.payload(),
            delay_s=self.choose.choice((0, 0, 0, 3)),
            priority=self.choose.choice((0, 0, 5)),
        )

    def push_all(self) -> None:
        self.queue.push_all([self.payload() for _ in range(self.choose.randint(2, 9))])

    def push_within(self) -> None:
        kept = len(self.pushed)
        try:
            with self.site.messaging.transaction():
                for _ in range(self.choose.randint(1, 5)):
                    self.queue.push(self.payload())
                if self.choose.random() < 0.3:
                    raise Abandoned
        except Abandoned:
            del self.pushed[kept:]

    def pop(self) -> None:
        self.held += self.queue.pop_many(self.choose.randint(1, 3))

    def _one_of_held(self) -> Job | None:
        if not self.held:
            return None
        return self.held.pop(self.choose.randrange(len(self.held)))

    def commit(self) -> None:
        job = self._one_of_held()
        if job is None:
            return
        try:
            job.commit()
        except LeaseLost:
            return
        self.done[job.payload] += 1

    def commit_by_pop(self) -> None:
        """Has a pop commit a job, as workers do; it may find none."""
        job = self._one_of_held()
        if job is None:
            return
        try:
            self.held += self.queue.pop_many(self.choose.randint(1, 2), commits=job)
        except LeaseLost:
            return
        self.done[job.payload] += 1

    def roll_back(self) -> None:
        job = self._one_of_held()
        if job is None:
            return
        try:
            job.rollback(delay_s=self.choose.choice((0, 2)))
        except LeaseLost:
            return

    def work_within(self) -> None:
        """Pops, works, and pushes on, all in one transaction."""
        found: list[bytes] = []
        try:
            with self.site.messaging.transaction():
                for job in self.queue.pop_many(2):
                    found.append(job.payload)
                    self.site.messaging.queue("done").push(job.payload)
                if self.choose.random() < 0.4:
                    raise Abandoned
        except Abandoned:
            return
        self.done.update(found)

    def pause(self) -> None:
        self.site.clock.advance_s(self.choose.choice((0.5, 2, 11)))

    def clean_up(self) -> None:
        self.site.messaging.clean_up()

    def die(self) -> None:
        self.site.crash()
        self.held.clear()

    def check(self) -> None:
        """Every item is done once, or waits, or is in work; the counts reconcile."""
        stats = self.queue.stats()
        assert not [item for item, times in self.done.items() if times > 1]
        assert stats.pushed == len(self.pushed)
        assert stats.committed == len(self.done)
        assert stats.depth + stats.in_work == len(self.pushed) - len(self.done)
        assert len(self.queue.peek(10_000)) == stats.depth - stats.delayed
        ended = stats.committed + stats.rolled_back + stats.expired_leases
        assert stats.popped == ended + stats.in_work

    def run(self, *, dies: bool, check_every: int = 1) -> None:
        acts = [
            self.push,
            self.push_all,
            self.push_within,
            self.pop,
            self.commit,
            self.commit_by_pop,
        ]
        acts += [self.roll_back, self.work_within, self.pause]
        for number in range(self.steps):
            self.choose.choice(acts)()
            if number % 50 == 25:
                self.clean_up()
            if dies and number % 60 == 55:
                self.die()
            if not number % check_every:
                self.check()

    def drain(self) -> None:
        """Does what is left; then everything was done exactly once."""
        self.site.clock.advance_s(60)
        while (job := self.queue.pop()) is not None:
            job.commit()
            self.done[job.payload] += 1
        self.check()
        assert self.done == Counter(self.pushed)


@pytest.mark.parametrize("seed", range(4))
def test_each_item_of_a_history_is_done_once(site: Site, seed: int) -> None:
    history = History(site, seed)
    history.run(dies=False)
    history.drain()


@pytest.mark.parametrize("seed", range(4))
def test_each_item_is_done_once_although_the_process_dies(
    lasting: Site, seed: int
) -> None:
    history = History(lasting, seed)
    history.run(dies=True)
    history.drain()
    history.clean_up()
    assert lasting.messaging.check().problems == ()


@pytest.mark.parametrize("seed", range(8))
def test_each_item_is_done_once_with_pipes_read_one_by_one(
    lasting: Site, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check reads all pipes; between two of them most of them rest."""
    for name in ("FIRST_ROWS", "PIECE_ROWS", "COUNTED_ROWS"):
        monkeypatch.setattr(loading, name, 2)
    monkeypatch.setattr(pushing, "MOST_OPEN", 2)
    history = History(lasting, seed, max_pop_width=2)
    history.run(dies=True, check_every=25)
    history.drain()
    history.clean_up()
    assert lasting.messaging.check().problems == ()
