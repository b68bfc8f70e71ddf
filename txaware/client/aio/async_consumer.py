"""Polls a topic in order, in transactions of its task and outside."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Generic

from txaware.client.aio.async_service import AsyncService
from txaware.client.aio.async_transaction import Workers
from txaware.client.aio.in_threads import Awaited, Shown, shown
from txaware.consume import Consumer
from txaware.model.messages import BlockedBy, Message, Page, T
from txaware.model.signatures import signed_as
from txaware.model.start_places import StartAt, place_in_partition

# The length of one wait of `async for`; it waits again.
WAIT_S = 60.0


class TopicConsumer(Awaited[Consumer[T]], Generic[T]):
    """The promises of `Consumer`, awaited; for one task at a time outside transactions.

    A poll outside transactions that is cancelled has not moved it. With a group it is a
    `rollback`: what was not committed comes again.
    """

    def __init__(
        self, consumer: Consumer[T], service: AsyncService, workers: Workers
    ) -> None:
        super().__init__(consumer, workers)
        self._service = service
        self._moves = 0

    blocked_by: Shown[BlockedBy | None] = shown(Consumer.blocked_by)

    async def position(self) -> Any:
        """Returns the message that the next poll follows; None is the beginning."""
        return await self._run(lambda: self._blocking.position)

    @signed_as(Consumer.poll)
    async def poll(self, limit: int = 100) -> Page[T]:
        consumer = self._blocking
        transaction = self._workers.open_transaction()
        if transaction is not None:
            return await transaction.run(consumer.poll, limit)
        async with self._workers.one() as worker:
            before = None
            if not consumer.has_group:
                before = await worker.run(lambda: consumer.position)
            try:
                return await worker.run(consumer.poll, limit)
            except asyncio.CancelledError:
                if consumer.has_group:
                    await worker.run(consumer.rollback)
                else:
                    await worker.run(consumer.seek, before, inclusive=False)
                raise

    @signed_as(Consumer.seek)
    async def seek(self, *args: Any, **options: Any) -> None:
        self._moves += 1
        await self._run(self._blocking.seek, *args, **options)

    @signed_as(Consumer.wait)
    async def wait(self, timeout_s: float) -> bool:
        consumer = self._blocking
        consumer.require_outside("wait", self._workers.open_transaction())
        options = await self._run(consumer.wait_options)
        return await self._service.wait(
            **options, timeout_s=timeout_s
        ) or await self._run(consumer.may_go_on, options["start"])

    @signed_as(Consumer.commit)
    async def commit(self) -> None:
        self._moves += 1
        await self._run(self._blocking.commit)

    @signed_as(Consumer.rollback)
    async def rollback(self) -> None:
        self._moves += 1
        await self._run(self._blocking.rollback)

    async def __aiter__(self) -> AsyncIterator[Message[T]]:
        """Yields all messages, those to come too, outside transactions.

        The consumer stands behind the message that the loop has in hand: a `commit` in
        the loop saves that one and all before it, and has the next ones polled anew.
        """
        while True:
            transaction = self._workers.open_transaction()
            self._blocking.require_outside("async for", transaction)
            before = await self.position()
            moves, page = self._moves, await self.poll()
            for message in page:
                before = _behind(before, message, page)
                await self._move(before)
                yield message
                if self._moves != moves:
                    break
            else:
                if page:
                    await self._move(page.next)
                else:
                    await self.wait(WAIT_S)

    async def _move(self, place: StartAt) -> None:
        await self._run(self._blocking.seek, place, inclusive=False)

    def __repr__(self) -> str:
        return f"<TopicConsumer: {self._blocking!r}>"


def _behind(before: Any, message: Message[Any], page: Page[Any]) -> StartAt:
    """Returns the place behind a message, and in other partitions the one before."""
    if not isinstance(page.next, dict):
        return message.id
    names = range(len(page.next))
    places = {number: place_in_partition(before, number) for number in names}
    return {**places, message.partition: message.id}


def blocking_one(consumer: TopicConsumer) -> Consumer:
    """Returns the consumer that does the work, whose calls block.

    What is no such consumer is returned as it is, for the call to refuse.
    """
    return consumer._blocking if isinstance(consumer, TopicConsumer) else consumer
