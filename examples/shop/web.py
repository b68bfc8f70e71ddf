"""Takes orders: `uvicorn examples.shop.web:app --workers 2`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, PositiveInt
from sqlalchemy import select
from sqlalchemy.orm import Session

import txaware
from examples.shop.rows import MAILS, ORDERS, Order, connect, open_database, taking_part
from txaware import to_json


class NewOrder(BaseModel):
    """What a customer sends."""

    who: str
    item: str
    count: PositiveInt = 1


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Opens the shop with the application, and closes it."""
    engine = open_database()
    with connect() as messaging:
        app.state.engine, app.state.messaging = engine, messaging
        yield
    engine.dispose()


app = FastAPI(title="A shop", lifespan=lifespan)


@app.post("/orders", status_code=201)
def order(new: NewOrder) -> dict[str, int]:
    """Stores an order, announces it, and has a mail sent: all of it, or nothing."""
    messaging = app.state.messaging
    with (
        Session(app.state.engine) as session,
        messaging.transaction(taking_part(messaging, session)),
    ):
        row = Order(who=new.who, item=new.item, count=new.count)
        session.add(row)
        session.flush()
        order_id = row.id
        event = {"order": order_id, "count": new.count}
        messaging.publisher(ORDERS, encode=to_json).publish(event)
        mail = {"order": order_id, "text": f"Dear {new.who}: {new.item} is coming."}
        messaging.queue(MAILS).push(to_json(mail))
    return {"order": order_id}


@app.exception_handler(txaware.Unavailable)
def come_again(_: Request, error: Exception) -> JSONResponse:
    """Tells the customer to come again where the server of messages is away."""
    return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "5"})


@app.get("/orders")
def orders() -> list[dict[str, str | int]]:
    """Lists the latest orders."""
    with Session(app.state.engine) as session:
        latest = session.scalars(select(Order).order_by(Order.id.desc()).limit(100))
        return [
            {"order": row.id, "who": row.who, "item": row.item, "count": row.count}
            for row in latest
        ]
