"""What LevelDB does with what it is given: files, batches that failed, two readers."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.doubles import Clock
from txaware.errors import Unavailable
from txaware.model.interfaces import Write
from txaware.model.settings import Settings
from txaware.store.keys import JOURNAL, MESSAGE, PAYLOAD, TOPIC, row_key
from txaware.store.leveldb import LevelDbTable
from txaware.store.leveldb_binding import leveldb
from txaware.store.leveldb_store import MANY_ROWS, Database

TOPIC_PART = b"default:t:\0\0\0\1"
BUFFER_BYTES, VALUE_BYTES, PER_BATCH = 1 << 16, 200, 100


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(tmp_path: Path, clock: Clock) -> Iterator[LevelDbTable]:
    settings = Settings(write_buffer_bytes=BUFFER_BYTES, compression="none")
    found = LevelDbTable.open(tmp_path, settings, clock_ms=clock)
    yield found
    found.close()


def database_of(table: LevelDbTable) -> Database:
    return table._leveldb


def sorted_bytes(table: LevelDbTable) -> int:
    """How much LevelDB has written to files while it sorted them again, in MiB."""
    stats: str = database_of(table)._db.get_property(b"leveldb.stats").decode()
    lines = [line.split() for line in stats.splitlines()[3:] if line.strip()]
    return sum(int(float(read)) for _, _, _, _, read, _ in lines) << 20


def spilled(first: int, *, pointer: int) -> list[Write]:
    prefix = PAYLOAD + TOPIC_PART + pointer.to_bytes(8, "big")
    return [
        (prefix + row_key(first + at), bytes([at]) * VALUE_BYTES)
        for at in range(PER_BATCH)
    ]


def test_a_load_of_payloads_is_sorted_once(table: LevelDbTable, clock: Clock) -> None:
    """Whatever else is written before it, and the time that is saved meanwhile."""
    written = 0
    for load in range(3):
        table.submit([(TOPIC + b"t%d" % load, b"t"), (JOURNAL + bytes([load]), b"j")])()
        table.submit([(MESSAGE + TOPIC_PART + row_key(load), b"m")])()
        for batch in range(200):
            rows = spilled(batch * PER_BATCH, pointer=load)
            table.submit(rows)()
            written += sum(len(key) + len(value or b"") for key, value in rows)
            clock.advance_s(0.02)
    assert written > 100 * BUFFER_BYTES
    assert sorted_bytes(table) < written / 2


def test_a_batch_is_there_only_with_all_that_it_wrote(table: LevelDbTable) -> None:
    one, two, gone = TOPIC + b"1", TOPIC + b"2", TOPIC + b"3"
    database = database_of(table)
    table.submit([(one, b"1"), (gone, b"3")])()
    writes: list[Write] = [(two, b"2"), (one, b"1"), (gone, None)]
    assert not database.has_batch(9, writes)
    table.submit([(two, b"2")])()
    assert not database.has_batch(9, writes), "a row is there that it removes"
    table.submit([(gone, None)])()
    assert database.has_batch(9, writes)
    assert not database.has_batch(9, [*writes, (one, b"another")])
    assert database.has_batch(9, [(one, b"another"), *writes]), "the last one counts"


def test_who_reads_much_waits_for_its_turn_and_who_reads_little_does_not(
    table: LevelDbTable,
) -> None:
    table.submit(spilled(0, pointer=1))()
    turn = database_of(table)._turn
    with ThreadPoolExecutor(1) as pool:
        with turn:
            assert len(table.scan(PAYLOAD, limit=MANY_ROWS - 1)) == PER_BATCH
            much = pool.submit(table.scan, PAYLOAD, limit=MANY_ROWS)
            with pytest.raises(TimeoutError):
                much.result(0.05)
        assert len(much.result(5)) == PER_BATCH


FULL = "IO error: 000005.ldb: No space left on device"


def test_what_cannot_be_opened_again_says_why(
    table: LevelDbTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = database_of(table)

    def full() -> None:
        raise leveldb().IOError(FULL.encode())

    with monkeypatch.context() as broken:
        broken.setattr(database, "_open", full)
        with pytest.raises(leveldb().IOError):
            database.reopen()
        said = f"is closed, as it cannot be opened again: {FULL}$"
        for asking in (lambda: database.get(b"k"), lambda: database.batch(1)):
            with pytest.raises(Unavailable, match=said):
                asking()
        database.close()
        with pytest.raises(Unavailable, match="this Messaging is closed"):
            database.get(b"k")
    database.reopen()
    assert database.get(b"k") is None


def test_a_directory_that_cannot_be_opened_says_so_in_text(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise leveldb().IOError(FULL.encode())

    monkeypatch.setattr(leveldb(), "DB", full)
    with pytest.raises(Unavailable, match=f"cannot be opened: {FULL}$"):
        LevelDbTable.open(tmp_path / "data", Settings(), clock_ms=clock)
