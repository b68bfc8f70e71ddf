"""Makes participants of the connections and sessions that programs have."""

import sqlite3
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from txaware.errors import BadRequest
from txaware.messaging import Messaging
from txaware.messaging.messaging import checked_messaging
from txaware.participants.database_steps import library_of
from txaware.participants.mysql import Mysql
from txaware.participants.mysql_link import checked_mysql
from txaware.participants.mysql_outbox import DecidingMysql
from txaware.participants.postgres import Postgres
from txaware.participants.postgres_link import (
    checked_connection,
    is_asyncio,
)
from txaware.participants.postgres_outbox import DecidingPostgres
from txaware.participants.prepared_database import PreparedDatabase
from txaware.participants.sqlalchemy import SqlalchemySession
from txaware.participants.sqlite import Sqlite

# When what is prepared is committed: before the end of its block, or a moment later.
Settle: TypeAlias = Literal["now", "later"]

if TYPE_CHECKING:
    from aiosqlite import Connection as AiosqliteConnection
    from asyncpg import Connection as AsyncpgConnection
    from psycopg import AsyncConnection, Connection
    from pymysql.connections import Connection as MysqlConnection
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    from txaware.client.aio.async_messaging import AsyncMessaging
    from txaware.participants.asyncio_participants import (
        AsyncDecidingPostgres,
        AsyncPostgres,
        AsyncSqlite,
    )
    from txaware.participants.asyncio_session import AsyncSqlalchemySession

    Awaited: TypeAlias = AsyncConnection[Any] | AsyncpgConnection


@overload
def sqlite(
    messaging: Messaging, connection: sqlite3.Connection, *, relay: bool = ...
) -> Sqlite: ...


@overload
def sqlite(
    messaging: "AsyncMessaging",
    connection: "AiosqliteConnection",
    *,
    relay: bool = ...,
) -> "AsyncSqlite": ...


def sqlite(
    messaging: "Messaging | AsyncMessaging", connection: Any, *, relay: bool = True
) -> "Sqlite | AsyncSqlite":
    """Makes a participant of a connection to a file of SQLite.

    `with messaging.transaction(sqlite(messaging, connection)):` commits what the
    connection writes in the block together with the messages that are published there.
    They are carried over in the background of this process, also those that a crash has
    left; with `relay=False` that is left to `txaware outbox relay`. With an
    `AsyncMessaging` it is a connection of aiosqlite, and `async with`.
    """
    if library_of(connection) == "aiosqlite":
        # An event loop takes long to import, and most programs have none.
        from txaware.participants.asyncio_participants import async_sqlite

        return async_sqlite(messaging, connection, relay=relay)
    blocking = checked_messaging(messaging, taker="participants.sqlite")
    if not isinstance(connection, sqlite3.Connection):
        raise BadRequest(
            f"{connection!r:.200} is no connection of sqlite3: open one by "
            f"sqlite3.connect(path)"
        )
    return Sqlite(blocking, connection, in_background=relay).open()


@overload
def postgres(
    messaging: Messaging,
    connection: "Connection[Any]",
    *,
    outbox: Literal[False] = ...,
    settle: Settle = ...,
) -> Postgres: ...


@overload
def postgres(
    messaging: Messaging,
    connection: "Connection[Any]",
    *,
    outbox: Literal[True],
    relay: bool = ...,
) -> DecidingPostgres: ...


@overload
def postgres(
    messaging: "AsyncMessaging",
    connection: "Awaited",
    *,
    outbox: Literal[False] = ...,
    settle: Settle = ...,
) -> "AsyncPostgres": ...


@overload
def postgres(
    messaging: "AsyncMessaging",
    connection: "Awaited",
    *,
    outbox: Literal[True],
    relay: bool = ...,
) -> "AsyncDecidingPostgres": ...


