"""What is of PostgreSQL alone: what is settled later, and statements that failed."""

from typing import Any

import pytest

from tests.support.concurrency import until
from tests.support.database_shops import (
    Opened,
    order,
    orders,
    prepared,
)
from tests.support.messagings import committed
from txaware import participants
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    TransactionOutcomeUnknown,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.participants import DecidingPostgres, Postgres
from txaware.participants.database_steps import Steps
from txaware.participants.prepared_transactions import MOST_UNSETTLED


@pytest.fixture
def database() -> str:
    return "postgres"


@pytest.fixture
def messaging(shop_messaging: Messaging) -> Messaging:
    return shop_messaging


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


def test_what_somebody_else_has_ended_leaves_the_connection_usable(
    messaging: Messaging, preparing: Postgres, opened: Opened
) -> None:
    """The first use of another process may find a transaction that ends just then."""
    end = preparing._end_here

    def late(name: str, *, commit: bool) -> Steps[None]:
        preparing.recover()
        yield from end(name, commit=commit)

    preparing._end_here = late  # type: ignore[method-assign]
    order(messaging, preparing, "ann")
    order(messaging, preparing, "bob")
    assert orders(opened) == ["ann", "bob"]


def test_what_is_open_at_the_first_use_is_ended_in_the_background(
    messaging: Messaging, preparing: Postgres, opened: Opened
) -> None:
    tx = messaging.coordinator.start_short()
    messaging.coordinator.persist(tx)
    preparing.start_tx(tx)
    preparing.connection.execute("INSERT INTO orders VALUES ('never')")
    assert preparing.commit_tx()
    assert preparing.recover() == [tx.transaction_id]
    preparing._prepared.recover_soon()
    messaging.coordinator.invalidate(tx)
    assert until(lambda: not prepared(opened))
    assert orders(opened) == []


def test_a_server_that_prepares_nothing_is_told_what_to_set(
    messaging: Messaging, preparing: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = preparing._prepared._link
    monkeypatch.setattr(type(link), "run", lambda *_: ("0",))
    with pytest.raises(BadRequest, match="set max_prepared_transactions"):
        preparing._prepared.require_that_it_prepares()


@pytest.mark.parametrize("kind", ["preparing", "deciding"])
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


def test_an_end_inside_of_the_block_is_told(
    messaging: Messaging, preparing: Postgres, opened: Opened
) -> None:
    with (  # noqa: PT012
        pytest.raises(MisusedTransaction, match="was ended inside"),
        messaging.transaction(preparing),
    ):
        preparing.connection.execute("INSERT INTO orders VALUES ('ann')")
        with pytest.raises(Exception, match="two-phase transaction"):
            preparing.connection.commit()
        preparing.connection.execute("ROLLBACK")
    assert orders(opened) == []


def test_a_commit_inside_of_a_block_that_it_decides_is_told(
    messaging: Messaging, deciding: DecidingPostgres, opened: Opened
) -> None:
    with (  # noqa: PT012
        pytest.raises(MisusedTransaction, match="by commit"),
        messaging.transaction(deciding),
    ):
        deciding.connection.execute("INSERT INTO orders VALUES ('kept')")
        deciding.connection.commit()
        deciding.connection.execute("INSERT INTO orders VALUES ('gone')")
    assert orders(opened) == ["kept"]


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
