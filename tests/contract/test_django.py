"""Django's `atomic` inside of a block, as docs/participants.md describes it."""

from pathlib import Path
from typing import Any

import pytest

import txaware
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
    connections = ConnectionHandler({"default": place})
    connection = connections["default"]
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
    from django.db import connections
    from django.db.transaction import Atomic

    connections["default"] = connection
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
