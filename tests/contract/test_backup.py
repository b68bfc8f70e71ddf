"""Backups of data in use, and what is restored from them."""

import io
import threading
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import txaware
from coordinator import EmbeddedCoordinator
from tests.support.messagings import Site, commit, payloads, publish
from txaware.errors import (
    BadRequest,
    ShardAway,
    StoreCorrupted,
    TransactionNotInProgress,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.model.clock import StoreClock
from txaware.model.settings import Settings
from txaware.service.check.checking import check_directory
from txaware.service.transfer.backup import Backup, backup_chunks, restore, save
from txaware.service.transfer.backup_format import MAGIC, BackupReading, BackupWriting

SETTINGS = Settings(janitor_interval_s=0)
COUNT = 200


def saved(messaging: Messaging) -> bytes:
    """The bytes of a backup."""
    file = io.BytesIO()
    done = messaging.backup(file)
    assert done.size_bytes == len(file.getvalue())
    return file.getvalue()


def restored(site: Site, data: bytes, name: str = "restored") -> Path:
    """A directory that passes the check."""
    directory = site.directory.parent / name
    restore(io.BytesIO(data), directory, SETTINGS, clock_ms=site.clock)
    report = check_directory(directory, SETTINGS)
    assert report.is_clean, report.problems
    return directory


def opened(site: Site, directory: Path, **options: Any) -> Messaging:
    url = f"leveldb:{directory}"
    return txaware.connect(url, settings=SETTINGS, clock_ms=site.clock, **options)


@pytest.fixture
def messaging(durable: Site) -> Messaging:
    durable.messaging.create_topic("t")
    durable.messaging.create_topic("u")
    return durable.messaging


def test_a_backup_has_everything_but_what_is_open(
    durable: Site, messaging: Messaging
) -> None:
    messaging.publish("t", [b"plain"])
    with messaging.transaction():
        messaging.publisher("t").publish(b"committed")
        messaging.consumer("u", group="g").poll()
    tx, undone = (messaging.coordinator.start_short() for _ in range(2))
    publish(messaging, b"open", transaction=tx)
    messaging.rollback("t", publish(messaging, b"undone", transaction=undone))
    data = saved(messaging)
    commit(messaging, tx)
    with opened(durable, restored(durable, data)) as copy:
        assert payloads(copy.poll("t")) == [b"plain", b"committed"]
        assert payloads(copy.poll("t", isolation="committed")) == payloads(
            copy.poll("t")
        )
        newest = messaging.bounds("t").last
        assert newest is not None
        durable.clock.advance_s(1)
        copy.publish("t", [b"new"])
        assert copy.poll("t")[-1].id > newest


def test_nothing_is_lost_or_half_there_under_load(
    durable: Site, messaging: Messaging
) -> None:
    # A backup takes some pieces, and goes on while they are read.
    acknowledged = [bytes([number]) * (1 << 20) for number in range(3)]
    messaging.publish("t", acknowledged)
    stop = threading.Event()

    def plain(number: int) -> None:
        for count in range(COUNT * 50):
            if stop.is_set():
                return
            message = b"plain %d %d" % (number, count)
            messaging.publish("t", [message])
            acknowledged.append(message)

    def both(number: int) -> None:
        for count in range(COUNT * 50):
            if stop.is_set():
                return
            message = b"both %d %d" % (number, count)
            with messaging.transaction():
                messaging.publisher("t").publish(message)
                messaging.publisher("u").publish(message)
            acknowledged.append(message)

    with ThreadPoolExecutor() as threads:
        working = [threads.submit(plain, 1), *(threads.submit(both, n) for n in (1, 2))]
        try:
            backups = []
            for _ in range(5):
                enough = len(acknowledged) + COUNT
                while len(acknowledged) < enough:
                    assert not all(each.done() for each in working)
                    threading.Event().wait(0.001)
                before = list(acknowledged)
                backups.append((before, saved(messaging)))
        finally:
            stop.set()
    for done in working:
        done.result()
    for number, (before, data) in enumerate(backups):
        with opened(durable, restored(durable, data, str(number))) as copy:
            found = {topic: _all(copy, topic) for topic in ("t", "u")}
        assert not set(before) - set(found["t"])
        assert max(Counter(found["t"]).values()) == 1
        assert {m for m in found["t"] if m.startswith(b"both")} == set(found["u"])


def _all(messaging: Messaging, topic: str) -> list[bytes]:
    found, start = [], None
    while page := messaging.poll(
        topic, start=start, inclusive=False, limit=10_000, isolation="committed"
    ):
        found += payloads(page)
        start = page.next
    return found


def test_with_a_coordinator_elsewhere_no_transaction_is_half_there(
    durable: Site,
) -> None:
    coordinator = EmbeddedCoordinator(clock_ms=durable.clock)
    directory = durable.directory.parent / "elsewhere"
    with opened(durable, directory, coordinator=coordinator) as messaging:
        messaging.create_topic("t")
        whole, half = (coordinator.start_short() for _ in range(2))
        publish(messaging, b"whole", transaction=whole)
        publish(messaging, b"half", transaction=half)
        messaging.save_position("g", "t", messaging.bounds("t").next, transaction=half)
        commit(messaging, whole)
        data = saved(messaging)
        publish(messaging, b"other half", transaction=half)
        commit(messaging, half)
    copied = restored(durable, data)
    with opened(durable, copied, coordinator=coordinator) as copy:
        assert payloads(copy.poll("t", isolation="committed")) == [b"whole"]
        assert copy.position("g", "t") is None


def test_who_was_open_then_or_began_later_is_refused_by_the_copy(
    durable: Site, messaging: Messaging
) -> None:
    original: Any = messaging.coordinator
    over_the_network = original.start_short(outlives_process=True)
    checkpointed = original.checkpoint(original.start_short(outlives_process=True))
    publish(messaging, b"half", transaction=over_the_network)
    publish(messaging, b"other", transaction=checkpointed)
    data = saved(messaging)
    durable.clock.advance_s(5)
    later = original.start_short()
    publish(messaging, b"later", transaction=later)
    commit(messaging, later)
    durable.clock.advance_s(5)
    with opened(durable, restored(durable, data)) as copy:
        for tx in (over_the_network, checkpointed, later):
            with pytest.raises(TransactionNotInProgress):
                copy.coordinator.commit(tx)
        # Who settles a commit whose answer was lost has to hear a no.
        assert copy.coordinator.invalidate(later)
        snapshot = copy.coordinator.snapshot()
        assert {*over_the_network.pointers, *checkpointed.pointers} <= set(
            snapshot.invalids
        )
        assert copy.poll("t", isolation="committed") == []
        assert snapshot.transaction_id > later.transaction_id


def test_a_copy_of_a_copy_is_the_same(durable: Site, messaging: Messaging) -> None:
    messaging.publish("t", [b"%d" % number for number in range(10)])
    first = restored(durable, saved(messaging), "first")
    with opened(durable, first) as copy:
        second = restored(durable, saved(copy), "second")
    with opened(durable, second) as again:
        assert len(again.poll("t")) == 10
        with again.transaction():
            again.publisher("t").publish(b"goes on")
        assert len(again.poll("t", isolation="committed")) == 11


def test_a_server_gives_the_same_backup(tmp_path: Path) -> None:
    site = Site("http", tmp_path)
    try:
        site.messaging.create_topic("t")
        site.messaging.publish("t", [bytes(1 << 20)] * 3)
        with opened(site, restored(site, saved(site.messaging))) as copy:
            assert len(copy.poll("t")) == 3
        # The end of a stream that is cut off is missed.
        table: Any = site.table
        chunks = iter(backup_chunks(table))
        cut = [next(chunks), next(chunks)]
        with pytest.raises(StoreCorrupted, match="cut off"):
            save(iter(cut), io.BytesIO())
    finally:
        site.close()


def test_data_in_memory_has_no_backup() -> None:
    with (
        txaware.connect("memory:") as messaging,
        pytest.raises(BadRequest, match="in memory"),
    ):
        messaging.backup(io.BytesIO())


def test_progress_rises_to_the_whole(durable: Site, messaging: Messaging) -> None:
    for _ in range(4):
        messaging.publish("t", [bytes(1 << 19)] * 3)
    told: list[tuple[int, float | None]] = []
    file = io.BytesIO()
    done = messaging.backup(file, progress=lambda *now: told.append(now))
    assert [rows for rows, _ in told] == sorted({rows for rows, _ in told})
    assert told[-1][0] == done.rows
    assert all(part is not None and 0 <= part <= 1 for _, part in told)
    told_again: list[tuple[int, float | None]] = []
    file.seek(0)
    again = restore(
        file,
        durable.directory.parent / "new",
        SETTINGS,
        progress=lambda *now: told_again.append(now),
        clock_ms=durable.clock,
    )
    assert again == done == Backup(done.rows, len(file.getvalue()), durable.clock())
    assert told_again == told


def test_a_backup_ends_when_the_database_is_opened_again(
    durable: Site, messaging: Messaging
) -> None:
    for _ in range(4):
        messaging.publish("t", [bytes(1 << 19)] * 3)
    table: Any = durable.table
    chunks = backup_chunks(table)
    next(chunks)
    table._database.reopen()  # as after a write that failed
    with pytest.raises(Unavailable, match="opened again"):
        list(chunks)
    assert len(saved(messaging)) > 6 << 20
    chunks = backup_chunks(table)
    next(chunks)
    messaging.close()
    with pytest.raises(Unavailable, match="closed"):
        list(chunks)


def test_a_backup_that_nobody_reads_to_its_end_keeps_nothing(
    durable: Site, messaging: Messaging
) -> None:
    chunks: Any = backup_chunks(durable.table)
    next(chunks)
    view = chunks.gi_frame.f_locals["view"]
    chunks.close()
    with pytest.raises(RuntimeError, match=r"closed|released"):
        view._snapshot.get(b"")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("small")
    with txaware.connect(f"leveldb:{directory}", settings=SETTINGS) as messaging:
        messaging.create_topic("t")
        for number in range(20):
            messaging.publish("t", [b"message %d" % number])
        return saved(messaging)


def test_what_is_cut_off_anywhere_is_refused_and_leaves_nothing(
    small: bytes, tmp_path: Path
) -> None:
    for size in (*range(60), *range(60, len(small), 37), len(small) - 1):
        _refused(small[:size], tmp_path)


@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(data=st.data())
def test_what_is_damaged_anywhere_is_refused_and_leaves_nothing(
    small: bytes, tmp_path: Path, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(small)))
    gone = data.draw(st.integers(0, 40))
    new = data.draw(st.binary(max_size=40))
    damaged = small[:at] + new + small[at + gone :]
    if damaged != small:
        _refused(damaged, tmp_path)


