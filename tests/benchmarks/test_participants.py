"""The floors of participants over users' databases: `pytest -m benchmark -s`."""

import sqlite3
import time
from pathlib import Path

import pytest

import txaware
from tests.benchmarks.measure import Figure
from txaware import participants

pytestmark = pytest.mark.benchmark

ROWS, ROUNDS = 100_000, 3
ROWS_PER_SECOND = 50_000.0


def test_the_relay_carries_rows_over_from_sqlite(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db")
    found: list[float] = []
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
        messaging.create_topic("t")
        shop = participants.sqlite(messaging, connection, relay=False)
        for _ in range(ROUNDS):
            with messaging.transaction(shop):
                messaging.publisher("t").publish_all([bytes(100)] * ROWS)
            began_s = time.perf_counter()
            assert shop.relay() == ROWS
            found.append(ROWS / (time.perf_counter() - began_s))
    connection.close()
    limits = [ROWS_PER_SECOND] * ROUNDS
    figure = Figure("relay from SQLite", "rows/s", found, limits, "the floor")
    assert figure.report(at_least=1)
