"""Participants over users' databases beside a Tephra."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.tephra import TephraCoordinator
from tests.support.messagings import committed
from tests.support.postgres import PostgresServer
from txaware import participants

pytestmark = pytest.mark.tephra


def test_databases_take_part_beside_a_tephra(
    tephra: TephraCoordinator, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    rows, connection = sqlite3.connect(tmp_path / "shop.db"), postgres_server.connect()
    rows.execute("CREATE TABLE orders (who TEXT)")
    connection.execute("CREATE TABLE orders (who text)")
    connection.commit()
    data = f"leveldb:{tmp_path / 'data'}"
    with txaware.connect(data, coordinator=tephra) as messaging:
        messaging.create_topic("t")
        shop = participants.postgres(messaging, connection)
        small = participants.sqlite(messaging, rows, relay=False)
        both: list[Any] = [shop, small]
        for number, database in enumerate(both):
            with messaging.transaction(database):
                database.connection.execute("INSERT INTO orders VALUES ('ann')")
                messaging.publisher("t").publish(b"%d" % number)
            with pytest.raises(ZeroDivisionError), messaging.transaction(database):  # noqa: PT012
                database.connection.execute("INSERT INTO orders VALUES ('eve')")
                messaging.publisher("t").publish(b"never")
                assert 1 / 0
        assert (small.relay(), small.relay()) == (1, 0)
        assert committed(messaging) == [b"0", b"1"]
        tx = messaging.coordinator.start_short()
        messaging.coordinator.persist(tx)
        shop.start_tx(tx)
        connection.execute("INSERT INTO orders VALUES ('never')")
        assert shop.commit_tx()
        assert shop.recover() == [tx.transaction_id]
        messaging.coordinator.invalidate(tx)
        assert shop.recover() == []
    for found in (rows, connection):
        assert [*found.execute("SELECT who FROM orders")] == [("ann",)]
        found.close()
