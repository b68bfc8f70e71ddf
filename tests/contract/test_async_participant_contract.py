"""The contract of participants for asyncio, kept by ours."""

from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from tests.support.postgres import PostgresServer
from txaware import AsyncMessaging, participants
from txaware.testing import AsyncParticipantContract

SCHEMA = "CREATE TABLE pairs (key bytea PRIMARY KEY, value bytea)"
PUT = """INSERT INTO pairs VALUES (%s, %s)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value"""
GET = "SELECT value FROM pairs WHERE key = %s"


class TestTable(AsyncParticipantContract):
    async def make(self, messaging: AsyncMessaging) -> Any:
        return await messaging.table("accounts")

    async def write(self, participant: Any, key: bytes, value: bytes) -> None:
        await participant.put(key, value)

    async def read(self, participant: Any, key: bytes) -> bytes | None:
        value: bytes | None = await participant.get(key)
        return value


class TestSqlite(AsyncParticipantContract):
    names_keys = False
    decides = True

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "shop.db"

    async def make(self, messaging: AsyncMessaging) -> Any:
        self.connection = await aiosqlite.connect(self.path)
        await self.connection.execute(SCHEMA)
        return participants.sqlite(messaging, self.connection, relay=False)

    async def write(self, participant: Any, key: bytes, value: bytes) -> None:
        await self.connection.execute(PUT.replace("%s", "?"), (key, value))

    async def read(self, participant: Any, key: bytes) -> bytes | None:
        found = await self.connection.execute(GET.replace("%s", "?"), (key,))
        row = await found.fetchone()
        return None if row is None else bytes(row[0])


class OnPostgres(AsyncParticipantContract):
    """A server with an empty table."""

    names_keys = False

    @pytest.fixture(autouse=True)
    def place(self, postgres_server: PostgresServer) -> None:
        self.server = postgres_server
        with postgres_server.connect() as connection:
            connection.execute("DROP TABLE IF EXISTS pairs")
            connection.execute(SCHEMA)

    def taking_part(self, messaging: AsyncMessaging, connection: Any) -> Any:
        if self.decides:
            return participants.postgres(
                messaging, connection, outbox=True, relay=False
            )
        return participants.postgres(messaging, connection)

    async def opened(self, messaging: AsyncMessaging, made: Any) -> Any:
        """Recovers first: later the coordinator may fail."""
        async with messaging.transaction(made):
            return made


class TestPsycopg(OnPostgres):
    async def make(self, messaging: AsyncMessaging) -> Any:
        self.connection = await psycopg.AsyncConnection.connect(self.server.url)
        made = self.taking_part(messaging, self.connection)
        return await self.opened(messaging, made)

    async def write(self, participant: Any, key: bytes, value: bytes) -> None:
        await self.connection.execute(PUT, (key, value))

    async def read(self, participant: Any, key: bytes) -> bytes | None:
        found = await self.connection.execute(GET, (key,))
        row = await found.fetchone()
        return None if row is None else bytes(row[0])


class TestPsycopgThatDecides(TestPsycopg):
    decides = True


class TestAsyncpg(OnPostgres):
    async def make(self, messaging: AsyncMessaging) -> Any:
        self.connection = await asyncpg.connect(self.server.url)
        made = self.taking_part(messaging, self.connection)
        return await self.opened(messaging, made)

    async def write(self, participant: Any, key: bytes, value: bytes) -> None:
        put = PUT.replace("%s", "$1", 1).replace("%s", "$2")
        await self.connection.execute(put, key, value)

    async def read(self, participant: Any, key: bytes) -> bytes | None:
        value: bytes | None = await self.connection.fetchval(
            GET.replace("%s", "$1"), key
        )
        return value


class TestAsyncpgThatDecides(TestAsyncpg):
    decides = True


class OfSqlalchemy(AsyncParticipantContract):
    """A session over an engine for asyncio."""

    names_keys = False

    async def session_at(self, url: str, messaging: AsyncMessaging) -> Any:
        self.session = AsyncSession(create_async_engine(url, poolclass=NullPool))
        made = participants.sqlalchemy(
            messaging, self.session, outbox=self.decides, relay=False
        )
        async with messaging.transaction(made):
            return made

    async def write(self, participant: Any, key: bytes, value: bytes) -> None:
        put = text(PUT.replace("%s", ":key", 1).replace("%s", ":value"))
        await participant.session.execute(put, {"key": key, "value": value})

    async def read(self, participant: Any, key: bytes) -> bytes | None:
        get = text(GET.replace("%s", ":key"))
        found = (await participant.session.execute(get, {"key": key})).scalar()
        return None if found is None else bytes(found)


class TestSqlalchemyAiosqlite(OfSqlalchemy):
    decides = True

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "shop.db"

    async def make(self, messaging: AsyncMessaging) -> Any:
        async with aiosqlite.connect(self.path) as connection:
            await connection.execute(SCHEMA)
        return await self.session_at(f"sqlite+aiosqlite:///{self.path}", messaging)


class TestSqlalchemyPsycopg(OfSqlalchemy, OnPostgres):
    driver = "psycopg"

    async def make(self, messaging: AsyncMessaging) -> Any:
        url = self.server.url.replace("postgresql:", f"postgresql+{self.driver}:")
        return await self.session_at(url, messaging)


class TestSqlalchemyPsycopgThatDecides(TestSqlalchemyPsycopg):
    decides = True


class TestSqlalchemyAsyncpg(TestSqlalchemyPsycopg):
    driver = "asyncpg"


class TestSqlalchemyAsyncpgThatDecides(TestSqlalchemyAsyncpg):
    decides = True
