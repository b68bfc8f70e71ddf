"""Polls a topic in order, in transactions of its task and outside."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

from coordinator.interfaces import Coordinator
from txaware.client.aio.async_service import AsyncService
from txaware.client.aio.async_transaction import Workers, open_transaction
from txaware.consume import Consumer
from txaware.errors import MisusedTransaction
from txaware.model.interfaces import Isolation
from txaware.model.messages import BlockedBy, Message, Page, T
from txaware.model.start_places import StartAt, place_in_partition

R = TypeVar("R")

# The length of one wait of `async for`; it waits again.
WAIT_S = 60.0


class TopicConsumer(Generic[T]):
    """The promises of `Consumer`, awaited; for one task at a time outside transactions.

    A poll outside transactions that is cancelled has not moved it. With a group it is a
    `rollback`: what was not committed comes again.
    """

    def __init__(
        self,
        consumer: Consumer[T],
        *,
        topic: str,
        group: str | None,
        isolation: Isolation,
        service: AsyncService,
        coordinator: Coordinator,
        workers: Workers,
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._has_group = group is not None
        self._isolation = isolation
        self._service = service
        self._coordinator = coordinator
        self._workers = workers
        self._moves = 0

    @property
    def blocked_by(self) -> BlockedBy | None:
        """The transaction that stopped the last poll before the end of the topic."""
        return self._consumer.blocked_by

    async def position(self) -> Any:
        """Returns the message that the next poll follows; None is the beginning."""
        return await self._in_thread(lambda: self._consumer.position)

    async def poll(self, limit: int = 100) -> Page[T]:
        """Returns the next messages, at most `limit`; empty if there are none now."""
        transaction = open_transaction(self._coordinator)
        if transaction is not None:
            return await transaction.run(self._consumer.poll, limit)
        async with self._workers.one() as worker:
            before = None
            if not self._has_group:
                before = await worker.run(lambda: self._consumer.position)
            try:
                return await worker.run(self._consumer.poll, limit)
            except asyncio.CancelledError:
                if self._has_group:
                    await worker.run(self._consumer.rollback)
                else:
                    await worker.run(self._consumer.seek, before, inclusive=False)
                raise

    async def seek(self, start: StartAt, *, inclusive: bool = True) -> None:
        """Goes on from another place; in a transaction, if that commits."""
        self._moves += 1
        await self._move(start, inclusive=inclusive)

    async def wait(self, timeout_s: float) -> bool:
        """Waits until there is something to poll; comes before the transaction."""
        self._require_none_open("wait")
        position = await self.position()
        return await self._service.wait(
            self._topic,
            start=position,
            inclusive=position is None,
            isolation=self._isolation,
            timeout_s=timeout_s,
        ) or await self._in_thread(lambda: self._consumer.may_go_on(position))

    async def commit(self) -> None:
        """Saves the group's position after polls outside transactions."""
        self._require_none_open("commit")
        self._moves += 1
        await self._in_thread(self._consumer.commit)

    async def rollback(self) -> None:
        """Forgets polls outside transactions that were not committed."""
        self._require_none_open("rollback")
        self._moves += 1
        await self._in_thread(self._consumer.rollback)

    async def __aiter__(self) -> AsyncIterator[Message[T]]:
        """Yields all messages, those to come too, outside transactions.

        The consumer stands behind the message that the loop has in hand: a `commit` in
        the loop saves that one and all before it, and has the next ones polled anew.
        """
        while True:
            self._require_none_open("async for")
            before = await self.position()
            moves, page = self._moves, await self.poll()
            for message in page:
                before = _behind(before, message, page)
                await self._move(before, inclusive=False)
                yield message
                if self._moves != moves:
                    break
            else:
                if page:
                    await self._move(page.next, inclusive=False)
                else:
                    await self.wait(WAIT_S)

    async def _move(self, start: StartAt, *, inclusive: bool) -> None:
        await self._in_thread(lambda: self._consumer.seek(start, inclusive=inclusive))

    async def _in_thread(self, call: Callable[[], R]) -> R:
        return await self._workers.run(self._coordinator, call)

    def _require_none_open(self, call: str) -> None:
        transaction = open_transaction(self._coordinator)
        if transaction is not None:
            raise MisusedTransaction(
                f"{call} of the consumer of {self._topic} comes outside transactions, "
                f"and {transaction} is open here"
            )

    def __repr__(self) -> str:
        return f"<TopicConsumer: {self._consumer!r}>"


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
    found: Consumer = getattr(consumer, "_consumer", consumer)  # type: ignore[arg-type]
    return found
