"""The producers, awaited."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from coordinator.callbacks import check_answer, check_function
from coordinator.transaction import Status
from txaware.client.aio.async_consumer import TopicConsumer, blocking_one
from txaware.client.aio.async_transaction import AsyncTransaction, Workers
from txaware.client.aio.in_threads import InThreads, Shown, in_thread, shown
from txaware.errors import MisusedTransaction
from txaware.model.messages import MessageId, MessageOptions
from txaware.model.partitions import full_name
from txaware.model.signatures import signed_as
from txaware.model.traced_messages import sending
from txaware.publish import Producer
from txaware.publish.producer import one_or_many
from txaware.publish.producer_states import State
from txaware.publish.publisher import checked_many
from txaware.publish.transactional_producer import (
    TransactionalProducer,
    call,
    give_up,
    keyed,
)

P = TypeVar("P", bound=Producer | TransactionalProducer)


class Opened(InThreads, Generic[P]):
    """A producer that is opened with its block, and used in threads."""

    def __init__(self, open_producer: Callable[[], P], workers: Workers) -> None:
        self._open = open_producer
        self._workers = workers
        self._opened: P | None = None

    async def open(self) -> Self:
        """Opens the producer, once; one with transactions fences all older ones."""
        if self._opened is not None:
            raise MisusedTransaction(
                f"{self._opened!r} was opened before; make another"
            )
        self._opened = await self._run(self._open)
        return self

    producer_id: Shown[int] = shown(Producer.producer_id)
    epoch: Shown[int] = shown(TransactionalProducer.epoch)

    async def close(self) -> None:
        """Takes no more calls, and undoes what is open."""
        if self._opened is not None:
            await self._run(self._opened.close)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._opened!r}>"

    @property
    def _blocking(self) -> P:
        if self._opened is None:
            raise MisusedTransaction(
                "the producer is not open: async with messaging.producer(...) opens it"
            )
        return self._opened


class AsyncProducer(Opened[Producer]):
    """The promises of `Producer`, awaited; calls go out in the order they were made.

    `async with messaging.producer() as producer:` opens it. `open` and `close` do
    without a block.
    """

    def __init__(self, open_producer: Callable[[], Producer], workers: Workers) -> None:
        super().__init__(open_producer, workers)
        self._under_way: set[asyncio.Future[list[MessageId]]] = set()

    @signed_as(Producer.publish)
    async def publish(
        self,
        topic: str,
        payloads: Any,
        sequence: int | None = None,
        **options: Unpack[MessageOptions],
    ) -> list[MessageId]:
        task = asyncio.current_task()
        many = one_or_many(payloads, options)
        messages = list(checked_many(many, call="publish"))
        take = partial(self._blocking.take, topic, messages, sequence, caller=task)
        with sending("publish", full_name(topic), messages) as context:
            finish = take(context=context)
            # A call that was taken has to be finished, also if this task is cancelled.
            work = asyncio.ensure_future(self._run(finish))
            self._under_way.add(work)
            work.add_done_callback(self._under_way.discard)
            return await asyncio.shield(work)

    async def close(self) -> None:
        """Takes no more messages; that waits for nothing."""
        if self._opened is not None:
            self._opened.close()


class AsyncTransactionalProducer(Opened[TransactionalProducer]):
    """The promises of `TransactionalProducer`, awaited.

    `async with messaging.producer("id") as producer:` opens it, and has fenced every
    older instance when the block begins. `open` and `close` do without a block.
    """

    state: Shown[State] = shown(TransactionalProducer.state)

    async def commits(self) -> int:
        """Returns the number of committed transactions of this id."""
        return await self._run(lambda: self._blocking.commits)

    @signed_as(TransactionalProducer.transaction)
    def transaction(self, *participants: Any, **options: Any) -> AsyncTransaction:
        """Returns a block that commits: `async with producer.transaction(table):`."""
        context = self._blocking.transaction(*participants, **options)
        return AsyncTransaction(context, self._workers)

    @signed_as(TransactionalProducer.run_once)
    async def run_once(self, key: str, function: Callable[..., object]) -> bool:
        """Runs a function once: one that blocks in a thread, or a coroutine here.

        What joins the open transaction of its thread, or of this task, joins this one.
        See `TransactionalProducer.run_once`.
        """
        check_function(function, may_await=True)
        context = keyed(self._blocking, key)
        async with AsyncTransaction(context, self._workers) as block:
            if context.count.entered.is_done:
                await block.run(give_up, context)
                return False
            if inspect.iscoroutinefunction(function):
                await call(function, block)
            else:
                check_answer(await block.run(call, function, context))
        return context.status is Status.COMMITTED

    begin = in_thread(TransactionalProducer.begin)
    publish = in_thread(TransactionalProducer.publish)
    commit = in_thread(TransactionalProducer.commit)
    abort = in_thread(TransactionalProducer.abort)

    @overload
    async def save_positions(self, *consumers: TopicConsumer) -> None: ...

    @overload
    async def save_positions(
        self, group: str, positions: Mapping[str, MessageId], /
    ) -> None: ...

    async def save_positions(self, *consumers: Any) -> None:
        """Moves groups with the commit: of consumers, or one group by `{topic: id}`.

        See `TransactionalProducer.save_positions`.
        """
        blocking = [blocking_one(consumer) for consumer in consumers]
        await self._run(self._blocking.save_positions, *blocking)
