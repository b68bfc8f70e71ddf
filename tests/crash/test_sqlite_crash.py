"""Rows and messages of SQLite, through kills and power cuts at every step.

The steps are all that the block's commit and the relay write, in the user's file and in
the store. A kill leaves all that was written, and a power cut what had been synced.
"""

import sqlite3
from pathlib import Path

import pytest

import txaware
from tests.support.power_cuts.images import Recorded
from tests.support.power_cuts.recording import recorded, recorder
from txaware import participants
from txaware.messaging import Messaging
from txaware.participants import Sqlite

PROGRAM = """
import sqlite3
import sys
from pathlib import Path
import txaware
from txaware import participants

below = Path(sys.argv[1])
connection = sqlite3.connect(below / "shop.db")
with (
    (below / "told").open("w", buffering=1) as told,
    txaware.connect(f"leveldb:{below / 'data'}") as messaging,
):
    messaging.create_topic("orders")
    messaging.create_topic("paid")
    messaging.publish("paid", [b"1", b"2", b"3"])
    messaging.create_queue("mail")
    mail = messaging.queue("mail")
    mail.push_all([b"1", b"2", b"3"])
    connection.execute("PRAGMA journal_mode = " + sys.argv[2])
    connection.execute("PRAGMA synchronous = " + sys.argv[3])
    connection.execute("CREATE TABLE sent (number TEXT)")
    connection.execute("CREATE TABLE orders (number TEXT)")
    shop = participants.sqlite(messaging, connection, relay=False)
    inbox = shop.consumer("paid", group="orders")
    for number in range(1, 4):
        with messaging.transaction(shop):
            for message in inbox.poll(1):
                text = message.payload.decode()
                connection.execute("INSERT INTO orders VALUES (?)", (text,))
                messaging.publisher("orders").publish(message.payload)
            text = mail.pop().payload.decode()
            connection.execute("INSERT INTO sent VALUES (?)", (text,))
        print(number, file=told)
        if number != 2:
            shop.relay()
"""
OF_ASYNCIO = """
import asyncio
import sys
from pathlib import Path
import aiosqlite
import txaware
from txaware import participants

below = Path(sys.argv[1])

async def work(messaging, connection, told):
    await messaging.create_topic("orders")
    await messaging.create_topic("paid")
    await messaging.publish("paid", [b"1", b"2", b"3"])
    await messaging.create_queue("mail")
    mail = await messaging.queue("mail")
    await mail.push_all([b"1", b"2", b"3"])
    await connection.execute("PRAGMA journal_mode = " + sys.argv[2])
    await connection.execute("PRAGMA synchronous = " + sys.argv[3])
    await connection.execute("CREATE TABLE sent (number TEXT)")
    await connection.execute("CREATE TABLE orders (number TEXT)")
    shop = participants.sqlite(messaging, connection, relay=False)
    inbox = shop.consumer("paid", group="orders")
    for number in range(1, 4):
        async with messaging.transaction(shop):
            for message in await inbox.poll(1):
                text = message.payload.decode()
                await connection.execute("INSERT INTO orders VALUES (?)", (text,))
                await messaging.publisher("orders").publish(message.payload)
            text = (await mail.pop()).payload.decode()
            await connection.execute("INSERT INTO sent VALUES (?)", (text,))
        print(number, file=told)
        if number != 2:
            await shop.relay()

async def main(url):
    async with (
        aiosqlite.connect(below / "shop.db") as connection,
        txaware.connect_async(url) as messaging,
    ):
        with (below / "told").open("w", buffering=1) as told:
            await work(messaging, connection, told)

with txaware.connect(f"leveldb:{below / 'data'}") as served, served.serve() as server:
    asyncio.run(main(server.url))
"""
PROGRAMS = {"threads": PROGRAM, "asyncio": OF_ASYNCIO}
EVERY = pytest.mark.parametrize(
    "every", [17, pytest.param(1, marks=pytest.mark.soak, id="each step")]
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that records."""
    return recorder(tmp_path_factory.mktemp("library"))


def look(below: Path) -> tuple[list[str], list[str]]:
    """The orders, and the messages that tell of them, once the relay has worked."""
    connection = sqlite3.connect(below / "shop.db")
    with txaware.connect(f"leveldb:{below / 'data'}") as messaging:
        for pointer in messaging.coordinator.snapshot().in_progress:
            messaging.coordinator.invalidate(pointer)  # that of a client that is gone
        shop = participants.sqlite(messaging, connection, relay=False)
        shop.relay()
        found = connection.execute("SELECT number FROM orders").fetchall()
        messages = messaging.poll("orders", isolation="committed")
        inbox = shop.consumer("paid", group="orders")
        with messaging.transaction(shop):
            left = [message.payload.decode() for message in inbox.poll()]
        send_all(messaging, shop)
        sent = connection.execute("SELECT number FROM sent").fetchall()
        assert sorted(sent) == [("1",), ("2",), ("3",)], "each is sent once"
        [waiting] = connection.execute("SELECT count(*) FROM txaware_outbox").fetchone()
    connection.close()
    orders = [number for (number,) in found]
    assert [*orders, *left] == ["1", "2", "3"], "each is handled once"
    assert not waiting
    return orders, [message.payload.decode() for message in messages]


def send_all(messaging: Messaging, shop: Sqlite) -> None:
    """Handles what is left of the queue."""
    while True:
        with messaging.transaction(shop):
            job = messaging.queue("mail").pop()
            if job is None:
                return
            text = job.payload.decode()
            shop.connection.execute("INSERT INTO sent VALUES (?)", (text,))


@EVERY
@pytest.mark.parametrize(
    ("journal", "sync"), [("DELETE", "FULL"), ("WAL", "NORMAL")], ids=str
)
@pytest.mark.parametrize(
    "kind", ["threads", pytest.param("asyncio", marks=pytest.mark.long)]
)
def test_a_kill_or_a_power_cut_at_every_step_leaves_messages_that_match_the_rows(
    library: Path, tmp_path: Path, kind: str, journal: str, sync: str, every: int
) -> None:
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "before").mkdir()
    program = ["-c", PROGRAMS[kind], str(below), journal, sync]
    entries = recorded(library, below, tmp_path / "record", program)
    run = Recorded(below, entries, tmp_path / "before")
    seen = set()
    (tmp_path / "images").mkdir()
    for where, image, acknowledged in run.images(tmp_path / "images", every=every):
        if not is_prepared(image):
            continue
        orders, messages = look(image)
        assert messages == orders, where
        if where.startswith("all of the files"):  # SQLite says what a power cut leaves
            assert len(orders) >= acknowledged, where
        seen.add(len(orders))
    assert seen == {0, 1, 2, 3}


def is_prepared(image: Path) -> bool:
    """Tells whether the program had come so far that there are topics and tables."""
    path = image / "shop.db"
    if not path.exists():
        return False
    connection = sqlite3.connect(path)
    try:
        names = connection.execute("SELECT name FROM sqlite_master").fetchall()
    finally:
        connection.close()
    return ("txaware_state",) in names and ("orders",) in names
