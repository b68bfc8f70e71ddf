"""Calls of a database in steps, which a thread makes, or an event loop awaits.

A step is what a driver answers: the answer itself where it blocks, and what has to be
awaited in asyncio. So each rule of a participant is written once for both.
"""

import asyncio
import inspect
from collections.abc import Generator, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol, TypeVar

from txaware.errors import MisusedTransaction, Unavailable

T = TypeVar("T")

# The drivers whose connections take part; a program may inherit from these.
LIBRARIES = frozenset(["sqlite3", "aiosqlite", "psycopg", "asyncpg", "pymysql"])

Steps = Generator[Any, Any, T]


class Drives(Protocol):
    """Takes steps to their end, and returns their answer."""

    def __call__(self, steps: Steps[T]) -> T: ...


def in_thread(steps: Steps[T]) -> T:
    """Takes steps of a driver that blocks: each is done when it is there."""
    answer = None
    try:
        while True:
            answer = steps.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value


async def awaited(steps: Steps[T]) -> T:
    """Takes steps of a driver for asyncio."""
    try:
        step = steps.send(None)
        while True:
            try:
                answer = await step if inspect.isawaitable(step) else step
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value


def library_of(connection: object) -> str:
    """Names the library that a connection is of; nothing is imported for that."""
    kind: Any = type(connection)
    return _library_of(kind)


@cache
def _library_of(kind: Any) -> str:
    found: list[str] = [each.__module__.partition(".")[0] for each in kind.__mro__]
    return next((one for one in found if one in LIBRARIES), found[0])


def closed(connection: Any) -> Steps[None]:
    """Closes a connection."""
    yield connection.close()


class InLoop:
    """Has an event loop take steps, for a thread that waits.

    They are a task of their own: whoever is cancelled beside it does not stop them. A
    loop that ends cancels them, and the thread is interrupted then.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def __call__(self, steps: Steps[T]) -> T:
        if asyncio._get_running_loop() is self._loop:
            steps.close()
            raise MisusedTransaction(
                "an asyncio participant does this in its block: async with "
                "messaging.transaction(...): ..."
            )
        try:
            return asyncio.run_coroutine_threadsafe(awaited(steps), self._loop).result()
        except CancelledError as error:
            raise asyncio.CancelledError(*error.args) from None


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
