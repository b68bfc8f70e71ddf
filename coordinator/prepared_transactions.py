"""Prepared transactions: on disk, without a time-out, and ended by name from anywhere.

This is for a decision that is made outside, as that of a coordinator over several
databases: all prepare first, and none of them can refuse the commit after that.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, runtime_checkable

import attrs

from coordinator.errors import BadRequest
from coordinator.interfaces import Coordinator
from coordinator.transaction import Transaction

LONGEST_NAME = 200
NAME = "^[ -~]+$"


@attrs.frozen
class PreparedTransaction:
    """A transaction that waits, prepared, for somebody to end it by its name.

    `principal` prepared it, over the network; it is None for the program that owns the
    data, and without tokens.
    """

    name: str
    transaction_id: int
    since_ms: int
    principal: str | None = None

    @property
    def since(self) -> datetime:
        """The time when it was prepared."""
        return datetime.fromtimestamp(self.since_ms / 1000, UTC)

    def fields(self) -> dict[str, Any]:
        """Returns the fields of its JSON form."""
        return {
            "name": self.name,
            "transactionId": self.transaction_id,
            "sinceMs": self.since_ms,
            "principal": self.principal,
        }

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "PreparedTransaction":
        """Reads its JSON form."""
        return cls(
            fields["name"],
            fields["transactionId"],
            fields["sinceMs"],
            fields["principal"],
        )


@runtime_checkable
class TwoPhases(Protocol):
    """The part of a coordinator that prepares transactions. Optional.

    The order is that of `Coordinator`, with `prepare` where `commit` would come. From
    then on the transaction is in progress for all readers and never times out, and
    nobody else commits a key that it changed. Only the two calls that name it end it;
    all others raise `TransactionPrepared`.
    """

    def prepare(
        self, tx: Transaction, name: str, *, principal: str | None = None
    ) -> None:
        """Returns when only its name can end `tx`, which a crash cannot undo.

        Raises `PreparedExists` where another one has that name, and what `commit`
        raises. Asked again for the same transaction, it answers the same.
        """

    def prepared(self) -> list[PreparedTransaction]:
        """Returns all that are prepared, the oldest transaction first."""

    def commit_prepared(self, name: str, *, transaction_id: int | None = None) -> None:
        """Commits a prepared transaction; raises `PreparedNotFound` without one.

        It is also raised where another one than `transaction_id` has the name.
        """

    def rollback_prepared(
        self, name: str, *, transaction_id: int | None = None
    ) -> None:
        """Has nobody ever see a prepared one; raises `PreparedNotFound` without one."""


def two_phases(coordinator: Coordinator) -> TwoPhases:
    """Returns the coordinator if it prepares transactions; raises `BadRequest` if not.

    One that passes on calls may say so of a coordinator that refuses it later.
    """
    if not hasattr(coordinator, "commit_prepared"):
        raise BadRequest(
            f"{type(coordinator).__name__} cannot prepare a transaction: a Tephra has "
            f"no such state, and times every open one out. Use the embedded coordinator"
        )
    found: Any = coordinator
    return found  # type: ignore[no-any-return]  # a call tells what else is missing


def checked_prepared_name(name: object) -> str:
    """Returns the name; raises `BadRequest` for what is none."""
    is_text = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME
    if not isinstance(name, str) or not is_text or not re.fullmatch(NAME, name):
        raise BadRequest(
            f"the name of a prepared transaction has 1 to {LONGEST_NAME} characters, "
            f"all of them printable ASCII, and is not {name!r:.100}"
        )
    return name