def postgres(
    messaging: "Messaging | AsyncMessaging",
    connection: Any,
    *,
    outbox: bool = False,
    relay: bool = True,
    settle: Settle = "now",
) -> Any:
    """Makes a participant of a connection of psycopg 3 to PostgreSQL.

    `with messaging.transaction(postgres(messaging, connection)):` commits what the
    connection does in the block together with all else that does so. The first use in a
    process ends what a crash has left prepared. With `settle="later"` a block that has
    ended has committed for good, and others see its rows in PostgreSQL a moment later,
    when it is committed there in the background. With `outbox=True` nothing is
    prepared: PostgreSQL's own commit decides, and a relay carries the messages over, in
    the background of this process unless `relay` is False. With an `AsyncMessaging` it
    is an `AsyncConnection`, or one of asyncpg, and `async with`.
    """
    if settle not in ("now", "later"):
        raise BadRequest(f"settle is 'now' or 'later', not {settle!r}")
    if outbox and settle == "later":
        raise BadRequest(
            "settle='later' is for what is prepared, and with outbox=True nothing is: "
            "its commit decides the block, and is there when the block ends"
        )
    settles_later = settle == "later"
    if is_asyncio(connection):
        # An event loop takes long to import, and most programs have none.
        from txaware.participants.asyncio_participants import async_postgres

        made = async_postgres(messaging, connection, outbox=outbox, relay=relay)
        if isinstance(made, PreparedDatabase):
            made.settles_later = settles_later
        return made
    blocking = checked_messaging(messaging, taker="participants.postgres")
    checked = checked_connection(connection)
    if outbox:
        return DecidingPostgres(blocking, checked, in_background=relay).open()
    prepared = Postgres(blocking, checked).open()
    prepared.settles_later = settles_later
    return prepared


@overload
def mysql(
    messaging: Messaging, connection: "MysqlConnection", *, outbox: Literal[False] = ...
) -> Mysql: ...


@overload
def mysql(
    messaging: Messaging,
    connection: "MysqlConnection",
    *,
    outbox: Literal[True],
    relay: bool = ...,
) -> DecidingMysql: ...


def mysql(
    messaging: Messaging,
    connection: "MysqlConnection",
    *,
    outbox: bool = False,
    relay: bool = True,
) -> Mysql | DecidingMysql:
    """Makes a participant of a connection of PyMySQL to a MariaDB or MySQL.

    `with messaging.transaction(mysql(messaging, connection)):` commits what the
    connection does in the block together with all else that does so. The first use in a
    process ends what a crash has left prepared. With `outbox=True` nothing is prepared:
    the commit of MySQL decides, and a relay carries the messages over, in the
    background of this process unless `relay` is False.
    """
    blocking = checked_messaging(
        messaging,
        taker="participants.mysql",
        in_asyncio="MySQL has no participant for asyncio, so have a thread run its "
        "block: asyncio.to_thread",
    )
    checked = checked_mysql(connection)
    if outbox:
        return DecidingMysql(blocking, checked, in_background=relay).open()
    return Mysql(blocking, checked).open()


@overload
def sqlalchemy(
    messaging: Messaging, session: "Session", *, outbox: bool = ..., relay: bool = ...
) -> SqlalchemySession: ...


@overload
def sqlalchemy(
    messaging: "AsyncMessaging",
    session: "AsyncSession",
    *,
    outbox: bool = ...,
    relay: bool = ...,
) -> "AsyncSqlalchemySession": ...


def sqlalchemy(
    messaging: "Messaging | AsyncMessaging",
    session: Any,
    *,
    outbox: bool = False,
    relay: bool = True,
) -> "SqlalchemySession | AsyncSqlalchemySession":
    """Makes a participant of a session of SQLAlchemy 2.

    It does what `participants.sqlite`, `participants.postgres` and `participants.mysql`
    do with the session's connection; `outbox` is for the latter two, and `relay` for
    all. The end of the block flushes and commits the session. With an `AsyncMessaging`
    it is an `AsyncSession`, to SQLite or PostgreSQL, and `async with`.
    """
    if hasattr(session, "sync_session"):
        # An event loop takes long to import, and most programs have none.
        from txaware.participants.asyncio_session import async_session

        return async_session(messaging, session, outbox=outbox, relay=relay)
    blocking = checked_messaging(messaging, taker="participants.sqlalchemy")
    if not hasattr(session, "connection") or not hasattr(session, "flush"):
        raise BadRequest(
            f"{session!r:.200} is no session of SQLAlchemy: make one by "
            f"sqlalchemy.orm.Session(engine)"
        )
    return SqlalchemySession(blocking, session, outbox=outbox, relay=relay)
