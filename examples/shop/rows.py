"""The rows of the shop, in a file of SQLite or in PostgreSQL."""

import os
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import txaware
from txaware import participants
from txaware.participants.asyncio_session import AsyncSqlalchemySession
from txaware.participants.sqlalchemy import SqlalchemySession

DATABASE = os.environ.get("SHOP_DATABASE", "sqlite:///shop.db")
SERVER = os.environ.get("TXAWARE_URL", "http://127.0.0.1:11015")
ORDERS = "orders"
MAILS = "mails"


class Rows(DeclarativeBase):
    """The tables of the shop."""


class Order(Rows):
    """What somebody ordered."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    who: Mapped[str]
    item: Mapped[str]
    count: Mapped[int]


class Mail(Rows):
    """A mail that was sent about an order."""

    __tablename__ = "mails"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int]
    text: Mapped[str]


class Entry(Rows):
    """An event about an order, as the ledger has handled it."""

    __tablename__ = "ledger"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int]
    count: Mapped[int]


def connect() -> txaware.Messaging:
    """Connects to the server, where the topic and the queue are made if need be."""
    messaging = txaware.connect(SERVER)
    messaging.create_topic(ORDERS, exist_ok=True)
    messaging.create_queue(MAILS, max_deliveries=10, exist_ok=True)
    return messaging


def open_database() -> Engine:
    """Opens the database, and makes the tables that it lacks."""
    engine = create_engine(DATABASE)
    set_up(engine)
    Rows.metadata.create_all(engine)
    return engine


def set_up(engine: Engine) -> None:
    """Has connections to SQLite wait for each other."""
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def connected(connection: Any, _: object) -> None:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA busy_timeout = 30000")


async def connect_async() -> txaware.AsyncMessaging:
    """Connects to the server as `connect` does, for asyncio."""
    messaging = txaware.connect_async(SERVER)
    await messaging.create_topic(ORDERS, exist_ok=True)
    await messaging.create_queue(MAILS, max_deliveries=10, exist_ok=True)
    return messaging


async def open_async_database() -> AsyncEngine:
    """Opens the database as `open_database` does, for asyncio."""
    engine = create_async_engine(DATABASE.replace("sqlite:", "sqlite+aiosqlite:"))
    set_up(engine.sync_engine)
    async with engine.begin() as connection:
        await connection.run_sync(Rows.metadata.create_all)
    return engine


def taking_part(messaging: txaware.Messaging, session: Session) -> SqlalchemySession:
    """Makes a session decide the blocks that it takes part in.

    What a block publishes and pushes goes by the outbox, which `txaware outbox relay`
    carries over.
    """
    return participants.sqlalchemy(messaging, session, outbox=True, relay=False)


def taking_part_async(
    messaging: txaware.AsyncMessaging, session: AsyncSession
) -> AsyncSqlalchemySession:
    """Makes a session of asyncio decide its blocks, as `taking_part` does."""
    return participants.sqlalchemy(messaging, session, outbox=True, relay=False)
