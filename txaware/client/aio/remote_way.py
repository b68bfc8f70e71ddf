"""The way of a sender to a server, by the connection of its event loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from txaware.client.aio.async_transport import AsyncTransport
from txaware.client.calls.service_calls import ServiceCalls
from txaware.client.link import Link
from txaware.errors import Unavailable
from txaware.publish.send_way import (
    LEAST_TRY_S,
    OnCounted,
    OnSent,
    SendRequest,
    timed_out,
)


class RemoteWay:
    """Publishes by tasks of the loop, as many at once as the sender has under way."""

    def __init__(self, transport: AsyncTransport, *, is_own: bool = False) -> None:
        self._transport = transport
        self._is_own = is_own
        self._calls = ServiceCalls(transport.link)
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def by(cls, link: Link) -> "RemoteWay":
        """Makes a way with connections of its own."""
        return cls(AsyncTransport(link), is_own=True)

    def send(self, request: SendRequest, callback: OnSent) -> None:
        """Publishes a batch."""
        self._begin(self._send(request, callback))

    def count(self, topic: str, callback: OnCounted) -> None:
        """Asks how many partitions a topic has."""
        self._begin(self._count(topic, callback))

    async def _count(self, topic: str, callback: OnCounted) -> None:
        try:
            async with asyncio.timeout(LEAST_TRY_S):
                found = await self._transport.run(self._calls.topic(topic))
        except TimeoutError:
            callback(Unavailable(f"no answer about {topic} in {LEAST_TRY_S:g} s"))
        except Exception as error:
            callback(error)
        else:
            callback(found.partitions)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, request: SendRequest, callback: OnSent) -> None:
        steps = self._calls.publish_once(
            request.name,
            request.payloads,
            producer=request.producer,
            sequence=request.sequence,
        )
        try:
            async with asyncio.timeout(request.timeout_s):
                [first] = await self._transport.run(steps)
        except TimeoutError:
            callback(timed_out(request))
        except BaseException as error:
            callback(error)
            if not isinstance(error, Exception):
                raise
        else:
            callback(first)

    async def close(self) -> None:
        """Ends what is under way, and connections of its own."""
        for task in self._tasks:
            task.cancel()
        if self._is_own:
            await self._transport.close()
