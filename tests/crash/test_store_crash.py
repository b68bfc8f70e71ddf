"""What LevelDB's logs may look like after a crash: harmless here, not for everybody."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import txaware
from tests.support.checker import kinds
from tests.support.doubles import Clock
from tests.support.fake_leveldb import FakeDirectory, Log
from tests.support.messagings import committed, payloads
from tests.support.store_load import TOPICS, Client, Notes, Reader, Store, history
from txaware.model.interfaces import Write
from txaware.store.leveldb import LevelDbTable


class Naive(LevelDbTable):
    """Writes the rows of open transactions at once, unsynced, as seems to suffice."""

    def hold(self, pointer: int, writes: Sequence[Write]) -> bool:
        batch = self._leveldb._db.write_batch(sync=False)
        for key, value in writes:
            batch.put(key, value)
        batch.write()
        return True

    def replace_held(self, key: bytes, value: bytes) -> bool:
        return self.hold(0, [(key, value)])


@pytest.mark.parametrize(
    ("kind", "commits", "found"),
    [
        (LevelDbTable, True, set()),
        (LevelDbTable, False, set()),
        (Naive, True, {"lost", "torn"}),
        (Naive, False, set()),  # since a pointer without a record counts as invalid
    ],
)
def test_a_log_that_is_cut_at_its_last_sync_before_a_switch_harms_nothing(
    kind: type[LevelDbTable], commits: bool, found: set[str]
) -> None:
    """A commit without its rows, and rows without the record of their start.

    With `commits` the log is switched between the rows and the commit; else between
    the start and a row of a transaction that is never committed.
    """
    directory, clock, notes = FakeDirectory(), Clock(), Notes()
    store = Store(kind("fake", directory.open, clock_ms=clock), clock)
    client = Client(store, notes, "c", 1)
    client.plain()
    tx = store.coordinator.start_short()
    sent = [("a", "one"), ("b", "two")]
    number = notes.add("began", sent, True, None)
    store.service.publish("a", [b"one"], transaction=tx)
    directory.logs.append(Log())
    store.service.publish("b", [b"two"], transaction=tx)
    if commits:
        notes.add("asked", number)
        store.coordinator.commit(tx)
        notes.add("ended", number, "ok")
    seen: set[str] = set()
    for after in directory.after_a_crash():
        again, later = Store(kind("fake", after.open, clock_ms=clock), clock), Notes()
        readers = [
            Reader(again, later, topic, topic, isolation="committed")
            for topic in TOPICS
        ]
        for reader in readers * 2:
            reader.poll()
        again.close()
        seen |= kinds(*history(notes.events, later.events))
    assert seen == found
    store.close()


def log_of(directory: Path) -> Path:
    """The log that LevelDB writes to."""
    logs = (directory / "rows").glob("*.log")
    return max(logs, key=lambda path: int(path.stem))


@pytest.mark.parametrize("seed", range(3))
def test_a_log_that_ends_anywhere_behind_its_last_sync_is_read_up_to_there(
    seed: int, tmp_path: Path
) -> None:
    """Copies of a real one: what was answered is there, and the next batch whole."""
    chance = random.Random(seed)
    copies: list[tuple[Path, list[bytes]]] = []
    acknowledged: list[bytes] = []
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
        messaging.create_topic("a")
        for number in range(12):
            log = log_of(tmp_path / "data")
            synced = log.stat().st_size
            new = [b"%d %d " % (number, n) + os.urandom(900) for n in range(9)]
            if chance.random() < 0.5:
                messaging.publish("a", new)
            else:
                with messaging.transaction():
                    messaging.publisher("a").publish_all(new)
            copy = tmp_path / str(number)
            shutil.copytree(tmp_path / "data", copy)
            same = log_of(copy)
            assert same.name == log.name, "no log is switched here"
            size = same.stat().st_size
            cut = chance.choice([synced, chance.randrange(synced, size), size])
            os.truncate(same, cut)
            whole = acknowledged + new if cut == size else acknowledged
            copies.append((copy, list(whole)))
            acknowledged += new
    for copy, expected in copies:
        with txaware.connect(f"leveldb:{copy}") as messaging:
            assert committed(messaging, "a") == expected
            last = messaging.bounds("a").last
            messaging.publish("a", [b"new"])
            assert payloads(messaging.poll("a", limit=10_000)) == [*expected, b"new"]
            new_id = messaging.poll("a", limit=10_000)[-1].id
            assert last is None or new_id > last


@pytest.mark.parametrize("hole", [slice(8192, 12288), slice(-4096, None)])
def test_a_power_cut_that_left_a_hole_in_what_was_not_synced_loses_only_that(
    hole: slice, tmp_path: Path
) -> None:
    """Pages of one write reach the disk in any order; nobody was answered yet."""
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
        messaging.create_topic("a")
        messaging.publish("a", [b"answered"])
        messaging.publish("a", [bytes([n]) * 1000 for n in range(1, 31)])
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
    log = log_of(tmp_path / "copy")
    data = bytearray(log.read_bytes())
    data[hole] = bytes(len(data[hole]))
    log.write_bytes(data)
    url = f"leveldb:{tmp_path / 'copy'}"
    with pytest.raises(txaware.StoreCorrupted, match="accept_damage"):
        txaware.connect(url)
    accepting = txaware.Settings(accept_damage=True)
    with txaware.connect(url, settings=accepting) as messaging:
        assert committed(messaging, "a") == [b"answered"]


FULL = """
import resource, sys
import txaware

messaging = txaware.connect("leveldb:" + sys.argv[1])
messaging.create_topic("a")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for number in range(40):
    limited = number % 4 == 3
    if limited:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
    try:
        if number % 8 < 4:
            messaging.publish("a", [b"%d" % number + bytes(1000)])
        else:
            with messaging.transaction():
                messaging.publisher("a").publish(b"%d" % number + bytes(1000))
        outcome = "ok"
    except txaware.Unavailable as error:
        outcome = type(error).__name__
    except txaware.TxAwareError as error:
        outcome = "other " + type(error).__name__
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print(number, outcome, flush=True)
sys.stdout.flush()
import os
os._exit(0)
"""


def test_a_full_disk_refuses_and_works_again_when_there_is_room(tmp_path: Path) -> None:
    """A real one, whose files may not grow."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcomes = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert len(outcomes) == 40
    assert set(outcomes.values()) <= {"ok", "NotWritten", "Unavailable"} | {
        "other TransactionOutcomeUnknown"
    }
    assert sum(outcome != "ok" for outcome in outcomes.values()) >= 5
    assert all(outcomes[str(n)] == "ok" for n in range(40) if n % 4 < 2)
    with txaware.connect(f"leveldb:{tmp_path}") as messaging:
        found = [p[:-1000].decode() for p in committed(messaging, "a")]
    assert found == sorted(set(found), key=int)
    assert {n for n, outcome in outcomes.items() if outcome == "ok"} <= set(found)
    assert not {n for n, outcome in outcomes.items() if outcome == "NotWritten"} & set(
        found
    )
