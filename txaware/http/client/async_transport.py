"""Performs the same calls in an event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpcore
import tenacity

from txaware.errors import TxAwareError, Unavailable
from txaware.http.client.async_connections import AsyncConnections
from txaware.http.client.call import Call, Steps
from txaware.http.client.connections import connection_options, shown
from txaware.http.client.link import Link, Place
from txaware.http.client.retry import FAILURES, Tries, again

T = TypeVar("T")


class AsyncTransport:
    """Any number of tasks of one event loop may call.

    A task that is cancelled gives its connection up; what it had asked for may be done.
    """

    def __init__(
        self,
        link: Link,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        network_backend: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self.link = link
        self._sleep = sleep
        limit = link.settings.limit
        self._pools: dict[tuple[Place, bool], AsyncConnections] = {}
        for place in link.places:
            options = connection_options(link, network_backend, place=place)
            for waits in (False, True):
                pool = AsyncConnections(limit(waits=waits), options)
                self._pools[place, waits] = pool
        self._closed = False

    async def run(self, steps: Steps[T]) -> T:
        """Performs the calls of a verb, and answers what it returns."""
        answer: Any = None
        try:
            while True:
                answer = await self.perform(steps.send(answer))
        except StopIteration as done:
            value: T = done.value
            return value

    async def perform(self, call: Call[T]) -> T:
        """One call, with as many tries as it may have."""
        tries = Tries(call, self.link)
        try:
            return await self._try(tries)
        except TxAwareError as error:
            if tries.pause_s is None:
                raise
            first = [error]

        async def one_more() -> T:
            if first:
                raise first.pop()
            return await self._try(tries)

        retrying = tenacity.AsyncRetrying(**again(tries), sleep=self._sleep)
        return await retrying(one_more)

    async def _try(self, tries: Tries[T]) -> T:
        request = tries.request()
        pool = self._pools[tries.place, tries.waits]
        if self._closed:
            raise Unavailable(f"{self.link.url}: this client is closed")
        try:
            async with pool.one(self.link.settings.connect_timeout_s) as connection:
                response = await connection.handle_async_request(request)
                try:
                    body = await response.aread()
                finally:
                    await response.aclose()
        except FAILURES as error:
            raise tries.failed(error) from error
        return tries.answered(response.status, response.headers, body)

    async def close(self) -> None:
        """Closes all connections; what is asked later is `Unavailable`."""
        self._closed = True
        for pool in self._pools.values():
            await pool.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else shown(*self._pools.values())
        return f"<AsyncTransport to {self.link.url}, {state}>"
