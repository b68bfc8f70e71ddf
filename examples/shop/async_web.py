"""Takes orders in asyncio: `uvicorn examples.shop.async_web:app --workers 2`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from sqlalchemy.ext.asyncio import AsyncSession

from examples.shop.rows import (
    MAILS,
    ORDERS,
    Order,
    connect_async,
    open_async_database,
    taking_part_async,
)
from examples.shop.web import NewOrder
from txaware import to_json


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Opens the shop with the application, and closes it."""
    engine = await open_async_database()
    async with await connect_async() as messaging:
        app.state.engine, app.state.messaging = engine, messaging
        yield
    await engine.dispose()


app = FastAPI(title="A shop", lifespan=lifespan)


@app.post("/orders", status_code=201)
async def order(new: NewOrder) -> dict[str, int]:
    """Stores an order, announces it, and has a mail sent: all of it, or nothing."""
    messaging = app.state.messaging
    async with (
        AsyncSession(app.state.engine) as session,
        messaging.transaction(taking_part_async(messaging, session)),
    ):
        row = Order(who=new.who, item=new.item, count=new.count)
        session.add(row)
        await session.flush()
        order_id = row.id
        event = {"order": order_id, "count": new.count}
        await messaging.publisher(ORDERS, encode=to_json).publish(event)
        mail = {"order": order_id, "text": f"Dear {new.who}: {new.item} is coming."}
        await (await messaging.queue(MAILS)).push(to_json(mail))
    return {"order": order_id}
