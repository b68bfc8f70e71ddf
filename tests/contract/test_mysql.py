"""What is of MySQL alone: its XA, its deadlocks, and the commits that it makes."""

import threading
from typing import Any

import pytest

import txaware
from tests.support.cli_runs import error_of
from tests.support.concurrency import in_loop, until
from tests.support.database_shops import (
    Opened,
    killed_after_the_prepare,
    order,
    orders,
    prepared,
)
from tests.support.messagings import committed
from tests.support.mysql import MysqlServer
from txaware import participants
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    TransactionOutcomeUnknown,
)
from txaware.messaging import Messaging
from txaware.participants import DecidingMysql, Mysql
from txaware.participants.database_tables import TABLES


@pytest.fixture
def database() -> str:
    return "mysql"


@pytest.fixture
def messaging(shop_messaging: Messaging) -> Messaging:
    return shop_messaging


def test_a_block_that_only_reads_is_prepared_too(
    messaging: Messaging, preparing: Mysql, opened: Opened
) -> None:
    with messaging.transaction(preparing):
        assert preparing.connection.execute("SELECT who FROM orders").fetchall() == ()
        messaging.publisher("t").publish(b"read")
    with messaging.transaction(preparing):
        messaging.publisher("t").publish(b"nothing")
    assert committed(messaging) == [b"read", b"nothing"]
    assert prepared(opened) == []


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("statement", ["SELECT who FROM orders", "SELECT 1"])
def test_what_a_crash_left_of_a_block_that_only_read_is_ended_too(
    messaging: Messaging,
    preparing: Mysql,
    opened: Opened,
    commits: bool,
    statement: str,
) -> None:
    """MySQL says of it that it was rolled back."""
    killed_after_the_prepare(messaging, preparing, commits=commits, statement=statement)
    assert until(lambda: preparing.recover() == [])
    assert prepared(opened) == []


def test_what_a_connection_still_has_waits_for_its_end(
    messaging: Messaging, preparing: Mysql, opened: Opened
) -> None:
    """Nobody else can end it before the server knows that it is gone."""
    tx = messaging.coordinator.start_short()
    messaging.coordinator.persist(tx)
    preparing.start_tx(tx)
    preparing.connection.execute("INSERT INTO orders VALUES ('never')")
    assert preparing.commit_tx()
    messaging.coordinator.invalidate(tx)
    assert preparing.recover() == [tx.transaction_id]
    preparing._prepared.recover_soon()
    preparing.connection.close()
    assert until(lambda: not prepared(opened))
    assert orders(opened) == []


@pytest.mark.parametrize(
    "end", ["COMMIT", "ROLLBACK", "CREATE TABLE made (a int)", "START TRANSACTION"]
)
def test_xa_refuses_what_would_end_a_prepared_block(
    messaging: Messaging, preparing: Mysql, opened: Opened, end: str
) -> None:
    with messaging.transaction(preparing):
        preparing.connection.execute("INSERT INTO orders VALUES ('ann')")
        with pytest.raises(Exception, match="XAER_RMFAIL"):
            preparing.connection.execute(end)
    assert orders(opened) == ["ann"]


def test_a_transaction_that_has_only_read_is_told_too(
    messaging: Messaging, preparing: Mysql
) -> None:
    preparing.connection.execute("SELECT who FROM orders")
    with (
        pytest.raises(MisusedTransaction, match="began before the block"),
        messaging.transaction(preparing),
    ):
        pass
    preparing.connection.rollback()
    with messaging.transaction(preparing):
        messaging.publisher("t").publish(b"1")


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"version": "10.4.34-MariaDB"}, "rolls back what it has prepared"),
        ({"version": "5.6.51"}, "rolls back what it has prepared"),
        ({"version": "10.11.6-MariaDB", "wsrep_on": "ON"}, "a Galera cluster"),
    ],
)
def test_a_server_that_cannot_prepare_is_one_sentence(
    preparing: Mysql,
    monkeypatch: pytest.MonkeyPatch,
    state: dict[str, str],
    told: str,
) -> None:
    monkeypatch.setattr(
        type(preparing._prepared._link), "ask", lambda *_: state.items()
    )
    with pytest.raises(BadRequest, match=f"{told}.*outbox=True"):
        preparing._prepared.require_that_it_prepares()


@pytest.mark.parametrize(
    "end", ["COMMIT", "ROLLBACK", "CREATE TABLE made (a int)", "START TRANSACTION"]
)
def test_an_end_inside_of_the_block_is_told(
    messaging: Messaging, deciding: DecidingMysql, opened: Opened, end: str
) -> None:
    """A statement that makes a table commits what came before it."""
    with (  # noqa: PT012
        pytest.raises(MisusedTransaction, match="was ended inside of its block"),
        messaging.transaction(deciding),
    ):
        deciding.connection.execute("INSERT INTO orders VALUES ('kept')")
        deciding.connection.execute(end)
        deciding.connection.execute("INSERT INTO orders VALUES ('gone')")
    assert orders(opened) == ([] if end == "ROLLBACK" else ["kept"])


