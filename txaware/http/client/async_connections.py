"""The same connections for an event loop."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpcore

from txaware.http.client.connections import is_at_end


class AsyncConnections:
    """So many at most, each for one request at a time; of one event loop."""

    def __init__(self, limit: int, options: dict[str, Any]) -> None:
        self._options = options
        self._free = asyncio.Semaphore(limit)
        self._idle: deque[httpcore.AsyncHTTPConnection] = deque()
        self._used: set[httpcore.AsyncHTTPConnection] = set()
        self._closed = False

    @property
    def in_use(self) -> int:
        """How many have a request under way."""
        return len(self._used)

    @property
    def idle(self) -> int:
        """How many wait for one."""
        return len(self._idle)

    @asynccontextmanager
    async def one(
        self, timeout_s: float
    ) -> AsyncIterator[httpcore.AsyncHTTPConnection]:
        """A connection, for one request and its answer; `PoolTimeout` if none is free.

        What is not at the end of its answer afterwards is closed.
        """
        await self._acquire(timeout_s)
        try:
            connection = await self._latest()
            self._used.add(connection)
            try:
                yield connection
            finally:
                self._used.discard(connection)
                await self._give_back(connection)
        finally:
            self._free.release()

    async def _acquire(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s if self._free.locked() else None):
                await self._free.acquire()
        except TimeoutError as error:
            raise httpcore.PoolTimeout from error

    async def _latest(self) -> httpcore.AsyncHTTPConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_expired():
                return connection
            await _close(connection)
        return httpcore.AsyncHTTPConnection(**self._options)

    async def _give_back(self, connection: httpcore.AsyncHTTPConnection) -> None:
        if self._closed or not is_at_end(connection):
            await _close(connection)
            return
        self._idle.append(connection)
        if len(self._idle) > 1 and self._idle[0].has_expired():
            await _close(self._idle.popleft())

    async def close(self) -> None:
        """Closes all, also those in use."""
        self._closed = True
        while self._idle:
            await _close(self._idle.pop())
        for connection in list(self._used):
            await _close(connection)


async def _close(connection: httpcore.AsyncHTTPConnection) -> None:
    with suppress(Exception):
        await connection.aclose()
