"""Copies to a real HBase and back: the same rows, digests and places of readers."""

import random
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.cli_runs import PROGRAM, run_json
from tests.support.copy_histories import GROUPS, TOPICS, Play
from tests.support.copying_runs import Reader, rows_of, topics_of
from tests.support.doubles import Clock
from tests.support.hbase_stores import HBaseStores
from tests.support.messagings import table_of
from txaware.messaging import Messaging
from txaware.model.settings import Settings

pytestmark = pytest.mark.hbase

SETTINGS = Settings(janitor_interval_s=0)
STEPS = 400


@pytest.fixture
def places(tmp_path: Path, hbase_stores: HBaseStores) -> Iterator[list[str]]:
    """A directory, HBase twice, and a directory again."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(hbase_stores.lent()) for _ in range(2))
        here, there = (f"leveldb:{tmp_path / name}" for name in ("here", "there"))
        yield [here, first, second, there]


def steps(seed: int) -> Iterator[tuple[Any, ...]]:
    """A long history with all that there can be."""
    choose = random.Random(seed)
    names = "plain publish publish store refer refer save undo commit abort invalidate"
    for number in range(STEPS):
        name = choose.choice([*names.split(), "tick"])
        topic, tx = choose.choice(TOPICS), choose.randrange(3)
        arguments: dict[str, tuple[Any, ...]] = {
            "plain": (topic,),
            "save": (tx, topic, choose.choice(GROUPS)),
            "tick": (1,),
        }
        in_topic = name in ("publish", "store", "refer")
        yield name, *arguments.get(name, (tx, topic) if in_topic else (tx,))
        if number == STEPS // 2:
            yield "delete", TOPICS[0]
            yield "create", TOPICS[0]


def opened(url: str, clock: Clock) -> Messaging:
    return txaware.connect(url, settings=SETTINGS, clock_ms=clock)


def test_there_and_back_with_equal_digests(places: list[str]) -> None:
    clock, digests = Clock(), []
    with opened(places[0], clock) as messaging:
        play = Play(messaging, clock)
        play.run(list(steps(7)))
        play.end_open()
        known = topics_of(table_of(messaging))
        reader = Reader(messaging, messaging.coordinator)
        read = [reader.poll(topic) for topic in TOPICS]
        seen = [reader.seen(topic) for topic in TOPICS]
        saved = [messaging.position(g, t) for g in GROUPS for t in TOPICS]
        assert sum(map(len, read)) > sum(map(len, seen)) > 50
        assert all(saved)
    for source, target in pairwise(places):
        done = txaware.copy(source, target, settings=SETTINGS, clock_ms=clock)
        digests.append(done.digest)
        assert done.left_out_rows == 0
        with opened(target, clock) as copy:
            if target.startswith("leveldb:"):
                assert copy.check().is_clean
            reader = Reader(copy, copy.coordinator)
            assert [reader.poll(topic) for topic in TOPICS] == read
            assert [reader.seen(topic) for topic in TOPICS] == seen
            assert [copy.position(g, t) for g in GROUPS for t in TOPICS] == saved
            assert topics_of(table_of(copy)) == known
            assert len(rows_of(table_of(copy))) == done.rows
    assert len(set(digests)) == 1
    assert txaware.copy(*places[:2], settings=SETTINGS, clock_ms=clock).was_complete


def test_readers_and_writers_go_on_in_hbase(places: list[str]) -> None:
    clock = Clock()
    with opened(places[0], clock) as messaging:
        messaging.create_topic("t")
        with messaging.transaction():
            messaging.publisher("t", buffer_limit_bytes=10).publish(b"stored ahead")
            messaging.publisher("t").publish(b"second")
        with messaging.transaction():
            messaging.consumer("t", group="g").poll(limit=1)
        newest = messaging.poll("t")[-1].id
    txaware.copy(*places[:2], settings=SETTINGS, clock_ms=clock)
    with opened(places[1], clock) as copy:
        with copy.transaction():
            copy.publisher("t").publish(b"third")
        with copy.transaction():
            rest = copy.consumer("t", group="g").poll()
        assert [message.payload for message in rest] == [b"second", b"third"]
        assert rest[-1].id > newest


def test_a_process_that_is_killed_leaves_what_the_next_one_goes_on_with(
    places: list[str],
) -> None:
    here, there = places[:2]
    with txaware.connect(here, settings=SETTINGS) as messaging:
        messaging.create_topic("t")
        for number in range(20):
            messaging.publish("t", [b"%d" % number * 300] * 500)
        last = messaging.bounds("t").last
    after_s = 1.0
    while _killed_after(after_s, "copy", here, there):
        after_s += 0.7
        assert after_s < 60
    (done,) = run_json("copy", here, there)
    assert (done["rows"], done["was_complete"]) == (10_001, True)
    with txaware.connect(there, settings=SETTINGS) as copy:
        assert copy.bounds("t").last == last


def _killed_after(seconds: float, *arguments: str) -> bool:
    """Runs a command for so long; False where it came to its end."""
    with subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.DEVNULL) as process:
        try:
            return process.wait(seconds) != 0
        except subprocess.TimeoutExpired:
            process.kill()
            return True