@pytest.mark.parametrize("kind", ["preparing", "deciding"])
def test_a_deadlock_that_the_block_goes_on_after_undoes_it(
    messaging: Messaging, opened: Opened, request: pytest.FixtureRequest, kind: str
) -> None:
    """MySQL rolls back all of it, and begins another transaction without a word."""
    database = request.getfixturevalue(kind)
    here, other = database.connection, opened()
    here.execute("CREATE TABLE stock (name varchar(9) PRIMARY KEY, count int)")
    for name in ("a", "b", *map(str, range(50))):
        here.execute("INSERT INTO stock VALUES (%s, 1)", (name,))
    here.commit()
    take = "UPDATE stock SET count = 0 WHERE name = %s"
    # The one that has changed less is rolled back.
    for name in ("b", *map(str, range(50))):
        other.execute(take, (name,))
    with (  # noqa: PT012
        pytest.raises(MisusedTransaction, match="by a deadlock"),
        messaging.transaction(database),
    ):
        here.execute(take, ("a",))
        messaging.publisher("t").publish(b"never")
        waits = threading.Thread(target=lambda: other.execute(take, ("a",)))
        waits.start()
        asks = (
            "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        )
        assert until(lambda: opened().execute(asks).fetchone())
        with pytest.raises(Exception, match="Deadlock"):
            here.execute(take, ("b",))
        waits.join()
        other.rollback()
        if kind == "deciding":
            here.execute("INSERT INTO orders VALUES ('half')")
    assert orders(opened) == []
    order(messaging, database, "ann")
    if kind == "deciding":
        assert database.relay() == 1
    assert (orders(opened), committed(messaging)) == (["ann"], [b"ann"])


def test_a_statement_that_failed_leaves_the_rest_of_the_block(
    messaging: Messaging, deciding: DecidingMysql, opened: Opened
) -> None:
    with messaging.transaction(deciding):
        deciding.connection.execute("INSERT INTO orders VALUES ('ann')")
        with pytest.raises(Exception, match="doesn't exist"):
            deciding.connection.execute("SELECT * FROM nowhere")
        messaging.publisher("t").publish(b"ann")
    assert deciding.relay() == 1
    assert orders(opened) == ["ann"]


def test_an_answer_of_its_commit_that_was_lost_is_looked_up(
    messaging: Messaging,
    deciding: DecidingMysql,
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its rows in the outbox tell; without any, nobody knows."""
    import pymysql

    kind = pymysql.connections.Connection
    commit = kind.commit

    def lost(connection: Any) -> None:
        commit(connection)
        raise pymysql.OperationalError(2013, "the answer is lost")

    with monkeypatch.context() as patch:
        patch.setattr(kind, "commit", lost)
        order(messaging, deciding, "ann")
        with (
            pytest.raises(TransactionOutcomeUnknown, match="see whether the rows"),
            messaging.transaction(deciding),
        ):
            deciding.connection.execute("INSERT INTO orders VALUES ('bob')")
    assert orders(opened) == ["ann", "bob"]
    assert deciding.relay() == 1


def test_a_relay_waits_for_no_transaction_that_is_open_beside_its_rows(
    messaging: Messaging, opened: Opened
) -> None:
    """Its places are drawn before others commit: their rows are between its own."""
    shops = [
        participants.mysql(messaging, opened(), outbox=True, relay=False) for _ in "ab"
    ]
    beside = opened()
    outbox = txaware.outbox(beside)
    order(messaging, shops[0], "ann")
    outbox.publish("t", b"late")
    order(messaging, shops[1], "bob")
    relayed: list[int] = []
    relay = threading.Thread(target=lambda: relayed.append(shops[0].relay()))
    relay.start()
    relay.join(20)
    assert (relayed, committed(messaging)) == ([2], [b"ann", b"bob"])
    order(messaging, shops[0], "eve")  # nor does a block
    beside.commit()
    assert shops[0].relay() == 2
    assert committed(messaging) == [b"ann", b"bob", b"late", b"eve"]


def test_the_rows_of_a_transaction_of_the_program_s_stay_together(
    messaging: Messaging, deciding: DecidingMysql, opened: Opened
) -> None:
    connection = opened()
    outbox = txaware.outbox(connection)
    for block in "ab":
        for number in range(3):
            outbox.publish("t", f"{block}{number}".encode())
        connection.commit()
    rows = deciding._relay.rows
    taken = rows.take(b"", limit=4).rows
    assert [row.payload for row in taken] == [b"a0", b"a1", b"a2"]


def test_the_first_row_of_a_database_commits_nothing_of_the_program_s(
    opened: Opened,
) -> None:
    """A table that is made commits what is open; so it is made beside it."""
    connection = opened()
    connection.execute("INSERT INTO orders VALUES ('never')")
    txaware.outbox(connection).publish("t", b"never")
    connection.rollback()
    assert orders(opened) == []
    found = opened().execute("SHOW TABLES LIKE 'txaware%'").fetchall()
    assert {name for (name,) in found} == set(TABLES)


def test_a_server_that_syncs_no_commit_is_told_to_the_log(
    messaging: Messaging, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    participants.mysql(messaging, opened(), outbox=True, relay=False)
    assert "set innodb_flush_log_at_trx_commit = 1" in caplog.text


@in_loop
async def test_asyncio_is_told_that_mysql_has_no_participant_for_it() -> None:
    async with txaware.connect_async("http://127.0.0.1:1") as messaging:
        wrong: Any = messaging
        told = "MySQL has no participant for asyncio, so have a thread run its block"
        with pytest.raises(BadRequest, match=told):
            participants.mysql(wrong, wrong)


def test_an_address_that_leads_nowhere_is_one_sentence(
    messaging: Messaging, mysql_server: MysqlServer
) -> None:
    relay = ("outbox", "relay")
    for address, told in (
        ("mysql://localhost", "names no database: mysql://USER@HOST:PORT/DATABASE"),
        ("mysql://localhost:port/shop", "is no address of a MySQL"),
        (mysql_server.url.replace("root", "eve"), "MySQL refuses: Access denied"),
        (f"{mysql_server.url}2", "MySQL refuses: Unknown database"),
    ):
        assert told in error_of(*relay, address, code=2, obj=messaging)
    away = mysql_server.url.replace(str(mysql_server.port), "1")
    assert "MySQL does not answer" in error_of(*relay, away, code=3, obj=messaging)
