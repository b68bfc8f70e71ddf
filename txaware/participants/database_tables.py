"""Makes the tables of ours in a user's database; older ones get what they lack."""

import sqlite3
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from txaware.participants.database_steps import (
    Steps,
    in_thread,
    postgres_rows,
    sqlite_rows,
)

if TYPE_CHECKING:
    from psycopg import Connection

# A message or an item, without its place: what both tables of an outbox have.
_ROW = {
    "topic": "{text} NOT NULL",
    "payload": "{bytes} NOT NULL",
    '"key"': "{bytes}",
    "headers": "{bytes}",
    "expire_after_s": "{seconds}",
    "token": "{bytes} NOT NULL",
    "written_ms": "{integer}",
    "pusher": "{text}",
    "delay_s": "{seconds}",
    "priority": "{integer}",
}
# The tables, each with its columns. A column that a later version adds has no NOT NULL.
TABLES: Mapping[str, Mapping[str, str]] = {
    "txaware_outbox": {"id": "{place} PRIMARY KEY", **_ROW},
    "txaware_set_aside": {
        "id": "{place} PRIMARY KEY",
        **_ROW,
        "reason": "{text} NOT NULL",
        "since_ms": "{integer} NOT NULL",
    },
    "txaware_inbox": {
        "consumer_group": "{text}",
        "topic": "{text}",
        "position": "{bytes}",
        "PRIMARY KEY": "(consumer_group, topic)",
    },
    "txaware_inbox_items": {
        "store": "{text}",
        "queue": "{text}",
        "item": "{text}",
        "PRIMARY KEY": "(store, queue, item)",
    },
    "txaware_state": {
        "one": "{integer} PRIMARY KEY CHECK (one = 1)",
        "outbox_id": "{text} NOT NULL",
        "reads": "{integer}",
    },
}
# An earlier version took what was pushed to a queue for a message to one of its pipes,
# which nobody could carry over: `default:.jobs.1.17`, now `.jobs`.
_ITEMS = (
    """UPDATE txaware_outbox SET topic =
    rtrim(rtrim(rtrim(rtrim(topic, '0123456789'), '.'), '0123456789'), '.')
    WHERE topic LIKE '%:.%.%.%'""",
    """UPDATE txaware_outbox SET topic = substr(topic, 9)
    WHERE topic LIKE 'default:.%'""",
)
_SQLITE = {
    "place": "INTEGER",
    "text": "TEXT",
    "bytes": "BLOB",
    "seconds": "REAL",
    "integer": "INTEGER",
}
_POSTGRES = {
    "place": "bigserial",
    "text": "text",
    "bytes": "bytea",
    "seconds": "double precision",
    "integer": "bigint",
}
_COLUMNS_OF_SQLITE = """SELECT made.name, info.name
    FROM sqlite_master AS made, pragma_table_info(made.name) AS info
    WHERE made.type = 'table' AND made.name LIKE 'txaware%'"""
_ID = "SELECT outbox_id FROM txaware_state"
_COLUMNS_OF_POSTGRES = """SELECT made.relname, info.attname
    FROM pg_class AS made JOIN pg_attribute AS info ON info.attrelid = made.oid
    WHERE made.oid = to_regclass(made.relname::text) AND made.relname LIKE 'txaware%%'
    AND info.attnum > 0 AND NOT info.attisdropped"""
# Two programs that begin at the same time make the tables one after the other.
ALONE = "SELECT pg_advisory_xact_lock(8387236824)"


def prepared_sqlite(connection: sqlite3.Connection) -> str:
    """Makes or changes the tables that need it; returns the id of the outbox.

    A file that has them all is only read.
    """

    if in_thread(missing_in_sqlite(connection)):
        connection.execute("BEGIN IMMEDIATE")
    else:
        found = connection.execute(_ID).fetchone()
        if found is not None:
            return str(found[0])
        connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in in_thread(missing_in_sqlite(connection)):
            connection.execute(statement)
        connection.execute(
            "INSERT OR IGNORE INTO txaware_state VALUES (1, ?, 0)", (uuid.uuid4().hex,)
        )
        found = connection.execute(_ID).fetchone()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return str(found[0])


def prepared_postgres(link: "Connection[Any]") -> str:
    """Makes or changes the tables that need it; returns the id of the outbox.

    Where all are there they are only read: a change would wait for whoever uses them.
    """

    if not in_thread(missing_in_postgres(link)):
        found = link.execute(_ID).fetchone()
        if found is not None:
            return str(found[0])
    with link.transaction():
        link.execute(ALONE)
        for statement in in_thread(missing_in_postgres(link)):
            link.execute(statement)
        link.execute(
            "INSERT INTO txaware_state VALUES (1, %s, 0) ON CONFLICT DO NOTHING",
            (uuid.uuid4().hex,),
        )
        found = link.execute(_ID).fetchone()
    return str(found and found[0])


def missing_in_sqlite(connection: Any) -> Steps[list[str]]:
    """Returns the statements that make or change what a file lacks."""
    found = yield from sqlite_rows(connection, _COLUMNS_OF_SQLITE)
    return _missing(found, _SQLITE)


def missing_in_postgres(connection: Any) -> Steps[list[str]]:
    """Returns the statements that make or change what a database lacks."""
    found = yield from postgres_rows(connection, _COLUMNS_OF_POSTGRES)
    return _missing(found, _POSTGRES)


def _missing(found: Iterable[tuple[Any, Any]], types: Mapping[str, str]) -> list[str]:
    """Returns the statements that make or change what an earlier version had not."""
    known: dict[str, set[str]] = {}
    for table, name in found:
        known.setdefault(_text(table), set()).add(_text(name))
    statements = []
    for table, declared in TABLES.items():
        made = {name: kind.format(**types) for name, kind in declared.items()}
        there = known.get(table)
        if not there:
            columns = ", ".join(f"{name} {kind}" for name, kind in made.items())
            statements.append(f"CREATE TABLE {table} ({columns})")
            continue
        lacking = [
            name
            for name in made
            if name.strip('"') not in there and name != "PRIMARY KEY"
        ]
        statements += [
            f"ALTER TABLE {table} ADD COLUMN {name} {made[name]}" for name in lacking
        ]
        if "pusher" in lacking:
            statements += _ITEMS
    return statements


def _text(name: str | bytes) -> str:
    """Returns a name as text, whatever the program has chosen for texts."""
    return name if isinstance(name, str) else bytes(name).decode()