def _refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises((StoreCorrupted, BadRequest)):
        restore(io.BytesIO(data), tmp_path / "deep" / "er", SETTINGS)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        ([b"r"], "does not say what it is"),
        ([b"a", b"x"], "in the wrong place"),
        ([b"a", b"a"], "in the wrong place"),
        ([b"a", b"r", b"e", b"r"], "digest"),
    ],
)
def test_whole_pieces_in_a_wrong_order_are_refused(
    pieces: list[bytes], why: str
) -> None:
    from txaware.service.transfer import backup_format

    body = {b"a": b"{}", b"r": bytes(6), b"x": b"", b"e": bytes(40)}
    data = MAGIC + b"".join(backup_format._piece(kind, body[kind]) for kind in pieces)
    with pytest.raises(StoreCorrupted, match=why):
        list(BackupReading(io.BytesIO(data)).pieces())


@given(
    st.lists(
        st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=99)), min_size=1)
    )
)
def test_rows_come_back_as_they_were(pieces: list[list[tuple[bytes, bytes]]]) -> None:
    writing = BackupWriting()
    data = writing.begin({"created_ms": 1})
    data += b"".join(writing.rows(rows, part=0.5) for rows in pieces) + writing.end()
    reading = BackupReading(io.BytesIO(data))
    assert list(reading.pieces()) == pieces
    assert (reading.about, reading.size_bytes) == ({"created_ms": 1}, len(data))
    assert reading.rows == sum(map(len, pieces))


