"""The outbox without a server: rows of the program's own transaction, carried later."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import txaware
from tests.support.cli_runs import run, start
from tests.support.concurrency import in_loop, until
from tests.support.database_server import DatabaseServer
from tests.support.ports import free_port
from txaware import Messaging, participants
from txaware.errors import BadRequest, MisusedTransaction, TxAwareError, Unavailable
from txaware.participants import outbox_writer
from txaware.participants.database_tables import missing
from txaware.participants.databases import open_outbox
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.outbox_row import OutboxRows
from txaware.participants.sqlite_outbox import SqliteOutbox

Opened = Callable[[], Any]


@pytest.fixture
def messaging() -> Iterator[Messaging]:
    with txaware.connect("memory:") as opened:
        opened.create_topic("t")
        opened.create_queue("mail")
        yield opened


class Place:
    """A database of the program's, with a table of orders."""

    def __init__(self, path: Path, server: DatabaseServer | None) -> None:
        self.path = path
        self.server = server
        with closing(self.connect()) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS orders (who text)")
            connection.commit()

    def connect(self) -> Any:
        return sqlite3.connect(self.path) if self.server is None else self._connected()

    def _connected(self) -> Any:
        assert self.server is not None
        return self.server.connect()

    def url(self, driver: str) -> str:
        if self.server is None:
            return f"sqlite{'+' * bool(driver)}{driver}:///{self.path}"
        scheme = self.server.url.partition(":")[0]
        return self.server.url.replace(f"{scheme}:", f"{scheme}+{driver}:")

    def rows(self) -> OutboxRows:
        if self.server is None:
            return SqliteOutbox(self.path)
        return open_outbox(self.server.url)

    def orders(self) -> list[str]:
        with closing(self.connect()) as connection:
            found = connection.execute("SELECT who FROM orders").fetchall()
        return [who for (who,) in found]

    def carry_over(self, messaging: Messaging) -> int:
        relay = OutboxRelay(messaging, self.rows())
        count = relay.carry_over()
        relay.close()
        return count


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind, server = request.getfixturevalue("kind"), None
    if "pymysql" in kind:
        server = request.getfixturevalue("mysql_server")
    elif "sqlite" not in kind:
        server = request.getfixturevalue("postgres_server")
    return Place(tmp_path / "shop.db", server)


def check_carried(messaging: Messaging, place: Place) -> None:
    assert place.orders() == ["ann"]
    assert place.carry_over(messaging) == 4
    assert place.carry_over(messaging) == 0
    first, second, third = messaging.poll("t", isolation="committed")
    assert (first.payload, first.key, first.headers) == (b"1", b"k", {"h": b"v"})
    assert [second.payload, third.payload] == [b"2", b"3"]
    job = messaging.queue("mail").pop()
    assert job is not None
    assert (job.payload, job.key) == (b"item", b"q")


def is_there(messaging: Messaging, payload: bytes) -> bool:
    return payload in [message.payload for message in messaging.poll("t")]


BLOCKING = [
    *("sqlite3", "psycopg", "pymysql"),
    *("session sqlite", "session psycopg", "session pymysql"),
]


@pytest.mark.parametrize("kind", BLOCKING)
def test_rows_go_with_the_transaction_that_the_program_commits(
    messaging: Messaging, place: Place, kind: str
) -> None:
    engine: Any = None
    if kind.startswith("session"):
        engine = create_engine(
            place.server.session_url if place.server else place.url("")
        )
        given: Any = Session(engine)
    else:
        given = place.connect()

    def order(who: str) -> None:
        sql = f"INSERT INTO orders VALUES ('{who}')"
        given.execute(text(sql) if engine is not None else sql)

    outbox = txaware.outbox(given)
    for end in (given.rollback, given.commit):
        order("ann")
        outbox.publish("t", b"1", key=b"k", headers={"h": b"v"})
        outbox.publish_all("default:t", [b"2", b"3"])
        outbox.push("mail", b"item", key=b"q", priority=3)
        end()
    given.close()
    if engine is not None:
        engine.dispose()
    check_carried(messaging, place)


AWAITED = [
    *("aiosqlite", "psycopg", "asyncpg"),
    *("session aiosqlite", "session psycopg", "session asyncpg"),
]


