"""Users' tables against plyvel: `pytest -m benchmark -s`."""

from collections import deque
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.transaction import Transaction
from tests.benchmarks.measure import Figure, in_turns, per_second
from txaware.messaging import Messaging
from txaware.store.leveldb_binding import leveldb

pytestmark = pytest.mark.benchmark

ROWS, ROUNDS = 20_000, 5
KEYS = [b"%08d" % number for number in range(ROWS)]
VALUE = b"x" * 100


@pytest.fixture
def messaging(tmp_path: Path) -> Iterator[Messaging]:
    with txaware.connect(f"leveldb:{tmp_path / 'ours'}") as opened:
        table = opened.table("rows")
        with opened.transaction():
            for key in KEYS:
                table.put(key, VALUE)
        yield opened


@pytest.fixture
def raw(tmp_path: Path, messaging: Messaging) -> Iterator[Any]:
    """Plyvel with the same versions: behind each key stands its pointer."""
    pointer = messaging.coordinator.snapshot().read_pointer.to_bytes(8, "big")
    db = leveldb().DB(str(tmp_path / "raw"), create_if_missing=True)
    with db.write_batch() as batch:
        for key in KEYS:
            batch.put(b"d" + key + b"\0\0" + pointer, b"\1" + pointer + VALUE)
    db.compact_range()  # into files, where ours are: rows in memory are read faster
    yield db
    db.close()


def newest(db: Any, key: bytes, snapshot: Transaction) -> bytes | None:
    """The least that finds what a snapshot sees: a look backwards, and a judgement."""
    versions = b"d" + key + b"\0\0"
    for _, version in db.iterator(prefix=versions, reverse=True):
        if snapshot.is_visible(int.from_bytes(version[1:9], "big")):
            found: bytes = version[9:]
            return found
    return None


def test_a_row_costs_a_fifth_of_the_transaction_of_a_message(
    messaging: Messaging,
) -> None:
    """Both are in one batch, and one sync."""
    messaging.create_topic("t")
    table, keys = messaging.table("rows"), cycle(KEYS)

    def message() -> None:
        with messaging.transaction():
            messaging.publisher("t").publish(VALUE)

    def row_and_message() -> None:
        with messaging.transaction():
            table.put(next(keys), VALUE)
            messaging.publisher("t").publish(VALUE)

    found = in_turns(
        2 * ROUNDS,
        alone=lambda: per_second(message),
        both=lambda: per_second(row_and_message),
    )
    figure = Figure(
        "a put and a message in a transaction",
        "1/s",
        found["both"],
        found["alone"],
        "the message alone",
    )
    assert figure.report(at_least=0.8)


def test_a_get_is_half_of_a_look_by_plyvel_with_visibility_judged(
    messaging: Messaging, raw: Any
) -> None:
    """Where a row has versions, a plain get of plyvel finds none: that is the limit."""
    table, ours, theirs = messaging.table("rows"), cycle(KEYS), cycle(KEYS)
    with messaging.transaction() as tx:
        snapshot = tx.transaction
        assert newest(raw, KEYS[0], snapshot) == table.get(KEYS[0]) == VALUE
        found = in_turns(
            ROUNDS,
            raw=lambda: per_second(lambda: newest(raw, next(theirs), snapshot)),
            ours=lambda: per_second(lambda: table.get(next(ours))),
        )
    figure = Figure(
        "get of a table in a transaction",
        "1/s",
        found["ours"],
        found["raw"],
        "plyvel's newest version of a key, visibility judged",
    )
    assert figure.report(at_least=0.5)


def test_a_scan_is_a_third_of_one_by_plyvel(messaging: Messaging, raw: Any) -> None:
    """Each row is cut out of its version, which costs what plyvel takes."""
    table = messaging.table("rows")
    found = in_turns(
        ROUNDS,
        raw=lambda: per_second(lambda: deque(raw, maxlen=0)),
        ours=lambda: per_second(lambda: deque(table.items(), maxlen=0)),
    )
    figure = Figure(
        "scans of a table",
        "1/s",
        found["ours"],
        found["raw"],
        "plyvel's iterator over the same versions",
    )
    assert figure.report(at_least=0.3)
