"""A consumer of every message of a topic, for one instance of a program of asyncio."""

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from coordinator.interfaces import Coordinator
from txaware.client.aio.async_service import AsyncService
from txaware.client.aio.async_transaction import Workers
from txaware.messaging.broadcast import BroadcastConsumer
from txaware.model.messages import Message, T

R = TypeVar("R")


class AsyncBroadcastConsumer(Generic[T]):
    """The promises of `BroadcastConsumer`, awaited; `async with` closes it."""

    def __init__(
        self,
        consumer: BroadcastConsumer[T],
        service: AsyncService,
        coordinator: Coordinator,
        workers: Workers,
    ) -> None:
        self.topic = consumer.topic
        self.instance = consumer.instance
        self._consumer = consumer
        self._service = service
        self._coordinator = coordinator
        self._workers = workers

    async def position(self) -> Any:
        """Returns the message behind which the next poll goes on."""
        return await self._in_thread(lambda: self._consumer.position)

    async def poll(self, limit: int = 100) -> list[Message[T]]:
        """Returns the newest message of each key first, then the next messages."""
        return await self._in_thread(lambda: self._consumer.poll(limit))

    async def wait(self, timeout_s: float) -> bool:
        """Waits until there is something to poll; comes before the transaction."""
        while True:
            await self.renew()
            position = await self.position()
            if position is None:
                return True
            step_s = min(timeout_s, self._consumer.renewed_after_s)
            if await self._service.wait(
                self.topic, start=position, inclusive=False, timeout_s=step_s
            ):
                return True
            timeout_s -= step_s
            if timeout_s <= 0:
                return False

    async def renew(self) -> None:
        """Tells others that this instance is there, and what it has handled."""
        await self._in_thread(self._consumer.renew)

    async def close(self) -> None:
        """Has others see this instance no longer."""
        await self._in_thread(self._consumer.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _in_thread(self, call: Callable[[], R]) -> R:
        return await self._workers.run(self._coordinator, call)

    def __repr__(self) -> str:
        return f"<AsyncBroadcastConsumer of {self.topic}, instance {self.instance}>"
