"""A shop's database, and a connection of asyncio to it by each of the libraries."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from typing import Any

import aiosqlite
import asyncpg
import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from txaware import AsyncMessaging, participants
from txaware.participants.databases import is_postgres, open_outbox
from txaware.participants.outbox_relay import OutboxRelay

DECIDING = [
    "aiosqlite",
    "psycopg",
    "asyncpg",
    "session aiosqlite",
    "session psycopg",
    "session asyncpg",
]
PREPARED = ["psycopg prepared", "asyncpg prepared", "session psycopg prepared"]


class Shop:
    """A database with orders, at a path or an address, and a connection to it."""

    def __init__(self, kind: str, database: str) -> None:
        self.kind = kind
        self.database = database
        self.connection: Any = None
        self.participant: Any = None

    def make_table(self) -> None:
        """Makes the table of the orders anew."""
        with self.blocking() as connection:
            connection.execute("DROP TABLE IF EXISTS orders")
            connection.execute("CREATE TABLE orders (who text)")

    @contextmanager
    def blocking(self) -> Iterator[Any]:
        """Opens a connection beside it, which commits at the end."""
        if is_postgres(self.database):
            with psycopg.connect(self.database) as connection:
                yield connection
        else:
            with closing(sqlite3.connect(self.database)) as found, found:
                yield found

    @asynccontextmanager
    async def opened(self, messaging: AsyncMessaging) -> AsyncIterator["Shop"]:
        """Opens the connection, and the participant."""
        is_prepared = self.kind.endswith("prepared")
        outbox: Any = {} if is_prepared else {"outbox": True, "relay": False}
        driver = self.kind.removesuffix(" prepared").rpartition(" ")[2]
        async with AsyncExitStack() as stack:
            if self.kind.startswith("session"):
                engine = create_async_engine(self._url(driver), **self._makes(driver))
                stack.push_async_callback(engine.dispose)
                self.connection = AsyncSession(engine)
                stack.push_async_callback(self.connection.close)
                self.participant = participants.sqlalchemy(
                    messaging, self.connection, outbox=not is_prepared, relay=False
                )
            elif driver == "aiosqlite":
                self.connection = await aiosqlite.connect(self.database)
                stack.push_async_callback(self.connection.close)
                self.participant = participants.sqlite(
                    messaging, self.connection, relay=False
                )
            else:
                if driver == "asyncpg":
                    self.connection = await asyncpg.connect(self.database)
                else:
                    connect_to = psycopg.AsyncConnection.connect
                    self.connection = await connect_to(self.database)
                stack.push_async_callback(self.connection.close)
                self.participant = participants.postgres(
                    messaging, self.connection, **outbox
                )
            yield self

    def _url(self, driver: str) -> str:
        if is_postgres(self.database):
            return self.database.replace("postgresql:", f"postgresql+{driver}:")
        return f"sqlite+aiosqlite:///{self.database}"

    def _makes(self, driver: str) -> dict[str, Any]:
        return {"async_creator": self._open_file} if driver == "aiosqlite" else {}

    async def _open_file(self) -> aiosqlite.Connection:
        """Opens the file, and closes it where the task was cancelled meanwhile.

        aiosqlite 0.22 leaves that to the garbage collector, with us or without.
        """
        opening = asyncio.ensure_future(aiosqlite.connect(self.database))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            await (await opening).close()
            raise

    async def order(self, who: str) -> None:
        """Writes a row in the open block."""
        sql = f"INSERT INTO orders VALUES ('{who}')"
        statement: Any = text(sql) if self.kind.startswith("session") else sql
        await self.connection.execute(statement)

    def orders(self) -> list[str]:
        """The rows that are committed."""
        with self.blocking() as connection:
            found = connection.execute("SELECT who FROM orders").fetchall()
        return sorted(who for (who,) in found)

    def carry_over(self, messaging: Any) -> None:
        """Carries over what waits, as another process would."""
        relay = OutboxRelay(messaging, open_outbox(self.database))
        relay.carry_over()
        relay.close()
