"""Rows in MariaDB and MySQL with messages: prepared, or by an outbox of its own."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.cli_runs import error_of, run
from tests.support.concurrency import until
from tests.support.messagings import committed, payloads
from tests.support.mysql import MysqlServer, left_prepared
from txaware import participants
from txaware.errors import (
    BadRequest,
    MissingExtra,
    MisusedTransaction,
    TransactionOutcomeUnknown,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.participants import DecidingMysql, Mysql
from txaware.participants.database_tables import TABLES

Opened = Callable[..., Any]
LATE = "INSERT INTO orders VALUES ('late')"


@pytest.fixture(params=["leveldb", "http"])
def messaging(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Messaging]:
    """A store in this process, and behind a server."""
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as owner, ExitStack() as stack:
        owner.create_topic("t")
        if request.param == "leveldb":
            yield owner
            return
        server = stack.enter_context(owner.serve())
        yield stack.enter_context(txaware.connect(server.url))


@pytest.fixture
def opened(mysql_server: MysqlServer) -> Iterator[Opened]:
    """Opens connections, as a user does."""
    with ExitStack() as stack:

        def connect(**options: Any) -> Any:
            connection = mysql_server.connect(**options)
            stack.callback(lambda: connection.open and connection.close())
            return connection

        connect().execute("CREATE TABLE orders (who varchar(20))")
        yield connect


@pytest.fixture
def connection(opened: Opened) -> Any:
    return opened()


@pytest.fixture
def shop(messaging: Messaging, connection: Any) -> Mysql:
    return participants.mysql(messaging, connection)


@pytest.fixture
def deciding(messaging: Messaging, connection: Any) -> DecidingMysql:
    return participants.mysql(messaging, connection, outbox=True, relay=False)


def orders(opened: Opened) -> list[str]:
    found = opened().execute("SELECT who FROM orders ORDER BY who").fetchall()
    return [who for (who,) in found]


def order(messaging: Messaging, shop: Any, who: str) -> None:
    with messaging.transaction(shop):
        shop.connection.execute("INSERT INTO orders VALUES (%s)", (who,))
        messaging.publisher("t").publish(who.encode())


def prepared(opened: Opened) -> list[str]:
    return left_prepared(opened())


def killed_after_the_prepare(
    messaging: Messaging, shop: Mysql, *, commits: bool, statement: str = LATE
) -> int:
    """A transaction whose process died between prepare and end; its pointer."""
    tx = messaging.coordinator.start_short()
    messaging.coordinator.persist(tx)
    shop.start_tx(tx)
    shop.connection.execute(statement)
    assert shop.commit_tx()
    if commits:
        messaging.coordinator.can_commit(tx, ())
        messaging.coordinator.commit(tx)
    else:
        messaging.coordinator.invalidate(tx)
    shop.connection.close()
    return tx.transaction_id


def test_rows_tables_and_messages_commit_together(
    messaging: Messaging, shop: Mysql, opened: Opened
) -> None:
    table = messaging.table("accounts")
    with messaging.transaction(shop):
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
        messaging.publisher("t").publish(b"ann")
        table.put(b"ann", b"5")
    with pytest.raises(ZeroDivisionError), messaging.transaction(shop):  # noqa: PT012
        shop.connection.execute("INSERT INTO orders VALUES ('bob')")
        messaging.publisher("t").publish(b"bob")
        table.put(b"ann", b"4")
        assert 1 / 0
    assert orders(opened) == ["ann"]
    assert (committed(messaging), table.get(b"ann")) == ([b"ann"], b"5")
    assert prepared(opened) == []


def test_a_block_that_only_reads_is_prepared_too(
    messaging: Messaging, shop: Mysql, opened: Opened
) -> None:
    with messaging.transaction(shop):
        assert shop.connection.execute("SELECT who FROM orders").fetchall() == ()
        messaging.publisher("t").publish(b"read")
    with messaging.transaction(shop):
        messaging.publisher("t").publish(b"nothing")
    assert committed(messaging) == [b"read", b"nothing"]
    assert prepared(opened) == []


@pytest.mark.parametrize("commits", [True, False])
def test_what_a_crash_left_prepared_is_ended_at_the_next_start(
    messaging: Messaging, shop: Mysql, opened: Opened, commits: bool
) -> None:
    pointer = killed_after_the_prepare(messaging, shop, commits=commits)
    [name] = prepared(opened)
    assert f"{pointer}:" in name
    assert shop._prepared.smallest_pointer() == pointer
    assert until(lambda: shop.recover() == [])
    assert prepared(opened) == []
    assert orders(opened) == (["late"] if commits else [])
    assert shop._prepared.smallest_pointer() is None


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("statement", ["SELECT who FROM orders", "SELECT 1"])
def test_what_a_crash_left_of_a_block_that_only_read_is_ended_too(
    messaging: Messaging, shop: Mysql, opened: Opened, commits: bool, statement: str
) -> None:
    """MySQL says of it that it was rolled back."""
    killed_after_the_prepare(messaging, shop, commits=commits, statement=statement)
    assert until(lambda: shop.recover() == [])
    assert prepared(opened) == []


def test_what_a_connection_still_has_waits_for_its_end(
    messaging: Messaging, shop: Mysql, opened: Opened
) -> None:
    """Nobody else can end it before the server knows that it is gone."""
    tx = messaging.coordinator.start_short()
    messaging.coordinator.persist(tx)
    shop.start_tx(tx)
    shop.connection.execute("INSERT INTO orders VALUES ('never')")
    assert shop.commit_tx()
    messaging.coordinator.invalidate(tx)
    assert shop.recover() == [tx.transaction_id]
    shop._prepared.recover_soon()
    shop.connection.close()
    assert until(lambda: not prepared(opened))
    assert orders(opened) == []


def test_what_may_still_commit_waits(
    messaging: Messaging, shop: Mysql, opened: Opened
) -> None:
    with messaging.transaction(shop) as tx:
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
        assert shop.commit_tx()
        pointer = tx.transaction.transaction_id
        again = participants.mysql(messaging, opened())
        assert again.recover() == [pointer]
        shop.commit_tx = lambda: True  # type: ignore[method-assign]
    assert orders(opened) == ["ann"]


def test_a_block_may_have_several_connections(
    messaging: Messaging, shop: Mysql, opened: Opened
) -> None:
    other = participants.mysql(messaging, opened())
    with messaging.transaction(shop, other):
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
        other.connection.execute("INSERT INTO orders VALUES ('bob')")
    assert orders(opened) == ["ann", "bob"]


def test_a_database_that_is_away_between_prepare_and_commit_is_ended_later(
    messaging: Messaging,
) -> None:
    server = MysqlServer()
    try:
        first = server.connect()
        first.execute("CREATE TABLE orders (who varchar(9))")
        shop = participants.mysql(messaging, first)
        with (  # noqa: PT012
            pytest.raises(Unavailable, match="wait in mysql"),
            messaging.transaction(shop) as tx,
        ):
            shop.connection.execute("INSERT INTO orders VALUES ('ann')")
            shop.commit_tx()
            server.kill()
            shop.commit_tx = lambda: True  # type: ignore[method-assign]
        assert tx.status.value == "committed"
        server.start()
        again = participants.mysql(messaging, server.connect())
        assert until(lambda: again.recover() == [])
        found = again.connection.execute("SELECT who FROM orders").fetchall()
        assert found == (("ann",),)
        again.connection.close()
    finally:
        server.close()


@pytest.mark.parametrize(
    "end", ["COMMIT", "ROLLBACK", "CREATE TABLE made (a int)", "START TRANSACTION"]
)
def test_xa_refuses_what_would_end_a_prepared_block(
    messaging: Messaging, shop: Mysql, opened: Opened, end: str
) -> None:
    with messaging.transaction(shop):
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
        with pytest.raises(Exception, match="XAER_RMFAIL"):
            shop.connection.execute(end)
    assert orders(opened) == ["ann"]


def test_a_transaction_that_has_only_read_is_told_too(
    messaging: Messaging, shop: Mysql
) -> None:
    shop.connection.execute("SELECT who FROM orders")
    with (
        pytest.raises(MisusedTransaction, match="began before the block"),
        messaging.transaction(shop),
    ):
        pass
    shop.connection.rollback()
    with messaging.transaction(shop):
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
    shop: Mysql,
    monkeypatch: pytest.MonkeyPatch,
    state: dict[str, str],
    told: str,
) -> None:
    monkeypatch.setattr(type(shop._prepared._link), "ask", lambda *_: state.items())
    with pytest.raises(BadRequest, match=f"{told}.*outbox=True"):
        shop._prepared.require_that_it_prepares()


def test_its_own_commit_decides_with_an_outbox(
    messaging: Messaging, deciding: DecidingMysql, opened: Opened
) -> None:
    order(messaging, deciding, "ann")
    with pytest.raises(ZeroDivisionError), messaging.transaction(deciding):  # noqa: PT012
        deciding.connection.execute("INSERT INTO orders VALUES ('bob')")
        messaging.publisher("t").publish(b"bob")
        assert 1 / 0
    order(messaging, deciding, "eve")
    assert (deciding.relay(), deciding.relay()) == (2, 0)
    assert orders(opened) == ["ann", "eve"]
    assert committed(messaging) == [b"ann", b"eve"]


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


@pytest.mark.parametrize("kind", ["shop", "deciding"])
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


def test_members_of_a_group_handle_each_message_once(
    messaging: Messaging, opened: Opened
) -> None:
    messaging.publish("t", [b"%d" % number for number in range(20)])
    errors: list[BaseException] = []

    def work() -> None:
        shop = participants.mysql(messaging, opened(), outbox=True, relay=False)
        inbox = shop.consumer("t", group="g")
        left = True
        try:
            while left:
                with messaging.transaction(shop):
                    left = bool(page := inbox.poll(3))
                    for who in payloads(page):
                        shop.connection.execute(
                            "INSERT INTO orders VALUES (%s)", (who.decode(),)
                        )
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(map(int, orders(opened))) == list(range(20))


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


def test_a_connection_that_cannot_take_part_is_one_sentence(
    messaging: Messaging, deciding: DecidingMysql, opened: Opened
) -> None:
    deciding.connection.autocommit(True)
    with (
        pytest.raises(BadRequest, match="is in autocommit"),
        messaging.transaction(deciding),
    ):
        pass
    deciding.connection.autocommit(False)
    deciding.connection.execute("INSERT INTO orders VALUES ('mine')")
    with (
        pytest.raises(MisusedTransaction, match="began before the block"),
        messaging.transaction(deciding),
    ):
        pass
    deciding.connection.commit()
    assert orders(opened) == ["mine"]
    deciding.connection.close()
    with (
        pytest.raises(BadRequest, match="is closed; open another one"),
        messaging.transaction(deciding),
    ):
        pass
    wrong: Any = "mysql://localhost"
    with pytest.raises(BadRequest, match="no connection of PyMySQL"):
        participants.mysql(messaging, wrong)


def test_a_server_that_syncs_no_commit_is_told_to_the_log(
    messaging: Messaging, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    participants.mysql(messaging, opened(), outbox=True, relay=False)
    assert "set innodb_flush_log_at_trx_commit = 1" in caplog.text


def test_the_command_line_carries_over(
    messaging: Messaging, deciding: DecidingMysql, mysql_server: MysqlServer
) -> None:
    order(messaging, deciding, "ann")
    relay = ("outbox", "relay")
    done = run(*relay, mysql_server.url, obj=messaging)
    assert done.stdout == "carried over 1 message\n"
    for address, told in (
        ("mysql://localhost", "names no database: mysql://USER@HOST:PORT/DATABASE"),
        ("mysql://localhost:port/shop", "is no address of a MySQL"),
        (mysql_server.url.replace("root", "eve"), "MySQL refuses: Access denied"),
        (f"{mysql_server.url}2", "MySQL refuses: Unknown database"),
    ):
        assert told in error_of(*relay, address, code=2, obj=messaging)
    away = mysql_server.url.replace(str(mysql_server.port), "1")
    assert "MySQL does not answer" in error_of(*relay, away, code=3, obj=messaging)


def test_the_command_line_recovers(
    messaging: Messaging, shop: Mysql, opened: Opened, mysql_server: MysqlServer
) -> None:
    killed_after_the_prepare(messaging, shop, commits=True)
    recover = ("participants", "recover", mysql_server.url)
    none_open = "0 transactions still open\n"
    assert until(lambda: run(*recover, obj=messaging).stdout == none_open)
    assert orders(opened) == ["late"]
    said = error_of(*recover, "--skip", code=2, obj=messaging)
    assert "a MySQL skips nothing: end what is prepared there by XA COMMIT" in said


def test_a_missing_extra_is_told_with_its_command(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    nothing: Any = None
    with pytest.raises(MissingExtra, match=r"pip install '\.\[mysql\]'"):
        participants.mysql(messaging, nothing, outbox=True)
