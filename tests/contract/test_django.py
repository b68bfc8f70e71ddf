"""Django's `atomic` inside of a block, as docs/participants.md describes it."""

from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.context import current_transaction
from coordinator.errors import TransactionNotInProgress
from tests.support.messagings import committed
from tests.support.postgres import PostgresServer
from txaware import participants
from txaware.messaging import Messaging


@pytest.fixture
def database(postgres_server: PostgresServer) -> Any:
    """The connection of Django to an empty database, and its `atomic`."""
    django = pytest.importorskip("django")
    from django.conf import settings
    from django.db import ConnectionHandler

    if not settings.configured:
        settings.configure()
        django.setup()
    place = {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres"}
    place |= {"USER": "txaware", "HOST": "127.0.0.1", "PORT": str(postgres_server.port)}
    connection = ConnectionHandler({"default": place})["default"]
    django.db.connections["default"] = connection
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (who text)")
    connection.set_autocommit(False)
    yield connection
    connection.close()


def orders(server: PostgresServer) -> list[str]:
    with server.connect() as connection:
        return [who for (who,) in connection.execute("SELECT who FROM orders")]


def order(connection: Any, messaging: Messaging, who: str) -> None:
    """What a view does: an atomic block of Django around its SQL."""
    from django.db.transaction import Atomic

    with Atomic("default", savepoint=True, durable=False):
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s)", [who])
        messaging.publisher("t").publish(who.encode())


@pytest.mark.parametrize("outbox", [False, True])
def test_atomic_is_a_savepoint_of_the_block(
    tmp_path: Path, postgres_server: PostgresServer, database: Any, outbox: bool
) -> None:
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
        messaging.create_topic("t")
        found = database.connection
        shop: Any = (
            participants.postgres(messaging, found, outbox=True, relay=False)
            if outbox
            else participants.postgres(messaging, found)
        )
        for who in ("ann", "bob"):
            with messaging.transaction(shop):
                order(database, messaging, who)
        with pytest.raises(ZeroDivisionError), messaging.transaction(shop):  # noqa: PT012
            order(database, messaging, "eve")
            assert 1 / 0
        if outbox:
            shop.relay()
        assert committed(messaging) == [b"ann", b"bob"]
    assert orders(postgres_server) == ["ann", "bob"]


PAGE = Path(__file__).parents[2] / "docs" / "participants.md"


def documented(messaging: Messaging) -> Any:
    """The context manager that docs/participants.md has for Django."""
    _, _, page = PAGE.read_text().partition("### Django")
    names = {"messaging": messaging, "participants": participants}
    exec(page.partition("```py\n")[2].partition("\n\nwith ")[0], names)
    return names["in_one_transaction"]


def test_after_the_block_of_the_documents_django_commits_by_itself(
    tmp_path: Path, postgres_server: PostgresServer, database: Any
) -> None:
    from django.db.transaction import on_commit

    told: list[str] = []
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
        messaging.create_topic("t")
        in_one_transaction = documented(messaging)
        database.set_autocommit(True)
        with in_one_transaction():
            order(database, messaging, "ann")
            on_commit(lambda: told.append("ann"))
            assert told == []
        assert told == ["ann"]
        with pytest.raises(TransactionNotInProgress), in_one_transaction():  # noqa: PT012
            order(database, messaging, "eve")
            on_commit(lambda: told.append("eve"))
            context = current_transaction(messaging.coordinator)
            assert context is not None
            messaging.coordinator.invalidate(context.transaction.transaction_id)
        with database.cursor() as cursor:  # as the session of a request is saved
            cursor.execute("INSERT INTO orders VALUES ('a session')")
        with in_one_transaction():
            order(database, messaging, "bob")
        assert committed(messaging) == [b"ann", b"bob"]
    database.close()  # what is not committed would be lost here
    assert orders(postgres_server) == ["ann", "a session", "bob"]
    assert told == ["ann"]
