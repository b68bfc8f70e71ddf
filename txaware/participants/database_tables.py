"""Makes the tables of ours in a user's database; older ones get what they lack."""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from txaware.participants.database_link import DatabaseLink
from txaware.participants.database_steps import Steps, in_thread
from txaware.participants.sql_dialect import SqlDialect

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
        "consumer_group": "{name}",
        "topic": "{name}",
        "position": "{bytes}",
        "PRIMARY KEY": "(consumer_group, topic)",
    },
    "txaware_inbox_items": {
        "store": "{name}",
        "queue": "{name}",
        "item": "{name}",
        "PRIMARY KEY": "(store, queue, item)",
    },
    "txaware_state": {
        "one": "{integer} PRIMARY KEY CHECK (one = 1)",
        "outbox_id": "{name} NOT NULL",
        '"reads"': "{integer}",
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
_ID = "SELECT outbox_id FROM txaware_state"


def made_tables(link: DatabaseLink) -> str:
    """Makes or changes the tables that need it; returns the id of the outbox.

    Where all are there they are only read: a change would wait for whoever uses them.
    """
    dialect = link.dialect

    def work(connection: Any) -> str:
        execute = dialect.executing(connection)
        if not in_thread(missing(dialect, connection)):
            found = execute(_ID, ()).fetchone()
            if found is not None:
                return str(found[0])
        with link.making_tables(connection):
            for statement in in_thread(missing(dialect, connection)):
                execute(statement, ())
            execute(dialect.state, (uuid.uuid4().hex,))
            return str(execute(_ID, ()).fetchone()[0])

    return link.run(work)


def missing(dialect: SqlDialect, connection: Any) -> Steps[list[str]]:
    """Returns the statements that make or change what a database lacks."""
    found = yield from dialect.rows(connection, dialect.columns)
    return _missing(found, dialect.types)


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
            made_of = types["table"]
            statements.append(f"CREATE TABLE {table} ({columns}) {made_of}".strip())
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
