"""Sends mails and keeps the ledger in asyncio, both in one process."""

import asyncio
import signal
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from examples.shop.rows import (
    MAILS,
    ORDERS,
    Entry,
    Mail,
    connect_async,
    open_async_database,
    taking_part_async,
)
from txaware import from_json


async def work() -> None:
    """Works until SIGTERM or Ctrl-C; what is in work ends first."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    engine = await open_async_database()
    async with (
        await connect_async() as messaging,
        AsyncSession(engine) as of_mails,
        AsyncSession(engine) as of_ledger,
    ):

        async def send(job: Any, _: object) -> None:
            mail = from_json(job.payload)
            of_mails.add(Mail(order_id=mail["order"], text=mail["text"]))

        async def enter(message: Any) -> None:
            event = message.payload
            of_ledger.add(Entry(order_id=event["order"], count=event["count"]))

        worker = (await messaging.queue(MAILS)).worker(
            send,
            transaction=True,
            participants=[taking_part_async(messaging, of_mails)],
        )
        subscriber = messaging.subscribe(
            ORDERS,
            enter,
            group="ledger",
            start="first",
            decode=from_json,
            participants=[taking_part_async(messaging, of_ledger)],
        )
        await asyncio.gather(worker.run(stop), subscriber.run(stop))
    await engine.dispose()
