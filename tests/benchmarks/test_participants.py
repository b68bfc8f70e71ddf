"""The floors of participants over users' databases: `pytest -m benchmark -s`."""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.benchmarks.measure import Figure
from tests.support.postgres import PostgresServer
from txaware import participants
from txaware.messaging import Messaging
from txaware.participants import Postgres
from txaware.participants.connections import Settle

pytestmark = pytest.mark.benchmark

ROWS, ROUNDS = 100_000, 3
PREPARED, PREPARED_ROUNDS = 50, 9
SEEN, SEEN_WITHIN_MS, IDLE_S, LOOK_S = 40, 20.0, 0.2, 0.001
NOW: Settle = "now"
LATER: Settle = "later"


def test_the_relay_carries_rows_over_from_sqlite(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db")
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
        shop = participants.sqlite(messaging, connection, relay=False)
        figures = carried_over(messaging, shop, "SQLite", floor=50_000)
        kept = [one.report(at_least=1) for one in figures]
        assert all(kept)
    connection.close()


def test_the_relay_carries_rows_over_from_postgres(tmp_path: Path) -> None:
    server = PostgresServer(fsync="on")
    try:
        with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
            connection = server.connect()
            shop = participants.postgres(
                messaging, connection, outbox=True, relay=False
            )
            figures = carried_over(messaging, shop, "PostgreSQL", floor=20_000)
            kept = [one.report(at_least=1) for one in figures]
            assert all(kept)
            connection.close()
    finally:
        server.close()


def carried_over(
    messaging: Messaging, shop: Any, name: str, *, floor: int
) -> list[Figure]:
    """Rows a second that a relay carries over, beside how many these have to be.

    And those of a second of its processor, for a machine that others use.
    """
    messaging.create_topic("t")
    by_time: list[float] = []
    by_processor: list[float] = []
    for _ in range(ROUNDS):
        with messaging.transaction(shop):
            messaging.publisher("t").publish_all([bytes(100)] * ROWS)
        began_s, spent_s = time.perf_counter(), time.process_time()
        assert shop.relay() == ROWS
        by_time.append(ROWS / (time.perf_counter() - began_s))
        by_processor.append(ROWS / (time.process_time() - spent_s))
    limits = [float(floor)] * ROUNDS
    return [
        Figure(f"relay from {name}", unit, found, limits, "the floor")
        for unit, found in (
            ("rows/s", by_time),
            ("rows/s of its processor", by_processor),
        )
    ]


def test_a_row_is_visible_soon_after_its_commit_in_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
        shop = participants.sqlite(messaging, connect())
        assert seen_after(messaging, shop, connect(), "SQLite").report(at_most=1)


def test_a_row_is_visible_soon_after_its_commit_in_postgres(tmp_path: Path) -> None:
    server = PostgresServer(fsync="on")
    try:
        with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
            shop = participants.postgres(messaging, server.connect(), outbox=True)
            writer = server.connect(autocommit=True)
            assert seen_after(messaging, shop, writer, "PostgreSQL").report(at_most=1)
            shop.close()
            writer.close()
    finally:
        server.close()


def seen_after(messaging: Messaging, shop: Any, writer: Any, name: str) -> Figure:
    """The p50 of the time from a commit to a reader, with a relay that has nothing."""
    messaging.create_topic("t")
    outbox, consumer = txaware.outbox(writer), messaging.consumer("t", group="g")
    took_ms: list[float] = []
    for _ in range(SEEN):
        time.sleep(IDLE_S)
        writer.execute("BEGIN")
        outbox.publish("t", b"-" * 100)
        writer.execute("COMMIT")
        began_s = time.perf_counter()
        while not consumer.poll():
            time.sleep(LOOK_S)
        took_ms.append((time.perf_counter() - began_s) * 1e3)
    limits = [SEEN_WITHIN_MS] * SEEN
    return Figure(f"visible from {name}", "ms", took_ms, limits, "the floor")


def test_a_message_costs_postgres_little(tmp_path: Path) -> None:
    server = PostgresServer(fsync="on")
    try:
        with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
            figures = measured(messaging, server.connect)
            kept = [
                one.report(at_least=at_least)
                for one, at_least in zip(figures, (0.7, 0.8), strict=True)
            ]
            assert all(kept)
    finally:
        server.close()


def measured(messaging: Messaging, connect: Callable[[], Any]) -> list[Figure]:
    """Transactions with a message, in turns with bare ones that are prepared."""
    connection = connect()
    connection.execute("CREATE TABLE numbers (number integer)")
    connection.commit()
    messaging.create_topic("t")
    insert = "INSERT INTO numbers VALUES (1)"

    def bare(number: int) -> None:
        connection.tpc_begin(f"bare:{number}")
        connection.execute(insert)
        connection.tpc_prepare()
        connection.tpc_commit()

    def with_message(shop: Postgres) -> Callable[[int], None]:
        def work(_: int) -> None:
            with messaging.transaction(shop):
                shop.connection.execute(insert)
                messaging.publisher("t").publish(bytes(100))

        return work

    shops = [
        participants.postgres(messaging, connect(), settle=settle)
        for settle in (NOW, LATER)
    ]
    works = [bare, *map(with_message, shops)]
    took: list[list[float]] = [[] for _ in works]
    for _ in range(PREPARED_ROUNDS):
        for work, found in zip(works, took, strict=True):
            began_s = time.perf_counter()
            for number in range(PREPARED):
                work(number)
            for shop in shops:
                shop.settle()
            found.append(PREPARED / (time.perf_counter() - began_s))
    for one in [connection, *shops]:
        one.close()
    limits, *ours = took
    names = ("PostgreSQL with a message", "the same, settled later")
    return [
        Figure(name, "tx/s", found, limits, "bare PREPARE")
        for name, found in zip(names, ours, strict=True)
    ]
