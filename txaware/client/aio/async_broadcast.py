"""A consumer of every message of a topic, for one instance of a program of asyncio."""

from typing import Any, Generic, Self

from txaware.client.aio.async_service import AsyncService
from txaware.client.aio.async_transaction import Workers
from txaware.client.aio.in_threads import Awaited, in_thread
from txaware.messaging.broadcast import BroadcastConsumer
from txaware.model.messages import T
from txaware.model.signatures import signed_as


class AsyncBroadcastConsumer(Awaited[BroadcastConsumer[T]], Generic[T]):
    """The promises of `BroadcastConsumer`, awaited; `async with` closes it."""

    def __init__(
        self,
        consumer: BroadcastConsumer[T],
        service: AsyncService,
        workers: Workers,
    ) -> None:
        super().__init__(consumer, workers)
        self.topic = consumer.topic
        self.instance = consumer.instance
        self._service = service

    async def position(self) -> Any:
        """Returns the message behind which the next poll goes on."""
        return await self._run(lambda: self._blocking.position)

    poll = in_thread(BroadcastConsumer[T].poll)
    renew = in_thread(BroadcastConsumer.renew)
    close = in_thread(BroadcastConsumer.close)

    @signed_as(BroadcastConsumer.wait)
    async def wait(self, timeout_s: float) -> bool:
        while True:
            await self.renew()
            position = await self.position()
            if position is None:
                return True
            step_s = min(timeout_s, self._blocking.renewed_after_s)
            if await self._service.wait(
                self.topic, start=position, inclusive=False, timeout_s=step_s
            ):
                return True
            timeout_s -= step_s
            if timeout_s <= 0:
                return False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncBroadcastConsumer of {self.topic}, instance {self.instance}>"
