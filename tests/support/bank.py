"""A bank over a table, databases and topics: its moves, and what has to hold.

Run as a program it moves money until it is killed, by a hook at a step or from outside.
"""

import os
import random
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import psycopg
import pymysql

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.concurrency import until
from tests.support.mysql import connected
from txaware import participants
from txaware.errors import TxAwareError
from txaware.participants.databases import is_mysql
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.postgres import PreparedInPostgres
from txaware.participants.prepared_database import PreparedDatabase
from txaware.participants.sqlite import Sqlite
from txaware.participants.sqlite_outbox import SqliteOutbox

BEGIN = 1_000
# What a kill leaves open over the network ends soon.
TIMEOUT_S, ENDS_S = 5, 60
TOPICS = ("transfers", "to_table", "to_sqlite")
NEVER = "never"
# Each step of a commit and of the relay: the call, and whether the blow comes after it.
STEPS: dict[str, tuple[type, str, bool]] = {
    "before the prepare": (PreparedDatabase, "commit_tx", False),
    "after the prepare": (PreparedDatabase, "commit_tx", True),
    "before the commit": (EmbeddedCoordinator, "commit_with", False),
    "after the commit": (EmbeddedCoordinator, "commit_with", True),
    "before the end of what is prepared": (PreparedDatabase, "post_tx_commit", False),
    "after the end of what is prepared": (PreparedDatabase, "post_tx_commit", True),
    "before it is settled": (PreparedInPostgres, "end", False),
    "after it is settled": (PreparedInPostgres, "end", True),
    "before the commit of SQLite": (Sqlite, "_commit", False),
    "after the commit of SQLite": (Sqlite, "_commit", True),
    "before the relay looks": (SqliteOutbox, "take", False),
    "after the relay has removed a batch": (SqliteOutbox, "take", True),
    "after the relay has published": (OutboxRelay, "_carry_batch", True),
}


def kill_at(step: str, count: int) -> None:
    """Has this process kill itself when it comes to a step that many times."""
    if step == NEVER:
        return
    kind, name, is_after = STEPS[step]
    call, left = getattr(kind, name), [count]

    def blow() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    def hooked(*arguments: Any, **options: Any) -> Any:
        if not is_after:
            blow()
        found = call(*arguments, **options)
        if is_after:
            blow()
        return found

    setattr(kind, name, hooked)


@attrs.frozen
class State:
    """The balances, and what tells of the transfers."""

    balances: dict[str, int]
    rows: list[str]
    messages: list[str]

    @property
    def total(self) -> int:
        """All money that there is."""
        return sum(self.balances.values())


