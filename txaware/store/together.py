"""Puts the ends of several batches together, which are parts of one request."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue

from coordinator.embedded.commit_log import Wait
from coordinator.interfaces import OnWritten
from txaware.errors import Unavailable
from txaware.model.interfaces import OrderedTable, Write

# Takes rows for the next batch, as `OrderedTable.submit` does.
Submit = Callable[[Sequence[Write], OnWritten], Wait]


class Together:
    """Tells how the parts of a request ended once all have."""

    def __init__(self, parts: int, on_written: OnWritten) -> None:
        self._lock = threading.Lock()
        self._left, self._parts, self._on_written = parts, parts, on_written
        self._errors: list[Unavailable] = []

    def ended(self, error: Unavailable | None) -> None:
        """Counts a part that ended."""
        with self._lock:
            self._left -= 1
            if error is not None:
                self._errors.append(error)
            if self._left:
                return
        self._on_written(in_part(self._errors, self._parts))


def in_part(errors: Sequence[Unavailable], parts: int) -> Unavailable | None:
    """Returns the error of a request that failed in some of its parts."""
    if not errors or len(errors) == parts:
        return errors[0] if errors else None
    return _written_in_part(errors[0])


def _written_in_part(error: Exception) -> Unavailable:
    return Unavailable(f"a part of it is written, and then: {error}")


@contextmanager
def submitting(waits: Sequence[Wait]) -> Iterator[None]:
    """Surrounds the submits of several batches, whose waits come into `waits`.

    Where one cannot be submitted, those before it are waited for: they are on disk, or
    are not, when the error comes, and it does not say that nothing changed.
    """
    try:
        yield
    except Exception as error:
        if not waits:
            raise
        for wait in waits:
            with suppress(Unavailable):
                wait()
        raise _written_in_part(error) from error


def at_once(tables: Sequence[OrderedTable]) -> list[Submit]:
    """Returns a `submit` for each part of a request, whose tables write them at once.

    The caller writes the last one as it waits; other threads begin the rest.
    """
    begins = [partial(_begin, table) for table in tables[:-1]]
    return [*begins, *(table.submit for table in tables[-1:])]


def _begin(
    table: OrderedTable, rows: Sequence[Write], on_written: OnWritten | None = None
) -> Wait:
    ended: SimpleQueue[Unavailable | None] = SimpleQueue()

    def written(error: Unavailable | None) -> None:
        try:
            if on_written is not None:
                on_written(error)
        finally:
            ended.put(error)

    def wait() -> None:
        if (error := ended.get()) is not None:
            raise error

    table.hand_over(rows, written)
    return wait


def wait_for_all(waits: Sequence[Wait]) -> None:
    """Waits for all, the last one first; raises the error of those that failed.

    It is the one that the caller writes, while those before it are under way.
    """
    errors: list[Unavailable] = []
    for wait in reversed(waits):
        try:
            wait()
        except Unavailable as error:
            errors.append(error)
    if (found := in_part(errors, len(waits))) is not None:
        raise found
