"""What a connection to MySQL has to be at the begin of a block, and at its end."""

from typing import Any

from txaware.errors import BadRequest, MisusedTransaction
from txaware.participants.database_steps import Steps
from txaware.participants.mysql_link import MYSQL, code_of, driver, is_in_transaction

SAVEPOINT = "txaware_block"
NO_SAVEPOINT = 1305


def require_idle(connection: Any, name: str) -> None:
    """Raises unless a block can begin a transaction of its own."""
    if not connection.open:
        raise BadRequest(f"the connection to {name} is closed; open another one")
    if connection.get_autocommit():
        raise BadRequest(
            f"the connection to {name} is in autocommit, so each statement would "
            f"commit by itself; say connection.autocommit(False)"
        )
    if is_in_transaction(connection):
        raise begun_before(name)


def begun_before(name: str) -> MisusedTransaction:
    """Returns the error of a transaction that is open where a block begins."""
    return MisusedTransaction(
        f"the connection to {name} has a transaction open that began before the "
        f"block; commit it or roll it back first"
    )


def mark_begin(connection: Any) -> Steps[None]:
    """Begins, and marks it, so that the end of the block knows the transaction again.

    A deadlock rolls it back, a statement that makes or changes a table commits it, and
    another one begins by itself.
    """
    yield connection.begin()
    yield from mark(connection, SAVEPOINT)


def mark(connection: Any, savepoint: str) -> Steps[None]:
    """Marks the transaction."""
    yield from MYSQL.change(connection, f"SAVEPOINT {savepoint}")


def is_marked(connection: Any, savepoint: str) -> Steps[bool]:
    """Tells whether the transaction is one that was marked, and takes the mark away."""
    try:
        yield from MYSQL.change(connection, f"RELEASE SAVEPOINT {savepoint}")
    except driver().err.OperationalError as error:
        if code_of(error) != NO_SAVEPOINT:
            raise
        return False
    return True


def require_marked(connection: Any, name: str) -> Steps[None]:
    """Raises unless the transaction is the one that the block began."""
    if not (yield from is_marked(connection, SAVEPOINT)):
        raise MisusedTransaction(
            f"the transaction of {name} was ended inside of its block: by commit() or "
            f"rollback(), by a statement that makes or changes a table, which commits, "
            f"or by a deadlock; the end of the block commits. What came after that is "
            f"rolled back"
        )