class Bank:
    """The bank: an account in each place, and transfers between them."""

    def __init__(
        self, messaging: txaware.Messaging, below: Path, url: str, **options: Any
    ) -> None:
        self._messaging = messaging
        self._rows = sqlite3.connect(below / "bank.db")
        has_mysql = is_mysql(url)
        self._connection = connected(url) if has_mysql else psycopg.connect(url)
        self._table = messaging.table("accounts", encode=to_bytes, decode=int)
        for topic in TOPICS:
            if topic not in messaging.topics():
                messaging.create_topic(topic)
        make: Any = participants.mysql if has_mysql else participants.postgres
        self.prepared = make(messaging, self._connection, **options)
        # What is prepared has its locks until then.
        assert until(lambda: self.prepared.recover() == [], timeout_s=ENDS_S)
        self._make()
        self.sqlite = participants.sqlite(messaging, self._rows, relay=False)
        self._inbox = self.sqlite.consumer("to_sqlite", group="bank")
        self._consumer = messaging.consumer("to_table", group="bank")

    def close(self) -> None:
        """Closes its connections."""
        self._rows.close()
        self._connection.close()

    def move(self, amount: int, name: str) -> None:
        """Moves money around: each transfer has a row where it began, and a message."""
        messaging, told = self._messaging, name.encode()
        with messaging.transaction(self.prepared, timeout_s=TIMEOUT_S):
            self._add_in_table(-amount)
            self._connection.execute("UPDATE account SET money = money + %s", (amount,))
            self._connection.execute("INSERT INTO transfer VALUES (%s)", (name,))
            messaging.publisher("transfers").publish(told)
        with messaging.transaction(self.sqlite):
            self._rows.execute("UPDATE account SET money = money - ?", (amount,))
            messaging.publisher("to_table").publish(str(amount).encode())
        with messaging.transaction(timeout_s=TIMEOUT_S):
            self._add_in_table(-2 * amount)
            messaging.publisher("to_sqlite").publish(str(2 * amount).encode())
        with messaging.transaction(self.prepared, timeout_s=TIMEOUT_S):
            self._connection.execute("UPDATE account SET money = money - %s", (amount,))
            self._add_in_table(amount)
        self.settle()

    def settle(self) -> None:
        """Books what is on its way."""
        self.sqlite.relay()
        with self._messaging.transaction(timeout_s=TIMEOUT_S):
            for message in self._consumer.poll():
                self._add_in_table(int(message.payload))
        with self._messaging.transaction(self.sqlite):
            for message in self._inbox.poll():
                add = "UPDATE account SET money = money + ?"
                self._rows.execute(add, (int(message.payload),))

    def state(self) -> State:
        """Settles, and tells what there is."""
        assert until(self._is_decided, timeout_s=ENDS_S)
        self.settle()
        [in_sqlite] = self._rows.execute("SELECT money FROM account").fetchone()
        execute = self._connection.execute
        [(in_prepared,)] = execute("SELECT money FROM account").fetchall()
        rows = execute("SELECT name FROM transfer").fetchall()
        self._connection.commit()
        page = self._messaging.poll("transfers", isolation="committed", limit=10_000)
        balances = {"table": self._table.get(b"bank") or 0, "sqlite": in_sqlite}
        return State(
            {**balances, "prepared": in_prepared},
            sorted(name for (name,) in rows),
            sorted(message.payload.decode() for message in page),
        )

    def _is_decided(self) -> bool:
        """Tells whether all transactions that a kill left open have ended."""
        pages = [self._messaging.poll(topic, isolation="committed") for topic in TOPICS]
        return not self.prepared.recover() and not any(one.blocked_by for one in pages)

    def _add_in_table(self, amount: int) -> None:
        self._table.put(b"bank", (self._table.get(b"bank") or 0) + amount)

    def _make(self) -> None:
        self._rows.execute("CREATE TABLE IF NOT EXISTS account (money)")
        with self._rows:
            self._rows.execute(
                "INSERT INTO account SELECT ? WHERE NOT EXISTS (SELECT 1 FROM account)",
                (BEGIN,),
            )
        execute: Callable[..., Any] = self._connection.execute
        execute("CREATE TABLE IF NOT EXISTS account (money bigint)")
        execute("CREATE TABLE IF NOT EXISTS transfer (name text)")
        execute(
            "INSERT INTO account SELECT %s FROM (SELECT 1) AS one "
            "WHERE NOT EXISTS (SELECT 1 FROM account)",
            (BEGIN,),
        )
        self._connection.commit()


def to_bytes(money: int) -> bytes:
    """The value of an account, as a table keeps it."""
    return str(money).encode()


def main(
    below: Path,
    store: str,
    url: str,
    settle: str,
    step: str,
    count: int,
    rounds: int,
    name: str,
) -> None:
    """Moves money so often; ends earlier where the store or the database does."""
    chance = random.Random(name)
    with (
        suppress(psycopg.Error, pymysql.Error, TxAwareError),
        txaware.connect(store) as messaging,
    ):
        options = {} if is_mysql(url) else {"settle": settle}
        bank = Bank(messaging, below, url, **options)
        kill_at(step, count)
        for number in range(rounds):
            bank.move(chance.randrange(1, 50), f"{name} {number}")


if __name__ == "__main__":
    place, data, address, when, at, at_count, at_most, own = sys.argv[1:]
    main(Path(place), data, address, when, at, int(at_count), int(at_most), own)
