"""The application that `web.py` measures: an order, with its event and without one."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import txaware
from tests.benchmarks.web import DATABASE, SERVER
from txaware import participants


class Base(DeclarativeBase):
    """The tables."""


class Order(Base):
    """An order."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    who: Mapped[str]
    count: Mapped[int]


def _engine() -> AsyncEngine:
    url = os.environ[DATABASE]
    if not url.startswith("sqlite"):
        return create_async_engine(url, pool_size=8)
    engine = create_async_engine(url)

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA busy_timeout = 20000")

    return engine


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Opens the database and the messaging with the application."""
    engine = _engine()
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with txaware.connect_async(os.environ[SERVER]) as messaging:
        app.state.engine, app.state.messaging = engine, messaging
        yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


async def _stored(session: AsyncSession) -> int:
    order = Order(who="ann", count=5)
    session.add(order)
    await session.flush()
    return order.id


@app.post("/alone")
async def alone() -> dict[str, int]:
    """Stores an order."""
    async with AsyncSession(app.state.engine) as session:
        order = await _stored(session)
        await session.commit()
    return {"order": order}


@app.post("/outbox")
async def by_outbox() -> dict[str, int]:
    """Stores an order and its event, by the outbox alone."""
    async with AsyncSession(app.state.engine) as session:
        order = await _stored(session)
        outbox = txaware.outbox_async(session)
        await outbox.publish("orders", b'{"order": %d, "count": 5}' % order)
        await session.commit()
    return {"order": order}


@app.post("/block")
async def in_block() -> dict[str, int]:
    """Stores an order and its event in a block that the database decides."""
    messaging = app.state.messaging
    async with AsyncSession(app.state.engine) as session:
        shop = participants.sqlalchemy(messaging, session, outbox=True, relay=False)
        async with messaging.transaction(shop):
            order = await _stored(session)
            publisher = messaging.publisher("orders")
            await publisher.publish(b'{"order": %d, "count": 5}' % order)
    return {"order": order}
