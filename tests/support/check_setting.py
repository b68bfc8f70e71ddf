"""A sound data directory, and the ways to damage it, for tests of the check."""

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

import attrs
import pytest

import txaware
from coordinator.embedded.records import Record, encode_records
from txaware.messaging import Messaging
from txaware.model.clock import system_clock_ms
from txaware.model.messages import MessageId
from txaware.model.reports import Report
from txaware.model.settings import Settings
from txaware.model.topics import TopicName, data_prefix
from txaware.service.check.checking import check_directory
from txaware.store.columns import ATTEMPT, RECEIPTS, encode_receipts, value_head
from txaware.store.keys import JOURNAL, MESSAGE, PAYLOAD, POSITION, pointer_key, row_key
from txaware.store.leveldb_binding import leveldb

SETTINGS = Settings(janitor_interval_s=0)
NOW_MS = system_clock_ms() - 60_000
LONG_AGO_MS = NOW_MS - 30 * 86_400_000
POINTER = NOW_MS * 1_000_000
PREFIX = data_prefix(TopicName("orders"), 1)
ROW = MESSAGE + PREFIX + row_key(NOW_MS, 7)
REFERENCE = value_head(
    POINTER, reference=True, more={RECEIPTS: encode_receipts({b"x": 2})}
)
STORED = value_head(None, more={ATTEMPT: b"x"}) + b"payload"
POSITION_KEY = POSITION + b"billing:default:orders:"

Write = tuple[bytes, bytes | None]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with some of everything, in table files and in a log."""
    path = tmp_path_factory.mktemp("sound") / "data"
    small = attrs.evolve(SETTINGS, write_buffer_bytes=1 << 16)
    with txaware.connect(f"leveldb:{path}", settings=small) as messaging:
        messaging.create_topic("orders")
        messaging.create_topic("sales:deleted")
        messaging.publish("sales:deleted", [b"gone"])
        messaging.delete_topic("sales:deleted")
        messaging.create_topic("sales:deleted")
        for _ in range(10):
            messaging.publish("orders", [b"plain" * 30] * 100)
        commit_some(messaging)
        tx_open = messaging.coordinator.start_short()
        response = messaging.publish("orders", [b"back"], transaction=tx_open)
        assert response is not None
        messaging.rollback("orders", response)
        messaging.coordinator.abort(tx_open)
    return path


def commit_some(messaging: Messaging) -> None:
    """A transaction with stored payloads, their reference, and a position."""
    with messaging.transaction() as tx:
        messaging.publisher("orders", buffer_limit_bytes=100).publish_all(
            [b"spilled" * 5] * 20
        )
        position = messaging.bounds("orders").next
        messaging.save_position(
            "billing", "orders", position, transaction=tx.transaction
        )


def invalid_rows(messaging: Messaging) -> dict[str, int]:
    """What two topics need: a message of one transaction, a position of another."""
    coordinator = messaging.coordinator
    messaging.create_topic("other")
    first, second, third = (coordinator.start_short() for _ in range(3))
    messaging.publish("orders", [b"1"], transaction=second)
    messaging.publish("orders", [b"1"], transaction=first)
    messaging.save_position("g", "other", MessageId(bytes(20)), transaction=third)
    for tx in (first, second, third):
        coordinator.invalidate(tx)
    return {"orders": first.transaction_id, "other": third.transaction_id}


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "data"))


def write(data: Path, writes: Iterable[Write]) -> None:
    """Damages a directory as no program of ours would."""
    db = leveldb().DB(str(data / "rows"))
    for key, value in writes:
        if value is None:
            db.delete(key)
        else:
            db.put(key, value)
    db.close()


def checked(data: Path) -> Report:
    return check_directory(data, SETTINGS)


def journal(*records: Record, number: int = 1 << 40) -> Write:
    return JOURNAL + number.to_bytes(8, "big"), encode_records(records)


def payload_keys(count: int, pointer: int = POINTER) -> list[bytes]:
    prefix = PAYLOAD + PREFIX + pointer_key(pointer)
    return [prefix + row_key(NOW_MS, number) for number in range(count)]


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def as_after_a_crash(data: Path, target: Path) -> Path:
    """A copy of a directory in use, while LevelDB neither makes nor removes files."""

    def files() -> list[tuple[str, int]]:
        return sorted((p.name, p.stat().st_size) for p in (data / "rows").iterdir())

    while True:
        try:
            before = files()
            shutil.copytree(data, target)
            if files() == before:
                return target
        except OSError:  # one went meanwhile; shutil.Error is one, too
            pass
        shutil.rmtree(target, ignore_errors=True)


def hashes(data: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(data)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(data.parent.rglob("*"))
        if path.is_file()
    }
