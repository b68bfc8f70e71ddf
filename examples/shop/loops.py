"""Sends mails, and keeps a ledger of the orders: the loops beside the web server."""

import signal
import threading
from typing import Any, Protocol

from sqlalchemy.orm import Session

from examples.shop.rows import (
    MAILS,
    ORDERS,
    Entry,
    Mail,
    connect,
    open_database,
    taking_part,
)
from txaware import from_json


class Loop(Protocol):
    """What runs until it is closed."""

    def run(self) -> None:
        """Runs until it is closed."""

    def close(self) -> None:
        """Ends it, once what it does now is done."""


def send_mails() -> None:
    """Takes jobs of the queue; a job ends with the row that says what was sent."""
    with connect() as messaging, Session(open_database()) as session:

        def send(job: Any, _: object) -> None:
            mail = from_json(job.payload)
            # A mail server would have to be told the job's id, and know it again.
            session.add(Mail(order_id=mail["order"], text=mail["text"]))

        shop = taking_part(messaging, session)
        run_until_told(
            messaging.queue(MAILS).worker(
                send, threads=1, transaction=True, participants=[shop]
            )
        )


def keep_ledger() -> None:
    """Handles the events; the place in the topic is saved with the rows."""
    with connect() as messaging, Session(open_database()) as session:

        def enter(message: Any) -> None:
            event = message.payload
            session.add(Entry(order_id=event["order"], count=event["count"]))

        run_until_told(
            messaging.subscribe(
                ORDERS,
                enter,
                group="ledger",
                start="first",
                decode=from_json,
                participants=[taking_part(messaging, session)],
            )
        )


def run_until_told(loop: Loop) -> None:
    """Runs a loop until SIGTERM or Ctrl-C."""

    def close(*_: object) -> None:
        # Not in this thread: `close` waits until `run` has ended, which runs in it.
        threading.Thread(target=loop.close).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, close)
    loop.run()
