"""A connection of ours to a user's database, opened anew when it was lost."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Self, TypeVar

from txaware.participants.sql_dialect import Execute, SqlDialect

R = TypeVar("R")

# A commit that writes something is on disk with all that came before it.
TOUCH = 'UPDATE txaware_state SET "reads" = "reads" + 1'


class DatabaseLink(ABC):
    """A connection for recovery and for a relay; each statement commits by itself."""

    dialect: SqlDialect

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Any = None
        self._is_closed = False

    @property
    @abstractmethod
    def name(self) -> str:
        """The database and its place, in words."""

    @abstractmethod
    def another(self) -> Self:
        """Makes another one to the same place."""

    def run(self, work: Callable[[Any], R]) -> R:
        """Does some work with the connection.

        Raises `Unavailable` where there is none, or where it was lost meanwhile, and
        `BadRequest` where the database or the driver refuses.
        """
        with self._lock, self._mapped_errors():
            return work(self._opened())

    def ask(self, work: Callable[[Execute], R]) -> R:
        """Does some work with what runs statements of ours."""
        return self.run(lambda found: work(self.dialect.executing(found)))

    def change(self, work: Callable[[Execute], R]) -> R:
        """Does some work in one transaction, which is on disk when it returns.

        Nobody else does so meanwhile. Its commit writes something in any case: so what
        others have committed before, perhaps without a sync, is on disk as well.
        """

        def changed(connection: Any) -> R:
            with self._transaction(connection):
                execute = self.dialect.executing(connection)
                execute(TOUCH, ())
                return work(execute)

        return self.run(changed)

    def close(self) -> None:
        """Closes the connection."""
        with self._lock:
            self._is_closed = True
            self._drop()

    @abstractmethod
    def making_tables(self, connection: Any) -> AbstractContextManager[object]:
        """Surrounds the making of the tables, which others wait for."""

    @abstractmethod
    def _mapped_errors(self) -> AbstractContextManager[None]:
        """Maps errors of the driver to what their reader can do."""

    @abstractmethod
    def _opened(self) -> Any:
        """Returns the connection; opens it where it is not, or was lost."""

    @abstractmethod
    def _transaction(self, connection: Any) -> AbstractContextManager[object]:
        """Surrounds changes, which commit together and are synced."""

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
