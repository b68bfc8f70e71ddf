"""Rows in PostgreSQL with messages: prepared, or by an outbox of its own."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.outcome import Outcome
from tests.support.cli_runs import error_of, run
from tests.support.concurrency import until
from tests.support.messagings import committed, payloads
from tests.support.postgres import PostgresServer
from txaware import participants
from txaware.errors import (
    BadRequest,
    MissingExtra,
    MisusedTransaction,
    TransactionOutcomeUnknown,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.participants import DecidingPostgres, Postgres
from txaware.participants.database_steps import Steps
from txaware.participants.prepared_transactions import MOST_UNSETTLED

Opened = Callable[..., Any]


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
def opened(postgres_server: PostgresServer) -> Iterator[Opened]:
    """Opens connections, as a user does."""
    with ExitStack() as stack:

        def connect(**options: Any) -> Any:
            connection = postgres_server.connect(**options)
            stack.callback(connection.close)
            return connection

        with postgres_server.connect() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS orders (who text)")
        yield connect


@pytest.fixture
def connection(opened: Opened) -> Any:
    return opened()


@pytest.fixture
def shop(messaging: Messaging, connection: Any) -> Postgres:
    return participants.postgres(messaging, connection)


@pytest.fixture
def deciding(messaging: Messaging, connection: Any) -> DecidingPostgres:
    return participants.postgres(messaging, connection, outbox=True, relay=False)


def orders(opened: Opened) -> list[str]:
    with opened() as connection:
        return [who for (who,) in connection.execute("SELECT who FROM orders")]


def prepared(opened: Opened) -> list[str]:
    with opened() as connection:
        found = connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall()
    return [gid for (gid,) in found]


def order(messaging: Messaging, shop: Any, who: str) -> None:
    with messaging.transaction(shop):
        shop.connection.execute("INSERT INTO orders VALUES (%s)", (who,))
        messaging.publisher("t").publish(who.encode())


def killed_after_the_prepare(
    messaging: Messaging, shop: Postgres, *, commits: bool
) -> int:
    """A transaction whose process died between prepare and end; its pointer."""
    tx = messaging.coordinator.start_short()
    messaging.coordinator.persist(tx)
    shop.start_tx(tx)
    shop.connection.execute("INSERT INTO orders VALUES ('late')")
    assert shop.commit_tx()
    if commits:
        messaging.coordinator.can_commit(tx, ())
        messaging.coordinator.commit(tx)
    else:
        messaging.coordinator.invalidate(tx)
    shop.connection.close()
    return tx.transaction_id


def test_rows_tables_and_messages_commit_together(
    messaging: Messaging, shop: Postgres, opened: Opened
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


def test_the_first_use_may_be_in_a_block_that_is_open(
    messaging: Messaging, opened: Opened
) -> None:
    with messaging.transaction() as tx:
        shop = participants.postgres(messaging, opened())
        tx.join(shop)
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
        messaging.publisher("t").publish(b"ann")
    assert orders(opened) == ["ann"]
    assert committed(messaging) == [b"ann"]


@pytest.mark.parametrize("commits", [True, False])
def test_what_a_crash_left_prepared_is_ended_at_the_next_start(
    messaging: Messaging, shop: Postgres, opened: Opened, commits: bool
) -> None:
    pointer = killed_after_the_prepare(messaging, shop, commits=commits)
    [name] = prepared(opened)
    assert f":{pointer}:" in name
    assert shop._prepared.smallest_pointer() == pointer
    assert shop.recover() == []
    assert prepared(opened) == []
    assert orders(opened) == (["late"] if commits else [])
    assert shop._prepared.smallest_pointer() is None


def test_what_may_still_commit_waits(
    messaging: Messaging, shop: Postgres, opened: Opened
) -> None:
    with messaging.transaction(shop) as tx:
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
        assert shop.commit_tx()
        pointer = tx.transaction.transaction_id
        again = participants.postgres(messaging, opened())
        assert again.recover() == [pointer]
        shop.commit_tx = lambda: True  # type: ignore[method-assign]
    assert orders(opened) == ["ann"]


def test_a_forgotten_outcome_is_one_sentence_and_changes_nothing(
    messaging: Messaging,
    shop: Postgres,
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pointer = killed_after_the_prepare(messaging, shop, commits=True)
    monkeypatch.setattr(
        type(messaging.coordinator), "outcome", lambda *_: Outcome.FORGOTTEN
    )
    with pytest.raises(TransactionOutcomeUnknown, match=f"{pointer}.* has committed"):
        shop.recover()
    monkeypatch.undo()
    shop.recover()
    assert orders(opened) == ["late"]


def test_a_database_that_is_away_between_prepare_and_commit_is_ended_later(
    messaging: Messaging, tmp_path: Path
) -> None:
    server = PostgresServer()
    try:
        with server.connect() as first:
            first.execute("CREATE TABLE orders (who text)")
        shop = participants.postgres(messaging, server.connect())
        commit = type(messaging.coordinator).commit
        with (  # noqa: PT012
            pytest.raises(Unavailable, match="wait in postgres"),
            messaging.transaction(shop) as tx,
        ):
            shop.connection.execute("INSERT INTO orders VALUES ('ann')")
            shop.commit_tx()
            server.kill()
            shop.commit_tx = lambda: True  # type: ignore[method-assign]
        assert commit is not None
        assert tx.status.value == "committed"
        shop.connection.close()
        server.start()
        again = participants.postgres(messaging, server.connect())
        assert again.recover() == []
        found = again.connection.execute("SELECT who FROM orders").fetchall()
        assert found == [("ann",)]
        again.connection.close()
    finally:
        server.close()


def test_what_is_settled_later_is_committed_when_the_block_ends_and_seen_soon(
    messaging: Messaging, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The background waits in this test; PostgreSQL has what it has prepared."""
    shop = participants.postgres(messaging, opened(), settle="later")
    monkeypatch.setattr(shop._prepared._settling, "start", lambda: None)
    order(messaging, shop, "ann")
    with pytest.raises(ZeroDivisionError), messaging.transaction(shop):  # noqa: PT012
        shop.connection.execute("INSERT INTO orders VALUES ('never')")
        assert 1 / 0
    order(messaging, shop, "bob")  # the connection is free
    assert committed(messaging) == [b"ann", b"bob"]
    assert (orders(opened), len(prepared(opened))) == ([], 2)
    assert shop._prepared.smallest_pointer() is not None
    shop.settle()
    assert (orders(opened), prepared(opened)) == (["ann", "bob"], [])


