"""What a connection to PostgreSQL has to be at the begin of a block, and at its end."""

from typing import Any

from txaware.errors import BadRequest, MisusedTransaction
from txaware.participants.database_steps import Steps
from txaware.participants.postgres_link import driver

SAVEPOINT = "txaware_block"


def require_idle(connection: Any, name: str) -> None:
    """Raises unless a block can begin a transaction of its own."""
    if connection.closed:
        raise BadRequest(f"the connection to {name} is closed; open another one")
    if connection.autocommit:
        raise BadRequest(
            f"the connection to {name} is in autocommit, so each statement would "
            f"commit by itself; set connection.autocommit = False"
        )
    if connection.info.transaction_status is not driver().pq.TransactionStatus.IDLE:
        raise MisusedTransaction(
            f"the connection to {name} has a transaction open that began before the "
            f"block; commit it or roll it back first"
        )


def require_whole(connection: Any, name: str) -> None:
    """Raises unless the transaction of the block is open, and no statement failed."""
    states = driver().pq.TransactionStatus
    status = connection.info.transaction_status
    if status is states.INERROR:
        raise failed(name)
    if status is states.IDLE:
        raise MisusedTransaction(
            f"the transaction of {name} was ended inside of its block, by a COMMIT or "
            f"ROLLBACK of yours; the end of the block commits"
        )


def failed(name: str) -> MisusedTransaction:
    """Returns the error of a block that can only be rolled back."""
    return MisusedTransaction(
        f"a statement failed in the block of {name}, so PostgreSQL can only roll it "
        f"back; what may fail needs a savepoint"
    )


def mark_begin(connection: Any) -> Steps[None]:
    """Marks the begin of the block, so that its end knows the transaction again."""
    yield connection.execute(f"SAVEPOINT {SAVEPOINT}")


def require_marked(connection: Any, name: str) -> Steps[None]:
    """Raises unless the transaction is whole, and the one that the block began."""
    require_whole(connection, name)
    try:
        yield connection.execute(f"RELEASE SAVEPOINT {SAVEPOINT}")
    except driver().errors.InFailedSqlTransaction as error:
        raise failed(name) from error
    except driver().errors.InvalidSavepointSpecification as error:
        raise MisusedTransaction(
            f"the transaction of {name} was ended inside of its block, by commit() or "
            f"rollback(); the end of the block commits. What came after that call is "
            f"rolled back"
        ) from error
