"""A connection of ours to the user's PostgreSQL, opened anew when it was lost."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from coordinator.errors import install_with
from txaware.errors import BadRequest, MissingExtra, Unavailable

if TYPE_CHECKING:
    from psycopg import Connection

R = TypeVar("R")

CONNECT_S = 10


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


def library_of(connection: object) -> str:
    """Names the library that a connection is of; nothing is imported for that."""
    return type(connection).__module__.partition(".")[0]


def is_asyncio(connection: object) -> bool:
    """Tells whether that is a connection of psycopg or asyncpg for asyncio."""
    library = library_of(connection)
    return library == "asyncpg" or (
        library == "psycopg" and isinstance(connection, driver().AsyncConnection)
    )


class PostgresLink:
    """A connection with the parameters of the user's, for recovery and for a relay."""

    def __init__(self, address: str = "", **parameters: Any) -> None:
        self._address = address
        self._parameters = parameters
        self._lock = threading.Lock()
        self._connection: Connection[Any] | None = None
        self._is_closed = False

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
        return self.run(lambda found: name_of(found))

    def run(self, work: Callable[["Connection[Any]"], R]) -> R:
        """Does some work with the connection, which is in autocommit.

        Raises `Unavailable` where there is none, or where it was lost meanwhile, and
        `BadRequest` where PostgreSQL or the driver refuses.
        """
        with self._lock:
            errors = driver()
            try:
                return work(self._opened())
            except errors.OperationalError as error:
                self._drop()
                raise Unavailable(f"PostgreSQL does not answer: {error}") from error
            except errors.ProgrammingError as error:  # an address, or a right
                raise BadRequest(f"PostgreSQL refuses: {str(error).strip()}") from error

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            self._is_closed = True
            self._drop()

    def _opened(self) -> "Connection[Any]":
        if self._is_closed:
            raise Unavailable("the connection to PostgreSQL is closed")
        if self._connection is None or self._connection.closed:
            self._connection = driver().connect(
                self._address, autocommit=True, **self._parameters
            )
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def name_of(connection: "Connection[Any]") -> str:
    """Returns the database of a connection and its place, in words."""
    info = connection.info
    return f"postgres {info.dbname} at {info.host or 'localhost'}:{info.port}"
