"""The whole service over HBase: what clients were told is true, whatever fails."""

import random
from collections.abc import Callable
from itertools import count

import pytest

from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.hbase_faults import (
    Fault,
    Request,
    answer_lost,
    comes_late,
    crash,
    in_part,
    not_sent,
    refused,
)
from tests.support.hbase_owners import Owner, made
from tests.support.store_lives import JUMPS_S, SYNC_LIMIT_BYTES, Life, check, look
from tests.support.store_load import Event, Notes, Reader, Store
from txaware.errors import Unavailable
from txaware.store.hbase import redo, writing

Faults = Callable[[int, Request], Fault | None]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of a few pieces, and batches of a few calls."""
    monkeypatch.setattr(redo, "INLINE_BYTES", 200)
    monkeypatch.setattr(redo, "PIECE_BYTES", 400)
    monkeypatch.setattr(writing, "CALL_ROWS", 3)


class Cluster:
    """HBase, and the process that has the store now.

    The coordinator may be elsewhere: that one survives all of them.
    """

    def __init__(self, *, elsewhere: bool = False) -> None:
        self.clock = Clock()
        self.hbase = made(FakeHBase(self.clock))
        self.coordinator = (
            EmbeddedCoordinator(clock_ms=self.clock) if elsewhere else None
        )
        self.owner: Owner | None = None
        self.faults: Faults = lambda number, request: None

    @property
    def crashed(self) -> bool:
        """Whether the process has ended."""
        return self.owner is not None and self.owner.way.crashed

    def open(self, _: object, clock: Clock) -> Store:
        """The store, for a new process."""
        self.owner = Owner(self.hbase, clock, sync_limit_bytes=SYNC_LIMIT_BYTES)
        self.owner.way.fault = self.faults
        return Store(self.owner.table(), clock, elsewhere=self.coordinator)

    def life(self, name: str, steps: int) -> list[Event]:
        """One process, from its opening to its end."""
        life = Life(self, self.clock, name, steps=steps, open_store=self.open)
        return life.run()

    def look(self, name: str = "end") -> list[Event]:
        """What a process without faults finds; what is open elsewhere is ended."""
        self.faults = lambda number, request: None
        if self.coordinator is not None:
            for pointer in self.coordinator.snapshot().in_progress:
                self.coordinator.invalidate(pointer)
        return look(self.open(None, self.clock), name)

    def arrive(self, chance: random.Random) -> None:
        """All that is late comes."""
        while self.hbase.late:
            self.hbase.arrive(chance.randrange(len(self.hbase.late)))
        self.hbase.flush()


def kinds_of_fault(chance: random.Random) -> Fault:
    return chance.choice([not_sent, refused, answer_lost, comes_late, in_part(chance)])


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_crash_at_any_write_keeps_what_was_acknowledged(elsewhere: bool) -> None:
    crashed_at = 0
    for crashed_at in count(0, 5):
        cluster = Cluster(elsewhere=elsewhere)
        chance = random.Random(crashed_at)
        cluster.faults = crash_at(crashed_at + chance.randrange(5), chance)
        events = cluster.life("one", steps=12)
        if not cluster.crashed:
            break
        seen = cluster.look("between")
        cluster.arrive(chance)
        cluster.clock.advance_s(-100)
        again = cluster.life("two", steps=3)
        cluster.arrive(chance)
        check(events, seen, again, cluster.look())
    assert crashed_at > 50, "the load writes too little to be a test"


def crash_at(write: int, chance: random.Random) -> Faults:
    """The process ends at one of its writes."""
    left = [write]

    def faults(number: int, request: Request) -> Fault | None:
        if request.writes:
            left[0] -= 1
            if left[0] < 0:
                return crash(kinds_of_fault(chance))
        return None

    return faults


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_faults_again_and_again_that_end_in_crashes_lose_and_tear_nothing(
    seed: int, elsewhere: bool
) -> None:
    check(*lives(seed, elsewhere=elsewhere))


def lives(seed: int, *, elsewhere: bool = False) -> list[list[Event]]:
    """Processes one after the other, in whose way are faults."""
    chance = random.Random(seed)
    cluster = Cluster(elsewhere=elsewhere)
    found = []
    for number in range(4):
        cluster.faults = by_chance(chance, cluster)
        found.append(cluster.life(f"life {seed} {number} ", steps=30))
        assert cluster.owner is not None
        cluster.owner.way.crashed = True
        cluster.clock.advance_s(chance.choice(JUMPS_S))
        if chance.random() < 0.5:
            cluster.arrive(chance)
    cluster.arrive(chance)
    return [*found, cluster.look()]


def by_chance(chance: random.Random, cluster: Cluster) -> Faults:
    """Calls go wrong now and then, or for a while all or those that put rows."""
    left, busy = [0], [0]

    def faults(number: int, request: Request) -> Fault | None:
        if cluster.hbase.late and chance.random() < 0.02:
            cluster.hbase.arrive(chance.randrange(len(cluster.hbase.late)))
        if left[0]:
            left[0] -= 1
            return not_sent
        if busy[0] and request.name == "mutateRowsTs":  # which can be read
            busy[0] -= 1
            return in_part(chance)
        if chance.randrange(30):
            return None
        left[0], busy[0] = chance.choice([(0, 0), (0, 0), (2, 0), (30, 0), (0, 8)])
        return kinds_of_fault(chance)

    return faults


def test_no_reader_passes_a_batch_whose_rows_are_not_all_there() -> None:
    """Rows behind it may be in memory, held for their commit."""
    cluster = Cluster()
    store, notes = cluster.open(None, cluster.clock), Notes()
    reader = Reader(store, notes, "r", "a", isolation="uncommitted")
    store.service.publish("a", [b"one"])
    assert reader.poll() == ["one"]
    assert cluster.owner is not None
    cluster.owner.way.fault = lambda number, request: (
        refused if request.name == "mutateRowsTs" else None
    )
    cluster.clock.advance_s(0.001)
    with pytest.raises(Unavailable):
        store.service.publish("a", [b"two"])
    tx = store.coordinator.start_short()
    store.service.publish("a", [b"three"], transaction=tx)
    with pytest.raises(Unavailable):
        reader.poll()
    cluster.owner.way.fault = lambda number, request: None
    assert reader.poll() == ["two", "three"]
    store.coordinator.commit(tx)
    assert not reader.poll()
    store.close()
