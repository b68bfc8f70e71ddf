"""The pool from which a session of SQLAlchemy takes its connection."""

from collections.abc import Iterator
from contextlib import contextmanager

from txaware.errors import Unavailable


@contextmanager
def told_pool() -> Iterator[None]:
    """Says what to do where the pool of a session has no connection to lend."""
    try:
        yield
    except Exception as error:
        if not is_pool_timeout(error):
            raise
        raise Unavailable(
            f"no connection is free in the pool of the session: {error}; have "
            f"others give theirs back, or make the pool larger"
        ) from error


def is_pool_timeout(error: Exception) -> bool:
    """Tells whether an error says that a pool of SQLAlchemy had no connection."""
    import sqlalchemy.exc as errors  # whose session raised it

    return isinstance(error, errors.TimeoutError)
