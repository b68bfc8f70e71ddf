"""Brings what other threads find out back to the event loop, many at once."""

import asyncio
from collections import deque
from contextlib import suppress

from txaware.errors import Unavailable


class Outcomes:
    """Futures of one event loop that any thread may settle.

    The loop is woken once for all that was settled until it comes to look.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._settled: deque[tuple[asyncio.Future[None], Unavailable | None]] = deque()
        self._called = False

    def settle(self, future: asyncio.Future[None], error: Unavailable | None) -> None:
        """Says how it ended, in whatever thread."""
        self._settled.append((future, error))
        if not self._called:
            self._called = True
            # It may close at any moment, and whoever is told after this one in the
            # same batch must be told all the same.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._called = False  # first: what is settled from here on calls again
        while self._settled:
            future, error = self._settled.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