@pytest.mark.parametrize("kind", AWAITED)
@in_loop
async def test_rows_of_asyncio_go_with_the_transaction_of_the_program(
    messaging: Messaging, place: Place, kind: str
) -> None:
    engine: Any = None
    given: Any
    driver = kind.rpartition(" ")[2]
    if kind.startswith("session"):
        engine = create_async_engine(place.url(driver))
        given = AsyncSession(engine)
    elif driver == "aiosqlite":
        given = await aiosqlite.connect(place.path)
    else:
        assert place.server is not None
        if driver == "asyncpg":
            given = await asyncpg.connect(place.server.url)
        else:
            given = await psycopg.AsyncConnection.connect(place.server.url)
    outbox = txaware.outbox_async(given)
    for ends in ("rollback", "commit"):
        transaction = given.transaction() if kind == "asyncpg" else given
        if kind == "asyncpg":
            await transaction.start()
        sql = "INSERT INTO orders VALUES ('ann')"
        await given.execute(text(sql) if engine is not None else sql)
        await outbox.publish("t", b"1", key=b"k", headers={"h": b"v"})
        await outbox.publish_all("default:t", [b"2", b"3"])
        await outbox.push("mail", b"item", key=b"q", priority=3)
        await getattr(transaction, ends)()
    await given.close()
    if engine is not None:
        await engine.dispose()
    await asyncio.to_thread(check_carried, messaging, place)


