"""A full-text index of the entities (FTS5 of SQLite), kept in step exactly once."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import attrs

import txaware
from examples.metadata_search.entities import ENTITIES, Changed, open_topic
from txaware import Message, participants

STATE = """CREATE TABLE IF NOT EXISTS state (
    one integer PRIMARY KEY CHECK (one = 1), current integer, last integer)"""
NEW = "INSERT OR IGNORE INTO state VALUES (1, NULL, 0)"
OURS = "SELECT name FROM sqlite_master WHERE name GLOB 'ids_*' OR name GLOB 'words_*'"


class SupersededError(Exception):
    """Somebody has built the index anew: the tables of before are gone."""


@attrs.frozen
class Hit:
    """An entity that fits a search, with the words marked where they stand."""

    id: str
    name: str
    text: str


class SearchIndex:
    """The index in a file of its own; any process that has the file may search.

    Its tables have the number of their building. A group reads the topic for each, and
    its place is a row of the same file: it moves with the rows that the messages make,
    so each change is in the index once. A new index is built beside the present one,
    from the beginning of the topic, and takes its place when it has caught up.
    """

    def __init__(self, messaging: txaware.Messaging, path: Path | str) -> None:
        self._messaging = messaging
        self._path = path
        open_topic(messaging)
        with closing(self._connect()) as connection, connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(STATE)
            connection.execute(NEW)

    def catch_up(self) -> int:
        """Takes in all changes that are there; returns how many that were."""
        with closing(self._connect()) as connection:
            number = self._current(connection)
            if number is None:
                return self.rebuild()
            try:
                return self._read(connection, number)
            except SupersededError:
                return self.catch_up()

    def rebuild(self) -> int:
        """Builds the index anew from the topic, while searches and writes go on.

        Returns how many changes were read.
        """
        with closing(self._connect()) as connection:
            number = self._begin(connection)
            count = self._read(connection, number)
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                self._require_newest(connection, number)
                for name in _tables_before(connection, number):
                    connection.execute(f"DROP TABLE {name}")
                connection.execute("UPDATE state SET current = ?", (number,))
        return count

    def _require_newest(self, connection: sqlite3.Connection, number: int) -> None:
        current = self._current(connection)
        if current is not None and current > number:
            raise SupersededError(f"index {number} was built anew as {current}")

    def _begin(self, connection: sqlite3.Connection) -> int:
        """Makes the tables of the next building; no number comes again."""
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE state SET last = last + 1")
            [number] = connection.execute("SELECT last FROM state").fetchone()
            connection.execute(
                f"CREATE TABLE ids_{number} (row integer PRIMARY KEY, id text UNIQUE)"
            )
            connection.execute(
                f"CREATE VIRTUAL TABLE words_{number} "
                f"USING fts5(name, description, tags)"
            )
        found: int = number
        return found

    def _read(self, connection: sqlite3.Connection, number: int) -> int:
        """Takes the changes that are there into the tables of a building."""

        def enter(message: Message[Changed]) -> None:
            self._enter(connection, number, message.payload)

        # What it makes is no message, so there is no outbox to be carried over.
        index = participants.sqlite(self._messaging, connection, relay=False)
        loop = self._messaging.topic(ENTITIES, type=Changed).subscribe(
            enter, group=f"search-{number}", start="first", participants=[index]
        )
        count = 0
        while entered := loop.run_once():
            count += entered
        return count

    def _enter(
        self, connection: sqlite3.Connection, number: int, changed: Changed
    ) -> None:
        self._require_newest(connection, number)
        ids, words, entity = f"ids_{number}", f"words_{number}", changed.entity
        find = f"SELECT row FROM {ids} WHERE id = ?"
        row = connection.execute(find, (changed.id,)).fetchone()
        if row is not None:
            connection.execute(f"DELETE FROM {words} WHERE rowid = ?", row)
            connection.execute(f"DELETE FROM {ids} WHERE row = ?", row)
        if entity is not None:
            made = connection.execute(
                f"INSERT INTO {ids} (id) VALUES (?)", (changed.id,)
            )
            connection.execute(
                f"INSERT INTO {words} (rowid, name, description, tags) "
                f"VALUES (?, ?, ?, ?)",
                (made.lastrowid, entity.name, entity.description, entity.tags),
            )

    def search(self, text: str, limit: int = 20) -> list[Hit]:
        """Returns the entities that have all of these words, the best first.

        A word that ends with `*` stands for all that begin so.
        """
        with closing(self._connect()) as connection:
            connection.execute("BEGIN")  # or the tables could go in between
            number = self._current(connection)
            if number is None or not text.split():
                return []
            words = f"words_{number}"
            found = connection.execute(
                f"SELECT ids.id, {words}.name, "
                f"snippet({words}, -1, '[', ']', '...', 10) "
                f"FROM {words} JOIN ids_{number} AS ids ON ids.row = {words}.rowid "
                f"WHERE {words} MATCH ? ORDER BY rank LIMIT ?",
                (" ".join(_quoted(text)), limit),
            )
            return [Hit(*row) for row in found]

    def ids(self) -> list[str]:
        """Returns the ids of all entities in the index."""
        with closing(self._connect()) as connection:
            connection.execute("BEGIN")
            number = self._current(connection)
            if number is None:
                return []
            rows = connection.execute(f"SELECT id FROM ids_{number} ORDER BY id")
            return [name for (name,) in rows]

    def _current(self, connection: sqlite3.Connection) -> int | None:
        [found] = connection.execute("SELECT current FROM state").fetchone()
        number: int | None = found
        return number

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=30)


def _tables_before(connection: sqlite3.Connection, number: int) -> list[str]:
    """Returns the tables of earlier buildings, and of those that were lost."""
    found = []
    for (name,) in connection.execute(OURS):
        _, *rest = name.split("_")
        # Those of FTS5 itself have one more word, and go with theirs.
        if len(rest) == 1 and int(rest[0]) < number:
            found.append(name)
    return found


def _quoted(text: str) -> Iterator[str]:
    """Yields words as FTS5 takes them, whatever stands in them."""
    for word in text.split():
        bare = word.removesuffix("*").replace('"', '""')
        yield f'"{bare}"' + "*" * word.endswith("*")
