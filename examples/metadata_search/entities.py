"""The rows of the application: each change and its event are one transaction."""

import sqlite3
from types import TracebackType
from typing import Any, Self

import attrs

import txaware
from txaware import participants

ENTITIES = "entities"
TABLE = """CREATE TABLE IF NOT EXISTS entities (
    id text PRIMARY KEY, name text NOT NULL, description text NOT NULL,
    tags text NOT NULL)"""
PUT = """INSERT INTO entities VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, description = excluded.description, tags = excluded.tags"""
REMOVE = "DELETE FROM entities WHERE id = ?"
ALL = "SELECT id, name, description, tags FROM entities ORDER BY id"


@attrs.frozen
class Entity:
    """What is known of something: a data set, a program, a person."""

    id: str
    name: str
    description: str = ""
    tags: str = ""


@attrs.frozen
class Changed:
    """What an entity is now; None says that it was removed."""

    id: str
    entity: Entity | None


def open_topic(messaging: txaware.Messaging) -> txaware.TypedTopic[Changed]:
    """Returns the topic of changes, made if need be: it keeps what each is now."""
    messaging.create_topic(ENTITIES, compact=True, exist_ok=True)
    return messaging.topic(ENTITIES, type=Changed)


class Entities:
    """Entities in a file of SQLite, or in a PostgreSQL that a URL names.

    Events go by the outbox of the database, and are carried over in the order of the
    commits.
    """

    def __init__(self, messaging: txaware.Messaging, database: str) -> None:
        self._messaging = messaging
        self._topic = open_topic(messaging)
        self._is_postgres = database.startswith(("postgresql:", "postgres:"))
        self._connection: Any
        self._shop: Any
        if self._is_postgres:
            import psycopg  # an extra

            self._connection = psycopg.connect(database)
            self._shop = participants.postgres(messaging, self._connection, outbox=True)
        else:
            self._connection = sqlite3.connect(database, timeout=30)
            self._shop = participants.sqlite(messaging, self._connection)
        self._execute(TABLE)
        self._connection.commit()

    def put(self, entity: Entity) -> None:
        """Writes an entity, and tells of it."""
        row = attrs.astuple(entity)
        self._change(PUT, row, Changed(entity.id, entity))

    def remove(self, name: str) -> None:
        """Removes an entity, and tells of that."""
        self._change(REMOVE, (name,), Changed(name, None))

    def _change(self, statement: str, row: tuple[str, ...], told: Changed) -> None:
        with self._messaging.transaction(self._shop):
            self._execute(statement, row)
            self._topic.publish(told, key=told.id.encode())

    def all(self) -> list[Entity]:
        """Returns all entities, by id."""
        found = [Entity(*row) for row in self._execute(ALL).fetchall()]
        self._connection.commit()
        return found

    def relay(self) -> None:
        """Has all events carried over now; in the background they are soon."""
        self._shop.relay()

    def _execute(self, statement: str, row: tuple[str, ...] = ()) -> Any:
        if self._is_postgres:
            statement = statement.replace("?", "%s")
        return self._connection.execute(statement, row)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()
