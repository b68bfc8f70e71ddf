"""Rows in PostgreSQL and MySQL with messages: what holds for each of them."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

import txaware
from coordinator.outcome import Outcome
from tests.support.cli_runs import error_of, run
from tests.support.concurrency import at_once, in_threads
from tests.support.database_server import DatabaseServer
from tests.support.database_shops import (
    Opened,
    killed_after_the_prepare,
    order,
    orders,
    prepared,
    soon,
)
from tests.support.messagings import committed, payloads
from txaware import participants
from txaware.errors import (
    BadRequest,
    MissingExtra,
    MisusedTransaction,
    TransactionOutcomeUnknown,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.prepared_database import PreparedDatabase

Made = Callable[..., Any]
KINDS = pytest.mark.parametrize("kind", ["preparing", "deciding"])
# How the name of what is prepared has the pointer.
NAMED = {"postgres": ":{}:", "mysql": "'{}:"}
NO_CONNECTION = {
    "postgres": r"no psycopg\.Connection",
    "mysql": "no connection of PyMySQL",
}
DRIVERS = {"postgres": "psycopg", "mysql": "pymysql"}
SKIPS_NOTHING = {
    "postgres": "a PostgreSQL skips nothing",
    "mysql": "a MySQL skips nothing: end what is prepared there by XA COMMIT",
}


@pytest.fixture
def messaging(shop_messaging: Messaging) -> Messaging:
    return shop_messaging


def test_rows_tables_and_messages_commit_together(
    messaging: Messaging, preparing: PreparedDatabase, opened: Opened
) -> None:
    table = messaging.table("accounts")
    with messaging.transaction(preparing):
        preparing.connection.execute("INSERT INTO orders VALUES ('ann')")
        messaging.publisher("t").publish(b"ann")
        table.put(b"ann", b"5")
    with pytest.raises(ZeroDivisionError), messaging.transaction(preparing):  # noqa: PT012
        preparing.connection.execute("INSERT INTO orders VALUES ('bob')")
        messaging.publisher("t").publish(b"bob")
        table.put(b"ann", b"4")
        assert 1 / 0
    assert orders(opened) == ["ann"]
    assert (committed(messaging), table.get(b"ann")) == ([b"ann"], b"5")
    assert prepared(opened) == []


def test_the_first_use_may_be_in_a_block_that_is_open(
    messaging: Messaging, opened: Opened, made: Made
) -> None:
    with messaging.transaction() as tx:
        shop = made(messaging)
        tx.join(shop)
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
        messaging.publisher("t").publish(b"ann")
    assert orders(opened) == ["ann"]
    assert committed(messaging) == [b"ann"]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.everywhere  # the server ends it
def test_what_a_crash_left_prepared_is_ended_at_the_next_start(
    messaging: Messaging,
    preparing: PreparedDatabase,
    opened: Opened,
    database: str,
    commits: bool,
) -> None:
    pointer = killed_after_the_prepare(messaging, preparing, commits=commits)
    [name] = prepared(opened)
    assert NAMED[database].format(pointer) in name
    assert preparing._prepared.smallest_pointer() == pointer
    assert soon(database, lambda: preparing.recover() == [])
    assert prepared(opened) == []
    assert orders(opened) == (["late"] if commits else [])
    assert preparing._prepared.smallest_pointer() is None


def test_what_may_still_commit_waits(
    messaging: Messaging, preparing: PreparedDatabase, opened: Opened, made: Made
) -> None:
    with messaging.transaction(preparing) as tx:
        preparing.connection.execute("INSERT INTO orders VALUES ('ann')")
        assert preparing.commit_tx()
        pointer = tx.transaction.transaction_id
        again = made(messaging)
        assert again.recover() == [pointer]
        preparing.commit_tx = lambda: True  # type: ignore[method-assign]
    assert orders(opened) == ["ann"]


def test_a_forgotten_outcome_is_one_sentence_and_changes_nothing(
    messaging: Messaging,
    preparing: PreparedDatabase,
    opened: Opened,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pointer = killed_after_the_prepare(messaging, preparing, commits=True)
    monkeypatch.setattr(
        type(messaging.coordinator), "outcome", lambda *_: Outcome.FORGOTTEN
    )
    with pytest.raises(TransactionOutcomeUnknown, match=f"{pointer}.* has committed"):
        preparing.recover()
    monkeypatch.undo()
    assert soon(database, lambda: preparing.recover() == [])
    assert orders(opened) == ["late"]


def test_a_database_that_is_away_between_prepare_and_commit_is_ended_later(
    messaging: Messaging, database: str, database_server: DatabaseServer
) -> None:
    make = getattr(participants, database)
    server = type(database_server)()
    try:
        first = server.connect()
        first.execute("CREATE TABLE orders (who varchar(9))")
        first.commit()
        shop = make(messaging, first)
        with (  # noqa: PT012
            pytest.raises(Unavailable, match=f"wait in {database}"),
            messaging.transaction(shop) as tx,
        ):
            shop.connection.execute("INSERT INTO orders VALUES ('ann')")
            shop.commit_tx()
            server.kill()
            shop.commit_tx = lambda: True
        assert tx.status.value == "committed"
        shop.connection.close()
        server.start()
        again = make(messaging, server.connect())
        assert soon(database, lambda: again.recover() == [])
        found = again.connection.execute("SELECT who FROM orders").fetchall()
        assert [*found] == [("ann",)]
        again.connection.close()
    finally:
        server.close()


def test_a_block_may_have_several_connections(
    messaging: Messaging, preparing: PreparedDatabase, opened: Opened, made: Made
) -> None:
    other = made(messaging)
    with messaging.transaction(preparing, other):
        preparing.connection.execute("INSERT INTO orders VALUES ('ann')")
        other.connection.execute("INSERT INTO orders VALUES ('bob')")
    assert orders(opened) == ["ann", "bob"]


@KINDS
def test_a_connection_that_cannot_take_part_is_one_sentence(
    messaging: Messaging,
    opened: Opened,
    database: str,
    request: pytest.FixtureRequest,
    kind: str,
) -> None:
    shop = request.getfixturevalue(kind)
    set_autocommit(shop.connection, True)
    with (
        pytest.raises(BadRequest, match="is in autocommit"),
        messaging.transaction(shop),
    ):
        pass
    set_autocommit(shop.connection, False)
    shop.connection.execute("INSERT INTO orders VALUES ('mine')")
    with (
        pytest.raises(MisusedTransaction, match="began before the block"),
        messaging.transaction(shop),
    ):
        pass
    shop.connection.commit()
    assert orders(opened) == ["mine"]
    with (
        txaware.connect("memory:") as other,
        pytest.raises(MisusedTransaction, match="this block is of another one"),
        other.transaction(shop),
    ):
        pass
    shop.connection.close()
    with (
        pytest.raises(BadRequest, match="is closed; open another one"),
        messaging.transaction(shop),
    ):
        pass
    with pytest.raises(BadRequest, match=NO_CONNECTION[database]):
        getattr(participants, database)(messaging, f"{database}://localhost")


def set_autocommit(connection: Any, value: bool) -> None:
    """Sets it, in psycopg and in PyMySQL, where it is a function."""
    if callable(connection.autocommit):
        connection.autocommit(value)
    else:
        connection.autocommit = value


@KINDS
def test_it_is_in_one_block_at_a_time(
    messaging: Messaging, opened: Opened, request: pytest.FixtureRequest, kind: str
) -> None:
    shop = request.getfixturevalue(kind)
    with messaging.transaction(shop):
        [error] = at_once(lambda: order(messaging, shop, "bob"))
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
    assert isinstance(error, MisusedTransaction)
    assert "a connection has one at a time" in str(error)
    assert orders(opened) == ["ann"]


def test_its_own_commit_decides_with_an_outbox(
    messaging: Messaging, deciding: DecidingDatabase, opened: Opened
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


def test_members_of_a_group_handle_each_message_once(
    messaging: Messaging, opened: Opened, made: Made
) -> None:
    messaging.publish("t", [b"%d" % number for number in range(20)])
    errors: list[BaseException] = []

    def work() -> None:
        shop = made(messaging, outbox=True, relay=False)
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

    in_threads(lambda _: work(), "abc")
    assert errors == []
    assert sorted(map(int, orders(opened))) == list(range(20))


def test_the_command_line_carries_over(
    messaging: Messaging, deciding: DecidingDatabase, database_server: DatabaseServer
) -> None:
    order(messaging, deciding, "ann")
    done = run("outbox", "relay", database_server.url, obj=messaging)
    assert done.stdout == "carried over 1 message\n"


def test_the_command_line_recovers(
    messaging: Messaging,
    preparing: PreparedDatabase,
    opened: Opened,
    database: str,
    database_server: DatabaseServer,
) -> None:
    killed_after_the_prepare(messaging, preparing, commits=True)
    recover = ("participants", "recover", database_server.url)
    none_open = "0 transactions still open\n"
    assert soon(database, lambda: run(*recover, obj=messaging).stdout == none_open)
    assert orders(opened) == ["late"]
    said = error_of(*recover, "--skip", code=2, obj=messaging)
    assert SKIPS_NOTHING[database] in said


@pytest.mark.parametrize("outbox", [False, True])
def test_a_missing_extra_is_told_with_its_command(
    messaging: Messaging,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    outbox: bool,
) -> None:
    monkeypatch.setitem(sys.modules, DRIVERS[database], None)
    with pytest.raises(MissingExtra, match=rf"pip install '\.\[{database}\]'"):
        getattr(participants, database)(messaging, None, outbox=outbox)
