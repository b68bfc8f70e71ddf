"""A process that stops at any call to HBase leaves each batch whole, or none of it."""

import random
from collections.abc import Callable, Iterator

import pytest

from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.fake_leveldb import Crash
from tests.support.hbase_faults import (
    Fault,
    Request,
    answer_lost,
    comes_late,
    crash,
    in_part,
    not_sent,
)
from tests.support.hbase_owners import Contents, Owner, close, contents, made
from txaware.model.interfaces import Write
from txaware.store.hbase import redo, writing
from txaware.store.hbase.database import HBaseDatabase
from txaware.store.keys import MESSAGE, PAYLOAD, TOPIC, row_key

DATA = b"ns:t:\0\0\0\1"
FAULTS: list[Callable[[random.Random], Fault]] = [
    lambda chance: not_sent,
    lambda chance: answer_lost,
    lambda chance: comes_late,
    in_part,
]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of a few pieces, and batches of a few calls."""
    monkeypatch.setattr(redo, "INLINE_BYTES", 100)
    monkeypatch.setattr(redo, "PIECE_BYTES", 150)
    monkeypatch.setattr(writing, "CALL_ROWS", 3)


def workload() -> list[list[Write]]:
    """Batches that put, overwrite and delete, some of them too large for the head."""
    messages = [MESSAGE + DATA + row_key(1_700_000_000_000, n) for n in range(9)]
    payloads = [PAYLOAD + DATA + bytes(8) + row_key(1, n) for n in range(4)]
    topic = TOPIC + b"ns:t"
    return [
        [(topic, b"first"), (messages[0], b"\0one")],
        [(key, b"\0two" + bytes(30)) for key in messages[1:6]],
        [(messages[0], None), (messages[1], b"\0overwritten"), (topic, b"second")],
        [(key, b"\0three" + bytes(60)) for key in (*messages[4:9], *payloads)],
        [(key, b"\0four" + bytes(90)) for key in (*messages[:3], *payloads)],
        [(key, None) for key in (*messages[2:7], *payloads[:2])],
        [(topic, None), (messages[3], b"\0back")],
    ]


def states(batches: list[list[Write]]) -> Iterator[Contents]:
    """What is there after none of them, one of them, and so on."""
    found: Contents = {}
    yield dict(found)
    for batch in batches:
        for key, value in batch:
            found.pop(key, None)
            if value is not None:
                found[key] = value
        yield dict(found)


def write(database: HBaseDatabase, number: int, writes: list[Write]) -> None:
    batch = database.batch(number)
    for key, value in writes:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)
    batch.write()


def run(owner: Owner, batches: list[list[Write]]) -> int:
    """Writes batches until the process crashes; answers how many it was told of."""
    told, database = 0, None
    try:
        database = owner.database()
        for number, writes in enumerate(batches, 1):
            owner.clock.advance_s(0.001)
            write(database, number, writes)
            told = number
        database.close()
    except Crash:
        pass
    finally:
        close(database)
    return told


def at(number: int, fault: Fault) -> Callable[[int, Request], Fault | None]:
    return lambda now, request: fault if now == number else None


@pytest.mark.parametrize("kind", range(len(FAULTS)))
def test_a_crash_at_any_call_leaves_the_store_as_before_or_after_a_batch(
    kind: int, every: Callable[[int], Iterator[int]]
) -> None:
    """And nothing that comes late changes it, however late, in whatever order."""
    batches = workload()
    wanted = list(states(batches))
    for crash_at in every(0):
        chance = random.Random(f"{kind} {crash_at}")
        hbase, clock = made(FakeHBase(Clock())), Clock()
        owner = Owner(hbase, clock)
        owner.way.fault = at(crash_at, crash(FAULTS[kind](chance)))
        told = run(owner, batches)
        if not owner.way.crashed:
            break
        clock.advance_s(chance.choice([-3600, 0, 0, 1]))
        successor = Owner(hbase, clock).database()
        last = successor.last_batch
        assert last in (told, told + 1)
        assert contents(successor) == wanted[last]
        go_on(successor, batches[last:], wanted[last:], chance, hbase)
        assert_all_is_kept(hbase, clock, wanted[-1])
    assert crash_at > 30, "the load calls too seldom to be a test"


def go_on(
    database: HBaseDatabase,
    batches: list[list[Write]],
    wanted: list[Contents],
    chance: random.Random,
    hbase: FakeHBase,
) -> None:
    """Writes the rest, while what is late comes in any order."""
    for number, writes in enumerate([[], *batches]):
        while hbase.late and chance.random() < 0.7:
            hbase.arrive(chance.randrange(len(hbase.late)))
            assert contents(database) == wanted[max(0, number - 1)]
        if chance.random() < 0.3:
            hbase.flush()
        if number:
            write(database, database.last_batch + 1, writes)
        assert contents(database) == wanted[number]
    close(database)


def assert_all_is_kept(hbase: FakeHBase, clock: Clock, wanted: Contents) -> None:
    while hbase.late:
        hbase.arrive()
    again = Owner(hbase, clock).database()
    assert contents(again) == wanted
    close(again)


@pytest.mark.parametrize("kind", range(len(FAULTS)))
def test_a_successor_that_crashes_at_any_call_leaves_the_store_to_the_next(
    kind: int, every: Callable[[int], Iterator[int]]
) -> None:
    batches = workload()[:5]
    wanted = list(states(batches))
    lengths = []
    for left_at in (30, 44, 60):
        for crash_at in every(0):
            chance = random.Random(f"{kind} {left_at} {crash_at}")
            hbase, clock = made(FakeHBase(Clock())), Clock()
            first = Owner(hbase, clock)
            first.way.fault = at(left_at, crash(in_part(chance)))
            told = run(first, batches)
            second = Owner(hbase, clock)
            second.way.fault = at(crash_at, crash(FAULTS[kind](chance)))
            run(second, [])
            third = Owner(hbase, clock).database()
            last = third.last_batch
            assert last in (told, told + 1)
            go_on(third, batches[last:], wanted[last:], chance, hbase)
            assert_all_is_kept(hbase, clock, wanted[-1])
            if not second.way.crashed:
                break
        lengths.append(crash_at)
    assert min(lengths) > 5, "opening calls too seldom to be a test"
