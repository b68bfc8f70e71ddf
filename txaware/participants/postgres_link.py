"""A connection of ours to the user's PostgreSQL, and how PostgreSQL is spoken to."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Self

from coordinator.errors import install_with
from txaware.errors import BadRequest, MissingExtra, Unavailable
from txaware.participants.database_link import DatabaseLink
from txaware.participants.database_steps import Steps, library_of
from txaware.participants.outbox_row import COLUMNS
from txaware.participants.sql_dialect import SqlDialect

if TYPE_CHECKING:
    from psycopg import Connection

CONNECT_S = 10
# The relays that listen are woken by the commit. It tells the id of the transaction.
CHANNEL = "txaware_outbox"
_WITH_WAKE = f"""WITH written AS (
    INSERT INTO txaware_outbox ({COLUMNS})
    VALUES (?, ?, ?, ?, ?, {{token}}, ?, ?, ?, ?) RETURNING id)
    SELECT pg_notify('{CHANNEL}', ''), pg_current_xact_id()::text FROM written"""
_TYPES = {
    "place": "bigserial",
    "name": "text",
    "text": "text",
    "bytes": "bytea",
    "seconds": "double precision",
    "integer": "bigint",
    "table": "",
}


def driver() -> Any:
    """Returns the module psycopg; raises `MissingExtra` where it is not installed."""
    try:
        import psycopg as found
    except ImportError as error:
        raise MissingExtra(
            f"PostgreSQL is spoken to with psycopg 3: {install_with('postgres')}"
        ) from error
    return found


def checked_connection(connection: Any) -> "Connection[Any]":
    """Returns a connection of psycopg 3; raises `BadRequest` for anything else."""
    if not isinstance(connection, driver().Connection):
        raise BadRequest(
            f"{connection!r:.200} is no psycopg.Connection: open one of psycopg 3, by "
            f"psycopg.connect, whose calls block"
        )
    return connection  # type: ignore[no-any-return]  # it was looked at


def is_asyncio(connection: object) -> bool:
    """Tells whether that is a connection of psycopg or asyncpg for asyncio."""
    library = library_of(connection)
    return library == "asyncpg" or (
        library == "psycopg" and isinstance(connection, driver().AsyncConnection)
    )


class PostgresDialect(SqlDialect):
    """Speaks to PostgreSQL, by psycopg 3 and asyncpg."""

    types = _TYPES
    columns = """SELECT made.relname, info.attname
        FROM pg_class AS made JOIN pg_attribute AS info ON info.attrelid = made.oid
        WHERE made.oid = to_regclass(made.relname::text)
        AND made.relname LIKE 'txaware%'
        AND info.attnum > 0 AND NOT info.attisdropped"""
    insert = _WITH_WAKE.format(token="?")
    # All rows of one transaction have one token; the one that comes is not used.
    insert_alone = _WITH_WAKE.format(
        token="CASE WHEN ?::bytea IS NULL THEN NULL "
        "ELSE int8send(pg_current_xact_id()::text::bigint) END"
    )
    # A row to lock, for members of a group that begin at the same time.
    enter = "INSERT INTO txaware_inbox VALUES (?, ?, NULL) ON CONFLICT DO NOTHING"
    # Where another transaction notes one of them, this waits for its end.
    note = """INSERT INTO txaware_inbox_items
        SELECT ?, ?, item FROM unnest(?::text[]) AS item ORDER BY item
        ON CONFLICT DO NOTHING RETURNING item"""
    state = "INSERT INTO txaware_state VALUES (1, ?, 0) ON CONFLICT DO NOTHING"
    lock = " FOR UPDATE"
    alone = "SELECT pg_advisory_xact_lock(8387236824)"

    def own(self, sql: str) -> str:
        """Returns a statement with the places of psycopg for values."""
        return _own(sql)

    def cursor(self, connection: Any) -> Steps[Any]:
        """Makes a cursor whose rows are tuples."""
        yield from ()
        return connection.cursor(row_factory=driver().rows.tuple_row)

    def executed(self, connection: Any, own: str, values: Sequence[Any]) -> Steps[Any]:
        """Runs a statement; what is NULL stands in its text, as drivers take long."""
        absent = tuple([at for at, value in enumerate(values) if value is None])
        if absent:
            own = _with_nulls(own, absent)
            values = [value for value in values if value is not None]
        return (yield from super().executed(connection, own, values))

    def is_outside(self, connection: Any) -> bool:
        """Tells whether it is in autocommit, and nobody has begun a transaction."""
        idle = driver().pq.TransactionStatus.IDLE
        return bool(connection.autocommit) and (
            connection.info.transaction_status is idle
        )


@cache
def _own(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")


@lru_cache(maxsize=100)
def _with_nulls(own: str, absent: tuple[int, ...]) -> str:
    """Returns a statement with NULL in some of its places for values."""
    first, *others = own.split("%s")
    places = ["NULL" if at in absent else "%s" for at in range(len(others))]
    return first + "".join([a + b for a, b in zip(places, others, strict=True)])


POSTGRES = PostgresDialect()


class PostgresLink(DatabaseLink):
    """A connection with the parameters of the user's, or to an address."""

    dialect = POSTGRES

    def __init__(self, address: str = "", **parameters: Any) -> None:
        super().__init__()
        self._address = address
        self._parameters = parameters

    @classmethod
    def beside(cls, connection: "Connection[Any]") -> Self:
        """Makes one to where another connection leads."""
        info = connection.info
        parameters: dict[str, Any] = {"connect_timeout": CONNECT_S}
        parameters |= info.get_parameters()
        return cls(**parameters, password=info.password or None)

    def another(self) -> Self:
        """Makes another one to the same place."""
        return type(self)(self._address, **self._parameters)

    @property
    def name(self) -> str:
        """The database and its place, in words."""
        return self.run(name_of)

    @contextmanager
    def making_tables(self, connection: "Connection[Any]") -> Iterator[None]:
        """Surrounds the making of the tables, which others wait for."""
        with connection.transaction():
            connection.execute(POSTGRES.alone)
            yield

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        errors = driver()
        try:
            yield
        except errors.OperationalError as error:
            self._drop()
            raise Unavailable(f"PostgreSQL does not answer: {error}") from error
        except errors.ProgrammingError as error:  # an address, or a right
            raise BadRequest(f"PostgreSQL refuses: {str(error).strip()}") from error

    def _opened(self) -> "Connection[Any]":
        if self._is_closed:
            raise Unavailable("the connection to PostgreSQL is closed")
        if self._connection is None or self._connection.closed:
            self._connection = driver().connect(
                self._address, autocommit=True, **self._parameters
            )
        return self._connection  # type: ignore[no-any-return]

    @contextmanager
    def _transaction(self, connection: "Connection[Any]") -> Iterator[None]:
        with connection.transaction():
            connection.execute("SET LOCAL synchronous_commit = on")
            yield


def name_of(connection: "Connection[Any]") -> str:
    """Returns the database of a connection and its place, in words."""
    info = connection.info
    return f"postgres {info.dbname} at {info.host or 'localhost'}:{info.port}"
