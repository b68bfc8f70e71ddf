"""An outbox of tables that an earlier version made grows, and its rows are carried."""

import sqlite3
import struct
from pathlib import Path

from tests.support.messagings import committed
from tests.support.postgres import PostgresServer
from tests.support.queues import taken
from txaware import participants
from txaware.messaging import Messaging

ID, OTHER_ID = "a" * 32, "b" * 32
SQLITE = f"""
CREATE TABLE txaware_outbox (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL, payload BLOB NOT NULL, "key" BLOB,
    headers BLOB, expire_after_s REAL, token BLOB NOT NULL);
CREATE TABLE txaware_inbox (
    consumer_group TEXT, topic TEXT, position BLOB NOT NULL,
    PRIMARY KEY (consumer_group, topic));
CREATE TABLE txaware_state (
    one INTEGER PRIMARY KEY CHECK (one = 1), outbox_id TEXT NOT NULL, reads INTEGER);
INSERT INTO txaware_state VALUES (1, '{ID}', 0);
"""
POSTGRES = f"""
CREATE TABLE txaware_outbox (
    id bigserial PRIMARY KEY, topic text NOT NULL, payload bytea NOT NULL, "key" bytea,
    headers bytea, expire_after_s double precision, token bytea NOT NULL);
CREATE TABLE txaware_inbox (
    consumer_group text, topic text, position bytea,
    PRIMARY KEY (consumer_group, topic));
CREATE TABLE txaware_state (
    one integer PRIMARY KEY CHECK (one = 1), outbox_id text NOT NULL, reads bigint);
INSERT INTO txaware_state VALUES (1, '{ID}', 0);
"""
INSERT = (
    "INSERT INTO txaware_outbox (id, topic, payload, token) VALUES ({}, {}, {}, {})"
)
ROWS = [(1, b"1", b"token--1"), (2, b"2", b"token--2"), (3, b"3", b"token--3")]


def test_a_file_of_an_earlier_version_goes_on_where_its_relay_stopped(
    messaging: Messaging, tmp_path: Path
) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.executescript(SQLITE)
    for place, payload, token in ROWS:
        row = (place, "default:t", payload, token)
        connection.execute(INSERT.format(*"????"), row)
    connection.commit()
    carried(messaging, struct.pack(">q8sq8s", 1, ROWS[0][2], 2, ROWS[1][2]))
    shop = participants.sqlite(messaging, connection, relay=False)
    with messaging.transaction(shop):
        messaging.publisher("t").publish(b"4")
    assert shop.relay() == 2
    connection.close()
    assert committed(messaging) == [b"3", b"4"]


def test_what_an_earlier_version_took_for_messages_to_pipes_become_items(
    messaging: Messaging, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    queues = {"default:.jobs2.1.179": "jobs2", "ns:.a-1.12.3": "ns:a-1"}
    for queue in queues.values():
        messaging.create_queue(queue)
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.executescript(SQLITE)
    with postgres_server.connect() as other:
        other.execute(POSTGRES.replace(ID, OTHER_ID))
        for place, pipe in enumerate(queues, start=1):
            row = (place, pipe, pipe.encode(), b"token--1")
            connection.execute(INSERT.format(*"????"), row)
            other.execute(INSERT.format(*["%s"] * 4), row)
        connection.commit()
        other.commit()
        for shop in (
            participants.sqlite(messaging, connection, relay=False),
            participants.postgres(messaging, other, outbox=True, relay=False),
        ):
            assert shop.relay() == 2
    connection.close()
    for pipe, queue in queues.items():
        assert taken(messaging.queue(queue)) == [pipe.encode()] * 2


def test_a_postgres_of_an_earlier_version_goes_on_where_its_relay_stopped(
    messaging: Messaging, postgres_server: PostgresServer
) -> None:
    with postgres_server.connect() as connection:
        connection.execute(POSTGRES)
        for place, payload, token in ROWS:
            row = (place, "default:t", payload, token)
            connection.execute(INSERT.format(*["%s"] * 4), row)
        connection.execute("SELECT setval('txaware_outbox_id_seq', 3)")
        connection.commit()
        rows = [(place, token) for place, _, token in ROWS[:2]]
        carried(messaging, b"".join(struct.pack(">q8s", *row) for row in rows))
        shop = participants.postgres(messaging, connection, outbox=True, relay=False)
        with messaging.transaction(shop):
            messaging.publisher("t").publish(b"4")
        assert shop.relay() == 2
    assert committed(messaging) == [b"3", b"4"]


def carried(messaging: Messaging, marks: bytes) -> None:
    """Writes down, as an earlier relay did, what it carried over last."""
    messaging.table("txaware:participants").put(f"outbox:{ID}".encode(), marks)
