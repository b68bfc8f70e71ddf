"""A shop and the relays of its outbox, as processes to be killed.

`shop` commits orders, each with a message, an item, and now and then a message that the
relays of small means cannot carry; `relay` carries over, and `retry` tries again what
is set aside, by a relay that can. Each goes on until it is killed, and says so first
when it has begun.
"""

import sqlite3
import sys
import time
from contextlib import suppress
from typing import Any

import psycopg
import pymysql

import txaware
from tests.support.mysql import connected
from txaware import participants
from txaware.errors import TxAwareError
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.participants.database_outbox import DatabaseOutbox, NothingSetAside
from txaware.participants.database_steps import library_of
from txaware.participants.databases import is_mysql, is_postgres, open_outbox
from txaware.participants.outbox_relay import OutboxRelay

LARGE, SMALL_LIMIT_BYTES = bytes(2_000), 1_000
EVERY = 3
AWAY = (sqlite3.OperationalError, psycopg.OperationalError, pymysql.OperationalError)
# More orders show nothing more, and have to be compared.
ORDER_S, RETRY_S = 0.005, 0.2


def connection_to(database: str) -> Any:
    """Opens the database of the shop, and makes its table."""
    connection: Any
    if is_postgres(database):
        connection = psycopg.connect(database)
    elif is_mysql(database):
        connection = connected(database)
    else:
        connection = sqlite3.connect(database, timeout=60)
    connection.execute("CREATE TABLE IF NOT EXISTS orders (number TEXT)")
    connection.commit()
    return connection


def participant_of(messaging: Messaging, connection: Any) -> Any:
    """Makes a participant without a relay in this process."""
    if isinstance(connection, sqlite3.Connection):
        return participants.sqlite(messaging, connection, relay=False)
    is_mysql = library_of(connection) == "pymysql"
    make: Any = participants.mysql if is_mysql else participants.postgres
    return make(messaging, connection, outbox=True, relay=False)


def shop(messaging: Messaging, database: str, life: str) -> None:
    """Commits orders for ever."""
    connection = connection_to(database)
    taker = participant_of(messaging, connection)
    place = "?" if isinstance(connection, sqlite3.Connection) else "%s"
    mails = messaging.queue("mails")
    begun()
    number = 0
    while True:
        number += 1
        name = f"{life}-{number}"
        with messaging.transaction(taker):
            connection.execute(f"INSERT INTO orders VALUES ({place})", (name,))
            messaging.publisher("orders").publish(name.encode())
            mails.push(name.encode())
            if number % EVERY == 0:
                messaging.publisher("large").publish(name.encode() + b" " + LARGE)
        time.sleep(ORDER_S)


def relay(messaging: Messaging, database: str) -> None:
    """Carries over for ever."""
    work = OutboxRelay(messaging, open_outbox(database), batch_rows=20)
    begun()
    while True:
        work.carry_over()


def retry(messaging: Messaging, database: str) -> None:
    """Tries again what is set aside, for ever."""
    rows = open_outbox(database)
    outbox = DatabaseOutbox(rows, OutboxRelay(messaging, rows))
    begun()
    while True:
        with suppress(NothingSetAside):
            outbox.retry("large")
        time.sleep(RETRY_S)


def begun() -> None:
    """Tells that there is work from now on."""
    print("begun", flush=True)  # to the test


def main(role: str, url: str, database: str, life: str) -> None:
    """Plays a role again and again, whatever is killed meanwhile."""
    limit = SMALL_LIMIT_BYTES if role == "relay" else 1 << 20
    settings = Settings(message_limit_bytes=limit)
    while True:
        with (
            suppress(TxAwareError, *AWAY),
            txaware.connect(url, settings=settings) as messaging,
        ):
            if role == "shop":
                shop(messaging, database, f"{life}-{time.monotonic_ns()}")
            elif role == "relay":
                relay(messaging, database)
            else:
                retry(messaging, database)


if __name__ == "__main__":
    main(*sys.argv[1:])
