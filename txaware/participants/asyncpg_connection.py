"""A connection of asyncpg, used as one of psycopg: SQL is written once for both."""

from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

from txaware.participants.postgres_link import driver


class AsyncpgCursor:
    """The rows of one statement."""

    def __init__(self, connection: "AsyncpgConnection") -> None:
        self._connection = connection
        self._rows: list[Any] = []
        # psycopg has a description where a statement has rows.
        self.description = True
        # psycopg says -1 where it is not known how many rows a statement changed.
        self.rowcount = -1

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> "AsyncpgCursor":
        """Runs a statement."""
        self._rows = await self._connection.fetch(sql, values)
        return self

    async def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs a statement for each of some rows."""
        await self._connection.fetch_many(sql, rows)

    def fetchall(self) -> list[Any]:
        """Returns the rows."""
        return self._rows


class AsyncpgInfo:
    """The place of a connection, and how its transaction stands."""

    def __init__(self, connection: "AsyncpgConnection") -> None:
        self._connection = connection
        # The public interface of asyncpg does not tell where a connection leads.
        inner = getattr(connection.given, "_con", connection.given)
        self._parameters, address = inner._params, inner._addr
        self._has_tls = inner._transport.get_extra_info("ssl_object") is not None
        if isinstance(address, str):  # a socket: DIRECTORY/.s.PGSQL.PORT
            directory, _, port = address.rpartition("/.s.PGSQL.")
            self.host, self.port = directory, int(port)
        else:
            self.host, self.port = address[0], int(address[1])
        self.dbname = self._parameters.database or self._parameters.user
        self.password = self._parameters.password

    def get_parameters(self) -> dict[str, str]:
        """Returns what another connection to there needs, but the password."""
        found = {
            "host": self.host,
            "port": str(self.port),
            "dbname": self.dbname,
            "user": self._parameters.user,
        }
        return found | ({"sslmode": "require"} if self._has_tls else {})

    @property
    def transaction_status(self) -> Any:
        """Tells whether a transaction is open; not whether a statement failed in it."""
        states = driver().pq.TransactionStatus
        return states.INTRANS if self._connection.is_in_transaction() else states.IDLE


class AsyncpgConnection:
    """A connection of asyncpg, whose transactions begin by themselves.

    `lent` is one whose transaction others begin, as a session of SQLAlchemy does;
    `begin` has them do so before the first statement.
    """

    def __init__(
        self,
        given: Any,
        *,
        lent: bool = False,
        begin: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.given = given
        self._is_lent = lent
        self._begin_lent = begin
        self._has_begun = False
        self._is_single = False
        self._transaction: Any = None

    @cached_property
    def info(self) -> AsyncpgInfo:
        """Tells where the connection leads; it is made when a block asks for it."""
        return AsyncpgInfo(self)

    @property
    def closed(self) -> bool:
        """True once it was closed or lost."""
        return bool(self.given.is_closed())

    @property
    def autocommit(self) -> bool:
        """True where nobody has begun the transaction of a connection that is lent."""
        return self._is_lent and not self.given.is_in_transaction()

    def is_in_transaction(self) -> bool:
        """Tells whether a transaction is open; before a block, none that is lent is."""
        if self._is_lent and not self._has_begun:
            return False
        return bool(self.given.is_in_transaction())

    def cursor(self, **_: Any) -> AsyncpgCursor:
        """Makes a cursor; its rows are tuples in any case."""
        return AsyncpgCursor(self)

    async def execute(
        self, sql: str, values: Sequence[Any] = (), *, prepare: bool | None = None
    ) -> AsyncpgCursor:
        """Runs a statement; `prepare` is psycopg's, and asyncpg prepares as it does."""
        return await self.cursor().execute(sql, values)

    async def fetch(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Runs a statement, in a transaction that begins with the first."""
        await self._begin()
        try:
            if values or sql.lstrip().startswith("SELECT"):
                return [
                    tuple(row) for row in await self.given.fetch(_own(sql), *values)
                ]
            await self.given.execute(sql)
            return []
        except Exception as error:
            raise _as_psycopg(error) from error

    async def fetch_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs a statement for each of some rows."""
        await self._begin()
        try:
            await self.given.executemany(_own(sql), rows)
        except Exception as error:
            raise _as_psycopg(error) from error

    async def commit(self) -> None:
        """Commits."""
        await self._end("commit")

    async def rollback(self) -> None:
        """Rolls back what is open."""
        await self._end("rollback")

    async def set_autocommit(self, value: bool) -> None:
        """Has statements commit by themselves, or not."""
        self._is_single = value

    async def close(self) -> None:
        """Closes the connection."""
        await self.given.close()

    async def _begin(self) -> None:
        if self._is_single or self._has_begun:
            return
        try:
            if not self._is_lent:
                self._transaction = self.given.transaction()
                await self._transaction.start()
            elif self._begin_lent is not None and not self.given.is_in_transaction():
                await self._begin_lent()
        except Exception as error:
            raise _as_psycopg(error) from error
        self._has_begun = True

    async def _end(self, how: str) -> None:
        has_begun, transaction = self._has_begun, self._transaction
        self._has_begun, self._transaction = False, None
        try:
            if transaction is not None:
                await getattr(transaction, how)()
            elif has_begun:
                await self.given.execute(how.upper())
        except Exception as error:
            raise _as_psycopg(error) from error


@lru_cache(maxsize=100)
def _own(sql: str) -> str:
    """Numbers the places for values: `%s` are `$1` and so on."""
    first, *others = sql.split("%s")
    return first + "".join([f"${at}{part}" for at, part in enumerate(others, 1)])


def _as_psycopg(error: Exception) -> Exception:
    """Returns what psycopg would have raised."""
    errors = driver()
    state = getattr(error, "sqlstate", None)
    if state and not str(state).startswith("08"):  # not that of a connection
        try:
            found: Exception = errors.errors.lookup(state)(str(error))
        except KeyError:
            return errors.DatabaseError(str(error))  # type: ignore[no-any-return]
        return found
    return errors.OperationalError(str(error))  # type: ignore[no-any-return]