def test_a_stream_that_gives_little_at_a_time_is_read(small: bytes) -> None:
    class Trickle:
        def __init__(self) -> None:
            self._file = io.BytesIO(small)

        def read(self, size: int, /) -> bytes:
            return self._file.read(min(size, 7))

    assert sum(map(len, BackupReading(Trickle()).pieces())) > 20


def test_a_directory_with_something_in_it_is_left_alone(
    small: bytes, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    for directory in (tmp_path, tmp_path / "file"):
        with pytest.raises(BadRequest, match=r"not empty|Not a directory"):
            restore(io.BytesIO(small), directory, SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_empty_directory_is_used_as_it_is(small: bytes, tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    inode = tmp_path.stat().st_ino
    restore(io.BytesIO(small), tmp_path, SETTINGS)
    assert tmp_path.stat().st_ino == inode
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"lost+found", "rows", "LOCK"}


def test_a_full_disk_is_said_and_leaves_nothing(
    small: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.fake_leveldb import io_error
    from txaware.service.transfer import backup

    def full(*_: object) -> None:
        raise io_error()

    monkeypatch.setattr(backup, "_write", full)
    with pytest.raises(Unavailable, match=r"new cannot be written: .*No space left"):
        restore(io.BytesIO(small), tmp_path / "new", SETTINGS)
    assert not list(tmp_path.iterdir())


def test_a_file_on_a_full_disk_is_said(messaging: Messaging) -> None:
    with (
        open("/dev/full", "wb", buffering=0) as full,
        pytest.raises(OSError, match="No space left"),
    ):
        messaging.backup(full)
    assert saved(messaging)


def test_a_store_that_is_damaged_makes_no_backup(
    durable: Site, messaging: Messaging
) -> None:
    for number in range(40):
        messaging.publish("t", [bytes([number]) * 100_000] * 2)
    durable.open()
    for path in (durable.directory / "rows").glob("*.ldb"):
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 1
        path.write_bytes(data)
    with pytest.raises(StoreCorrupted, match="is damaged and cannot be read"):
        saved(durable.messaging)


def test_memory_is_bounded(durable: Site, messaging: Messaging) -> None:
    payload = b"x" * 200
    for _ in range(50):
        messaging.publish("t", [payload] * 2000)
    path = durable.directory.parent / "file"
    tracemalloc.start()
    try:
        with path.open("wb") as file:
            done = messaging.backup(file)
        with path.open("rb") as file:
            again = restore(file, durable.directory.parent / "new", SETTINGS)
        assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()
    assert done == again
    assert done.rows > 100_000
    assert done.size_bytes > 20_000_000


def test_what_is_away_within_a_backup_is_told_and_is_no_damage() -> None:
    class Leaving:
        size_bytes = 1

        def pieces(self, _: int) -> Any:
            yield [(b"a", b"1")]
            raise ShardAway("shard 1 is away just now")

        def part(self, _: bytes) -> float:
            return 0.5

        def close(self) -> None:
            """Does nothing."""

    class Table:
        clock = StoreClock(lambda: 7, 0)

        def view(self) -> Leaving:
            return Leaving()

    table: Any = Table()
    with pytest.raises(Unavailable, match="not whole: shard 1 is away"):
        save(backup_chunks(table), io.BytesIO())