@pytest.mark.parametrize(
    "kind", ["session sqlite", "session psycopg", "session pymysql"]
)
def test_sessions_of_one_connection_look_for_the_tables_once(
    messaging: Messaging, place: Place, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a web server do, each for a request."""
    place.rows().close()  # which makes them
    looks: list[object] = []

    def looked(*arguments: Any) -> Any:
        looks.append(arguments)
        return missing(*arguments)

    monkeypatch.setattr(outbox_writer, "missing", looked)
    url = place.server.session_url if place.server else place.url("")
    engine = create_engine(url)
    for number in range(3):
        with Session(engine) as session:
            txaware.outbox(session).publish("t", b"%d" % number)
            session.commit()
    engine.dispose()
    assert len(looks) == 1
    assert place.carry_over(messaging) == 3


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg", "pymysql"])
def test_a_connection_in_autocommit_has_to_have_a_transaction_open(
    messaging: Messaging, place: Place, kind: str
) -> None:
    connection = place.connect()
    if kind == "sqlite3":
        connection.isolation_level = None
    elif kind == "pymysql":
        connection.autocommit(True)
    else:
        connection.autocommit = True
    outbox = txaware.outbox(connection)
    for call in (outbox.publish, outbox.push):
        with pytest.raises(MisusedTransaction, match="is in autocommit"):
            call("t", b"never")
    connection.execute("BEGIN")
    outbox.publish("t", b"1")
    connection.execute("COMMIT")
    connection.close()
    assert place.carry_over(messaging) == 1


def test_what_is_wrong_is_told_before_anything_is_written(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db")
    outbox = txaware.outbox(connection)
    wrong: Any = "text"
    for call, *values in (
        (outbox.publish, "no topic!", b""),
        (outbox.publish, "t", wrong),
        (outbox.push, "no queue!", b""),
        (outbox.publish_all, "t", b"bytes"),
    ):
        with pytest.raises(TxAwareError):
            call(*values)
    with pytest.raises(TxAwareError):
        outbox.push("mail", b"", delay_s=-1)
    assert not connection.in_transaction
    async_one: Any = AsyncSession()
    for make, given, named in (
        (txaware.outbox, async_one, "txaware.outbox_async"),
        (txaware.outbox_async, connection, "txaware.outbox"),
        (txaware.outbox, 5, "Session of SQLAlchemy"),
    ):
        made: Any = make
        with pytest.raises(BadRequest, match=named) as caught:
            made(given)
        assert "\n" not in str(caught.value)
    connection.close()


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg", "pymysql"])
def test_who_waits_for_rows_is_woken_by_their_commit(place: Place, kind: str) -> None:
    rows = place.rows()
    connection = place.connect()
    while rows.wait(0):
        pass
    woken: list[bool] = []
    waiting = threading.Thread(target=lambda: woken.append(rows.wait(20)))
    waiting.start()
    txaware.outbox(connection).publish("t", b"1")
    assert not woken
    connection.commit()
    waiting.join()
    assert woken == [True]
    assert rows.oldest_ms() is not None
    rows.close()
    connection.close()


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg", "pymysql"])
def test_a_relay_in_a_process_is_woken_by_the_commits_of_others(
    messaging: Messaging, place: Place, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would look by itself in an hour."""
    monkeypatch.setattr("txaware.participants.outbox_relay.LOOK_S", 3_600)
    relay = OutboxRelay(messaging, place.rows())
    relay.start()
    connection = place.connect()
    outbox = txaware.outbox(connection)
    for payload in (b"1", b"2", b"3"):
        outbox.publish("t", payload)
        connection.commit()
        assert until(partial(is_there, messaging, payload))
    connection.close()
    relay.close()


@pytest.mark.parametrize("kind", ["sqlite3", "psycopg", "pymysql", "session sqlite"])
def test_a_block_that_a_database_decides_needs_no_server(
    messaging: Messaging, place: Place, kind: str
) -> None:
    """Each call at the server would be tried for ten seconds."""
    url = f"http://127.0.0.1:{free_port()}"
    began_s = time.monotonic()
    with ExitStack() as stack:
        away = txaware.connect(url)
        if kind.startswith("session"):
            engine = create_engine(place.url(""))
            stack.callback(engine.dispose)
            given: Any = stack.enter_context(Session(engine))
            shop: Any = participants.sqlalchemy(away, given, relay=False)
        else:
            given = stack.enter_context(closing(place.connect()))
            if kind == "psycopg":
                shop = participants.postgres(away, given, outbox=True, relay=False)
            elif kind == "pymysql":
                shop = participants.mysql(away, given, outbox=True, relay=False)
            else:
                shop = participants.sqlite(away, given, relay=False)
        for who in ("never", "ann"):
            sql: Any = f"INSERT INTO orders VALUES ('{who}')"
            sql = text(sql) if kind.startswith("session") else sql
            with suppress(ZeroDivisionError), away.transaction(shop):
                given.execute(sql)
                away.publisher("t").publish(b"1", key=b"k", headers={"h": b"v"})
                away.publisher("t").publish_all([b"2", b"3"])
                away.queue("mail").push(b"item", key=b"q")
                assert 1 / (who == "ann")
        assert time.monotonic() - began_s < 8
        away.close()
    check_carried(messaging, place)


@in_loop
async def test_a_block_of_asyncio_that_a_database_decides_needs_no_server(
    messaging: Messaging, tmp_path: Path
) -> None:
    place = Place(tmp_path / "shop.db", None)
    began_s = time.monotonic()
    away = txaware.connect_async(f"http://127.0.0.1:{free_port()}")
    async with aiosqlite.connect(place.path) as connection:
        shop = participants.sqlite(away, connection, relay=False)
        async with away.transaction(shop):
            await connection.execute("INSERT INTO orders VALUES ('ann')")
            publisher = away.publisher("t")
            await publisher.publish(b"1", key=b"k", headers={"h": b"v"})
            await publisher.publish_all([b"2", b"3"])
            await (await away.queue("mail")).push(b"item", key=b"q")
        await away.close()
    assert time.monotonic() - began_s < 8
    await asyncio.to_thread(check_carried, messaging, place)


def test_connect_asks_no_server_and_the_first_call_tells() -> None:
    settings = txaware.Settings(call_timeout_s=1)
    url = f"http://127.0.0.1:{free_port()}"
    with (
        txaware.connect(url, settings=settings) as messaging,
        pytest.raises(Unavailable),
    ):
        messaging.topics()


def test_a_relay_outlives_an_absent_server_and_carries_over_once_it_is_there(
    tmp_path: Path,
) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db")
    txaware.outbox(connection).publish("t", b"1")
    connection.commit()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    every = ("--every", "1h")
    relay = start("--url", url, "outbox", "relay", str(tmp_path / "shop.db"), *every)
    try:
        assert relay.stderr is not None
        told = relay.stderr.readline().decode()
        assert "1 message waiting, the oldest for " in told
        assert "again in " in told
        with txaware.connect("memory:") as messaging:
            messaging.create_topic("t")
            with messaging.serve(port=port):
                assert until(lambda: len(messaging.poll("t")), timeout_s=60) == 1
                txaware.outbox(connection).publish("t", b"2")
                connection.commit()
                assert until(lambda: len(messaging.poll("t")) == 2)
                relay.terminate()
                assert relay.wait(60) == 0
    finally:
        relay.kill()
        relay.communicate()
        connection.close()


def test_the_age_of_what_waits_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    connection = sqlite3.connect("shop.db")
    txaware.outbox(connection).publish("t", b"1")
    connection.commit()
    connection.close()
    told = run("outbox", "list", "shop.db").stderr
    assert "1 message waiting, the oldest for " in told