def test_what_is_to_be_settled_later_is_settled_in_the_background(
    messaging: Messaging, opened: Opened
) -> None:
    shop = participants.postgres(messaging, opened(), settle="later")
    order(messaging, shop, "ann")
    assert until(lambda: orders(opened) == ["ann"])


def test_few_transactions_wait_to_be_settled(
    messaging: Messaging, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL prepares no more than it is told to."""
    shop = participants.postgres(messaging, opened(), settle="later")
    monkeypatch.setattr(shop._prepared._settling, "start", lambda: None)
    for number in range(MOST_UNSETTLED + 1):
        order(messaging, shop, f"{number}")
    assert (len(orders(opened)), len(prepared(opened))) == (MOST_UNSETTLED, 1)


def test_what_was_not_settled_is_committed_at_the_next_start(
    messaging: Messaging, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = participants.postgres(messaging, opened(), settle="later")
    monkeypatch.setattr(shop._prepared._settling, "start", lambda: None)
    order(messaging, shop, "ann")
    shop._prepared._unsettled.clear()  # as a kill does
    assert (orders(opened), shop.recover()) == ([], [])
    assert orders(opened) == ["ann"]


def test_a_connection_that_is_lost_behind_the_commit_is_settled_by_another(
    messaging: Messaging, opened: Opened
) -> None:
    shop = participants.postgres(messaging, opened(), settle="later")
    with messaging.transaction(shop):
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
        assert shop.commit_tx()
        shop.connection.close()
        shop.commit_tx = lambda: True  # type: ignore[method-assign]
    assert until(lambda: orders(opened) == ["ann"])


def test_settle_is_now_or_later_and_for_what_is_prepared(
    messaging: Messaging, opened: Opened
) -> None:
    wrong: Any = {"settle": "never"}
    with pytest.raises(BadRequest, match="settle is 'now' or 'later', not 'never'"):
        participants.postgres(messaging, opened(), **wrong)
    wrong = {"settle": "later", "outbox": True}
    with pytest.raises(BadRequest, match="for what is prepared"):
        participants.postgres(messaging, opened(), **wrong)


def test_a_block_may_have_several_connections(
    messaging: Messaging, shop: Postgres, opened: Opened
) -> None:
    other = participants.postgres(messaging, opened())
    with messaging.transaction(shop, other):
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
        other.connection.execute("INSERT INTO orders VALUES ('bob')")
    assert sorted(orders(opened)) == ["ann", "bob"]


def test_what_somebody_else_has_ended_leaves_the_connection_usable(
    messaging: Messaging, shop: Postgres, opened: Opened
) -> None:
    """The first use of another process may find a transaction that ends just then."""
    end = shop._end_here

    def late(name: str, *, commit: bool) -> Steps[None]:
        shop.recover()
        yield from end(name, commit=commit)

    shop._end_here = late  # type: ignore[method-assign]
    order(messaging, shop, "ann")
    order(messaging, shop, "bob")
    assert orders(opened) == ["ann", "bob"]


def test_what_is_open_at_the_first_use_is_ended_in_the_background(
    messaging: Messaging, shop: Postgres, opened: Opened
) -> None:
    tx = messaging.coordinator.start_short()
    messaging.coordinator.persist(tx)
    shop.start_tx(tx)
    shop.connection.execute("INSERT INTO orders VALUES ('never')")
    assert shop.commit_tx()
    assert shop.recover() == [tx.transaction_id]
    shop._prepared.recover_soon()
    messaging.coordinator.invalidate(tx)
    assert until(lambda: not prepared(opened))
    assert orders(opened) == []


def test_a_server_that_prepares_nothing_is_told_what_to_set(
    messaging: Messaging, shop: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = shop._prepared._link
    monkeypatch.setattr(type(link), "run", lambda *_: ("0",))
    with pytest.raises(BadRequest, match="set max_prepared_transactions"):
        shop._prepared.require_that_it_prepares()


def test_a_connection_that_cannot_take_part_is_one_sentence(
    messaging: Messaging, shop: Postgres, opened: Opened
) -> None:
    shop.connection.autocommit = True
    with (
        pytest.raises(BadRequest, match="is in autocommit"),
        messaging.transaction(shop),
    ):
        pass
    shop.connection.autocommit = False
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
    wrong: Any = "postgresql://localhost"
    with pytest.raises(BadRequest, match=r"no psycopg\.Connection"):
        participants.postgres(messaging, wrong)


@pytest.mark.parametrize("kind", ["shop", "deciding"])
def test_a_statement_that_failed_in_the_block_undoes_it(
    messaging: Messaging, opened: Opened, request: pytest.FixtureRequest, kind: str
) -> None:
    """PostgreSQL would answer PREPARE by a rollback, and no error."""
    database = request.getfixturevalue(kind)
    with (  # noqa: PT012
        pytest.raises(MisusedTransaction, match="a statement failed"),
        messaging.transaction(database),
    ):
        messaging.publisher("t").publish(b"1")
        with pytest.raises(Exception, match="does not exist"):
            database.connection.execute("SELECT * FROM nowhere")
    order(messaging, database, "ann")
    if kind == "deciding":
        database.relay()
    assert (orders(opened), committed(messaging)) == (["ann"], [b"ann"])


@pytest.mark.parametrize("kind", ["shop", "deciding"])
def test_it_is_in_one_block_at_a_time(
    messaging: Messaging, opened: Opened, request: pytest.FixtureRequest, kind: str
) -> None:
    database = request.getfixturevalue(kind)
    errors: list[Exception] = []

    def elsewhere() -> None:
        try:
            order(messaging, database, "bob")
        except MisusedTransaction as error:
            errors.append(error)

    with messaging.transaction(database):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        database.connection.execute("INSERT INTO orders VALUES ('ann')")
    assert "a connection has one at a time" in str(errors[0])
    assert orders(opened) == ["ann"]


def test_an_end_inside_of_the_block_is_told(
    messaging: Messaging, shop: Postgres, opened: Opened
) -> None:
    with (  # noqa: PT012
        pytest.raises(MisusedTransaction, match="was ended inside"),
        messaging.transaction(shop),
    ):
        shop.connection.execute("INSERT INTO orders VALUES ('ann')")
        with pytest.raises(Exception, match="two-phase transaction"):
            shop.connection.commit()
        shop.connection.execute("ROLLBACK")
    assert orders(opened) == []


def test_its_own_commit_decides_with_an_outbox(
    messaging: Messaging, deciding: DecidingPostgres, opened: Opened
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
    with (  # noqa: PT012
        pytest.raises(MisusedTransaction, match="by commit"),
        messaging.transaction(deciding),
    ):
        deciding.connection.execute("INSERT INTO orders VALUES ('kept')")
        deciding.connection.commit()
        deciding.connection.execute("INSERT INTO orders VALUES ('gone')")
    assert orders(opened) == ["ann", "eve", "kept"]


def test_an_answer_of_its_commit_that_was_lost_is_looked_up(
    messaging: Messaging,
    deciding: DecidingPostgres,
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import psycopg

    commit = psycopg.Connection.commit

    def lost(connection: Any) -> None:
        commit(connection)
        raise psycopg.OperationalError("the answer is lost")

    monkeypatch.setattr(psycopg.Connection, "commit", lost)
    order(messaging, deciding, "ann")
    link = type(deciding._relay.rows._link)
    monkeypatch.setattr(link, "run", lambda *_: (_ for _ in ()).throw(Unavailable("")))
    with pytest.raises(TransactionOutcomeUnknown, match="pg_xact_status"):
        order(messaging, deciding, "bob")
    monkeypatch.undo()
    assert orders(opened) == ["ann", "bob"]


def test_members_of_a_group_in_postgres_handle_each_message_once(
    messaging: Messaging, opened: Opened
) -> None:
    messaging.publish("t", [b"%d" % number for number in range(20)])

    def work() -> None:
        shop = participants.postgres(messaging, opened(), outbox=True, relay=False)
        inbox = shop.consumer("t", group="g")
        left = True
        while left:
            with messaging.transaction(shop):
                left = bool(page := inbox.poll(3))
                for who in payloads(page):
                    shop.connection.execute(
                        "INSERT INTO orders VALUES (%s)", (who.decode(),)
                    )

    threads = [threading.Thread(target=work) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, orders(opened))) == list(range(20))


def test_the_command_line_recovers_and_carries_over(
    messaging: Messaging,
    opened: Opened,
    postgres_server: PostgresServer,
) -> None:
    deciding = participants.postgres(messaging, opened(), outbox=True, relay=False)
    order(messaging, deciding, "ann")
    relay = run("outbox", "relay", postgres_server.url, obj=messaging)
    assert relay.stdout == "carried over 1 message\n"
    shop = participants.postgres(messaging, opened())
    killed_after_the_prepare(messaging, shop, commits=True)
    recover = ("participants", "recover")
    done = run(*recover, postgres_server.url, obj=messaging)
    assert done.stdout == "0 transactions still open\n"
    assert orders(opened) == ["ann", "late"]
    assert "a PostgreSQL skips nothing" in error_of(
        *recover, postgres_server.url, "--skip", code=2, obj=messaging
    )


def test_a_missing_extra_is_told_with_its_command(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"pip install '\.\[postgres\]'"):
        participants.postgres(messaging, None)  # type: ignore[call-overload]
