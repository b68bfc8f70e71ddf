"""A shop in each database server, whose blocks are prepared, or decided by it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.support import mysql, postgres
from tests.support.concurrency import until
from tests.support.database_server import DatabaseServer
from txaware import participants
from txaware.messaging import Messaging
from txaware.participants.database_steps import library_of
from txaware.participants.deciding_database import DecidingDatabase
from txaware.participants.prepared_database import PreparedDatabase

Opened = Callable[..., Any]
LATE = "INSERT INTO orders VALUES ('late')"
LEFT_PREPARED = {"postgres": postgres.left_prepared, "mysql": mysql.left_prepared}


@pytest.fixture(params=[*LEFT_PREPARED])
def database(request: pytest.FixtureRequest) -> str:
    """The name of each in turn; a file of tests of one has a fixture of this name."""
    return str(request.param)


@pytest.fixture
def database_server(request: pytest.FixtureRequest, database: str) -> DatabaseServer:
    """The server, with an empty database."""
    server: DatabaseServer = request.getfixturevalue(f"{database}_server")
    return server


@pytest.fixture
def shop_messaging(decider_messaging: Messaging) -> Messaging:
    """A store in this process, and behind a server, with a topic."""
    decider_messaging.create_topic("t")
    return decider_messaging


@pytest.fixture
def opened(database_server: DatabaseServer) -> Iterator[Opened]:
    """Opens connections, as a user does."""
    with ExitStack() as stack:

        def connect(**options: Any) -> Any:
            connection = database_server.connect(**options)
            stack.callback(connection.close)
            return connection

        with closing(connect()) as connection:
            connection.execute("CREATE TABLE orders (who varchar(20))")
            connection.commit()
        yield connect


@pytest.fixture
def made(database: str, opened: Opened) -> Callable[..., Any]:
    """Makes participants, over a connection of their own."""

    def make(messaging: Messaging, **options: Any) -> Any:
        return getattr(participants, database)(messaging, opened(), **options)

    return make


@pytest.fixture
def preparing(
    shop_messaging: Messaging, made: Callable[..., PreparedDatabase]
) -> PreparedDatabase:
    """A participant whose blocks are prepared."""
    return made(shop_messaging)


@pytest.fixture
def deciding(
    shop_messaging: Messaging, made: Callable[..., DecidingDatabase]
) -> DecidingDatabase:
    """A participant that decides its blocks."""
    return made(shop_messaging, outbox=True, relay=False)


def orders(opened: Opened) -> list[str]:
    """All that were ordered, in the order of their names."""
    with closing(opened()) as connection:
        found = connection.execute("SELECT who FROM orders ORDER BY who").fetchall()
    return [who for (who,) in found]


def prepared(opened: Opened) -> list[str]:
    """The names of what is prepared."""
    with closing(opened()) as connection:
        is_mysql = library_of(connection) == "pymysql"
        return LEFT_PREPARED["mysql" if is_mysql else "postgres"](connection)


def order(messaging: Messaging, shop: Any, who: str) -> None:
    """Orders in a block, with a message."""
    with messaging.transaction(shop):
        shop.connection.execute("INSERT INTO orders VALUES (%s)", (who,))
        messaging.publisher("t").publish(who.encode())


def killed_after_the_prepare(
    messaging: Messaging,
    shop: PreparedDatabase,
    *,
    commits: bool,
    statement: str = LATE,
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


def soon(database: str, found: Callable[[], object]) -> object:
    """Looks at once; in MySQL until the server knows that a connection is gone."""
    return until(found) if database == "mysql" else found()
