"""Copies that are killed, gone on with, damaged, or taken for something else."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

import attrs
import pytest

import txaware
from tests.support.cli_runs import PROGRAM, run_json
from tests.support.concurrency import until
from tests.support.copying_runs import CopyInMemory, Faults
from tests.support.messagings import Site, commit, payloads, publish, table_of
from tests.support.python_process import PythonProcess
from txaware.errors import BadRequest, StoreCorrupted, Unavailable
from txaware.messaging import Messaging
from txaware.model.interfaces import Write
from txaware.model.messages import MessageId
from txaware.model.settings import Settings
from txaware.service.check.checking import check_directory
from txaware.service.transfer import copied_rows as copy_rows
from txaware.service.transfer.copy_state import is_unfinished
from txaware.service.transfer.copying import Copied
from txaware.store.keys import COPY, COPY_PLACE, MESSAGE, TOPIC

HOW = ("lost", "half", "done")
PATIENCE_S = 60


@pytest.fixture(autouse=True)
def small_pieces() -> Iterator[None]:
    with patch.object(copy_rows, "PIECE_ROWS", 2):
        yield


@pytest.fixture(params=["memory", "leveldb"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Messaging]:
    """Rows of every kind, of transactions that ended in every way."""
    site = Site(request.param, tmp_path)
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.create_topic("u")
    start = messaging.coordinator.start_short
    messaging.publish("t", [b"1", b"2", b"3"])
    good, bad, half = (start() for _ in range(3))
    for tx in (good, bad, half):
        publish(messaging, b"message", transaction=tx)
        messaging.store("u", [b"stored", b"ahead"], transaction=tx)
        publish(messaging, transaction=tx, topic="u")
        messaging.save_position("g", "t", MessageId(bytes(20)), transaction=tx)
    commit(messaging, good)
    messaging.coordinator.invalidate(bad)
    messaging.publish("u", [b"last"])
    yield messaging
    site.close()


def whole(source: Messaging) -> tuple[CopyInMemory, Copied]:
    """A copy that nothing came in the way of."""
    target = CopyInMemory()
    return target, target.take(source)


def test_a_copy_that_is_killed_at_any_write_goes_on(source: Messaging) -> None:
    expected, done = whole(source)
    assert expected.writes > 10
    for number in range(1, expected.writes + 1):
        for how in HOW:
            target = CopyInMemory()
            with pytest.raises(Unavailable, match="killed"):
                target.take(source, faults=Faults(number, how))
            again = target.take(source)
            assert attrs.evolve(again, was_complete=False) == done
            assert target.rows() == expected.rows()
            assert target.report().is_clean
            assert target.open().seen("t") == expected.open().seen("t")


def test_a_copy_that_is_killed_at_every_write_comes_to_its_end(
    source: Messaging,
) -> None:
    expected, _ = whole(source)
    target, kills = CopyInMemory(), 0
    while True:
        # Two of them begin each try anew; the third one may get further.
        try:
            target.take(source, faults=Faults(5, HOW[kills % 3]))
            break
        except Unavailable:
            kills += 1
            assert kills < 100
    assert kills > 3
    assert target.rows() == expected.rows()


def test_what_is_there_is_not_written_again(source: Messaging) -> None:
    target = CopyInMemory()
    with pytest.raises(Unavailable):
        target.take(source, faults=Faults(8))
    before = target.writes
    target.take(source)
    expected, _ = whole(source)
    assert target.writes < expected.writes - before + 5


def test_a_copy_that_goes_on_keeps_its_moment(source: Messaging) -> None:
    expected, _ = whole(source)
    target = CopyInMemory()
    with pytest.raises(Unavailable):
        target.take(source, faults=Faults(6, "done"))
    table_of(source).clock.given(table_of(source).clock.now_ms() + 1)
    later = source.coordinator.start_short()
    source.publish("t", [b"later"])
    publish(source, b"later", transaction=later)
    commit(source, later)
    done = target.take(source)
    assert target.rows() == expected.rows()
    assert later.transaction_id in done.undecided


def test_a_copy_that_is_complete_is_recognised_and_left_alone(
    source: Messaging,
) -> None:
    target, done = whole(source)
    before = dict(target.table._values)
    again = target.take(source)
    assert (done.was_complete, again.was_complete) == (False, True)
    assert again == attrs.evolve(done, was_complete=True)
    assert target.writes == 0
    # Also when it is in use since.
    target.table.submit([(TOPIC + b"default:new:", b"{}")])()
    assert target.take(source).was_complete
    assert dict(target.table._values).keys() - before.keys() == {
        TOPIC + b"default:new:"
    }


@pytest.mark.parametrize("fail_at", [6, None])
def test_a_copy_of_something_else_is_not_gone_on_with(
    source: Messaging, fail_at: int | None
) -> None:
    target = CopyInMemory()
    try:
        target.take(source, faults=Faults(fail_at, "done"))
    except Unavailable:
        assert fail_at is not None
    before = dict(target.table._values)
    with txaware.connect("memory:") as other:
        other.create_topic("t")
        with pytest.raises(BadRequest, match="of something else, or its source has"):
            target.take(other)
    assert dict(target.table._values) == before


@pytest.mark.parametrize("damage", ["changed", "gone", "new"])
def test_what_was_damaged_on_the_way_is_noticed(source: Messaging, damage: str) -> None:
    target = CopyInMemory()
    _, done = whole(source)
    before_the_end = whole(source)[0].writes - 1
    with pytest.raises(Unavailable):
        target.take(source, faults=Faults(before_the_end))
    ((key, value),) = target.table.scan(MESSAGE, limit=1)
    damages: dict[str, Write] = {
        "changed": (MESSAGE + key, value + b"!"),
        "gone": (MESSAGE + key, None),
        "new": (MESSAGE + key[:-1] + b"\xff", value),
    }
    target.table.submit([damages[damage]])()
    with pytest.raises(StoreCorrupted, match=f"{done.digest} were written"):
        target.take(source)
    assert is_unfinished(target.table)


@pytest.mark.parametrize(("after_s", "is_noticed"), [(5, False), (5000, True)])
def test_a_store_may_lose_messages_that_have_expired(
    source: Messaging, after_s: int, is_noticed: bool
) -> None:
    message = txaware.Outgoing(b"expires", expire_after_s=after_s)
    source.publish("t", [message, b"stays"])
    target = CopyInMemory()
    with pytest.raises(Unavailable):
        target.take(source, faults=Faults(whole(source)[0].writes - 1))
    expiring = [key for key, value in target.rows() if value.endswith(b"expires")]
    assert len(expiring) == 1
    target.table.submit([(expiring[0], None)])()
    target.clock.advance_s(60)
    if is_noticed:
        with pytest.raises(StoreCorrupted):
            target.take(source)
        return
    done = target.take(source)
    table_of(source).submit([(expiring[0], None)])()
    assert target.take(source) == attrs.evolve(
        done, rows=done.rows - 1, was_complete=True
    )


def test_a_copy_that_is_not_complete_is_not_used(tmp_path: Path) -> None:
    here, there, third = (f"leveldb:{tmp_path / name}" for name in "abc")
    with txaware.connect(here) as messaging:
        messaging.create_topic("t")
    txaware.copy(here, there)
    with txaware.connect(there) as messaging:
        rows = table_of(messaging)
        rows.submit([(COPY_PLACE, None)])()
    with pytest.raises(Unavailable, match="not come to its end; txaware copy, called"):
        txaware.connect(there)
    with pytest.raises(Unavailable, match="not come to its end"):
        txaware.copy(there, third)
    report = check_directory(tmp_path / "b", Settings())
    assert [problem.kind for problem in report.problems] == ["copy"]


@pytest.mark.parametrize(
    ("key", "value"), [(COPY, b"12345678?"), (COPY_PLACE, b"?"), (COPY_PLACE, b"d1")]
)
def test_what_cannot_be_read_of_a_copy_is_said(
    tmp_path: Path, key: bytes, value: bytes
) -> None:
    here, there = (f"leveldb:{tmp_path / name}" for name in "ab")
    with txaware.connect(here) as messaging:
        messaging.create_topic("t")
    txaware.copy(here, there)
    with txaware.connect(there) as messaging:
        table_of(messaging).submit([(key, value)])()
    with pytest.raises(StoreCorrupted, match="cannot be read"):
        txaware.copy(here, there)


def test_progress_rises_to_its_end(source: Messaging) -> None:
    told: list[tuple[int, float | None]] = []
    target = CopyInMemory()
    done = target.take(source, progress=lambda rows, part: told.append((rows, part)))
    assert told == sorted(told)
    rows, part = told[-1]
    assert rows == 2 * done.rows  # written, and read back
    assert part == 1
    parts = [part for _, part in told if part is not None]
    assert parts == sorted(parts)


def test_a_process_that_is_killed_leaves_what_the_next_one_goes_on_with(
    tmp_path: Path,
) -> None:
    here, there = (f"leveldb:{tmp_path / name}" for name in "ab")
    chance = Random(6)
    with txaware.connect(here) as messaging:
        messaging.create_topic("t")
        for _ in range(40):
            # Nothing that compresses: how large the copy is says how far it has come.
            messaging.publish("t", [chance.randbytes(500) for _ in range(500)])
        expected = messaging.bounds("t")
        first = payloads(messaging.poll("t", limit=1))
    was_killed = [
        _killed_at(size_kb << 10, tmp_path / "b", "copy", here, there)
        for size_kb in (100, 3000, 6000)
    ]
    assert any(was_killed)
    unfinished = check_directory(tmp_path / "b", Settings()).problems
    (done,) = run_json("copy", here, there)
    assert (done["rows"], done["was_complete"]) == (20_001, not unfinished)
    assert check_directory(tmp_path / "b", Settings()).is_clean
    with txaware.connect(there) as messaging:
        assert messaging.bounds("t").last == expected.last
        assert payloads(messaging.poll("t", limit=1)) == first


def _killed_at(size_bytes: int, directory: Path, *arguments: str) -> bool:
    """Ends a command when the directory is so large; False where it was over."""
    process = PythonProcess([*PROGRAM, *arguments], stdout=subprocess.DEVNULL)
    assert until(
        lambda: process.poll() is not None or _size_bytes(directory) >= size_bytes,
        timeout_s=PATIENCE_S,
    )
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    return process.wait(PATIENCE_S) == -signal.SIGKILL


def _size_bytes(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total
