"""The port of the service that keeps users' tables."""

from collections.abc import Iterable
from typing import Protocol

from coordinator.interfaces import Coordinator
from coordinator.transaction import Transaction
from txaware.model.interfaces import CargoCounted
from txaware.model.requests import Pointer
from txaware.model.rows import RowChange, Rows


class CarriesRows(Protocol):
    """The part of a service whose rows of tables a commit carries."""

    def row_cargo(
        self,
        coordinator: Coordinator,
        tx: Transaction,
        tables: Iterable[tuple[str, Iterable[RowChange]]],
    ) -> CargoCounted | None:
        """Returns checked changes; None where they go before the commit."""


class TableService(Protocol):
    """The service that keeps users' tables, whose rows become visible with a commit.

    The calls are the same embedded, over HTTP and on HBase. Any number of threads may
    call. A table is `name` or `namespace:name`, and is there with its first row. Each
    row has a version for each transaction that changed it, until nobody can read it.
    """

    @property
    def carrier(self) -> CarriesRows | None:
        """Makes cargoes of its rows; None where no commit carries any."""

    def tables(self, namespace: str = "default") -> list[str]:
        """Returns the names of a namespace's tables that have rows, in order."""

    def get_row(
        self, table: str, key: bytes, *, transaction: Transaction | None = None
    ) -> bytes | None:
        """Returns the value of a key as the transaction or a fresh snapshot sees it."""

    def scan_rows(
        self,
        table: str,
        *,
        prefix: bytes = b"",
        start: bytes | None = None,
        stop: bytes | None = None,
        limit: int | None = None,
        transaction: Transaction | None = None,
    ) -> Rows:
        """Returns some rows in the order of keys, and where the next ones begin.

        Their keys begin with `prefix`, and lie from `start` on and before `stop`.
        """

    def cut_rows(self, changes: Iterable[RowChange]) -> list[list[RowChange]]:
        """Returns changes in as few pieces as `save_rows` takes, in their order."""

    def save_rows(
        self, table: str, changes: Iterable[RowChange], *, transaction: Pointer
    ) -> None:
        """Writes changes that become visible with the commit of the transaction.

        They are one piece of `cut_rows`, and are written whole or not at all. The
        coordinator is told the keys by whoever holds the transaction.
        """

    def take_back_rows(
        self, table: str, keys: Iterable[bytes], *, transaction: Pointer
    ) -> None:
        """Takes back what the transaction wrote of these keys."""
