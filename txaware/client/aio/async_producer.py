"""The producers, awaited."""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, Self, TypeVar, overload

from coordinator.callbacks import check_answer, check_function
from coordinator.context import Status
from coordinator.interfaces import Coordinator, TransactionAware
from txaware.client.aio.async_consumer import TopicConsumer, blocking_one
from txaware.client.aio.async_transaction import AsyncTransaction, Workers
from txaware.errors import MisusedTransaction
from txaware.model.messages import MessageId
from txaware.model.partitions import full_name
from txaware.model.requests import Payload
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

R = TypeVar("R")
P = TypeVar("P", bound=Producer | TransactionalProducer)


class Opened(Generic[P]):
    """A producer that is opened with its block, and used in threads."""

    def __init__(
        self, open_producer: Callable[[], P], coordinator: Coordinator, workers: Workers
    ) -> None:
        self._open = open_producer
        self._coordinator = coordinator
        self._workers = workers
        self._opened: P | None = None

    async def open(self) -> Self:
        """Opens the producer, once; one with transactions fences all older ones."""
        if self._opened is not None:
            raise MisusedTransaction(
                f"{self._opened!r} was opened before; make another"
            )
        self._opened = await self._in_thread(self._open)
        return self

    @property
    def producer_id(self) -> int:
        """The id by which the store knows this producer."""
        return self._producer.producer_id

    @property
    def epoch(self) -> int:
        """The epoch of this producer; that of an older instance is lower."""
        return self._producer.epoch

    async def close(self) -> None:
        """Takes no more calls, and undoes what is open."""
        if self._opened is not None:
            await self._in_thread(self._opened.close)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._opened!r}>"

    @property
    def _producer(self) -> P:
        if self._opened is None:
            raise MisusedTransaction(
                "the producer is not open: async with messaging.producer(...) opens it"
            )
        return self._opened

    async def _in_thread(self, call: Callable[..., R], *args: Any) -> R:
        return await self._workers.run(self._coordinator, call, *args)


class AsyncProducer(Opened[Producer]):
    """The promises of `Producer`, awaited; calls go out in the order they were made.

    `async with messaging.producer() as producer:` opens it. `open` and `close` do
    without a block.
    """

    def __init__(
        self,
        open_producer: Callable[[], Producer],
        coordinator: Coordinator,
        workers: Workers,
    ) -> None:
        super().__init__(open_producer, coordinator, workers)
        self._under_way: set[asyncio.Future[list[MessageId]]] = set()

    async def publish(
        self,
        topic: str,
        payloads: Payload | Iterable[Payload],
        sequence: int | None = None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        expire_after_s: float | None = None,
    ) -> list[MessageId]:
        """Publishes in one piece, and returns the ids; see `Producer.publish`."""
        task = asyncio.current_task()
        many = one_or_many(payloads, key, headers, expire_after_s)
        messages = list(checked_many(many, call="publish"))
        take = partial(self._producer.take, topic, messages, sequence, caller=task)
        with sending("publish", full_name(topic), messages) as context:
            finish = take(context=context)
            # A call that was taken has to be finished, also if this task is cancelled.
            work = asyncio.ensure_future(self._in_thread(finish))
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

    @property
    def state(self) -> State:
        """The state between two calls."""
        return self._producer.state

    async def commits(self) -> int:
        """Returns the number of committed transactions of this id."""
        return await self._in_thread(lambda: self._producer.commits)

    def transaction(
        self, *participants: TransactionAware, timeout_s: float | None = None
    ) -> AsyncTransaction:
        """Returns a block that commits: `async with producer.transaction(table):`."""
        context = self._producer.transaction(*participants, timeout_s=timeout_s)
        return AsyncTransaction(context, self._workers)

    async def run_once(self, key: str, function: Callable[..., object]) -> bool:
        """Runs a function once: one that blocks in a thread, or a coroutine here.

        What joins the open transaction of its thread, or of this task, joins this one.
        See `TransactionalProducer.run_once`.
        """
        check_function(function, may_await=True)
        context = keyed(self._producer, key)
        async with AsyncTransaction(context, self._workers) as block:
            if context.count.entered.is_done:
                await block.run(give_up, context)
                return False
            if inspect.iscoroutinefunction(function):
                await call(function, block)
            else:
                check_answer(await block.run(call, function, context))
        return context.status is Status.COMMITTED

    async def begin(
        self, *participants: TransactionAware, timeout_s: float | None = None
    ) -> None:
        """Begins a transaction that `commit` or `abort` ends."""
        begin = self._producer.begin
        await self._in_thread(lambda: begin(*participants, timeout_s=timeout_s))

    async def publish(
        self,
        topic: str,
        payloads: Payload | Iterable[Payload],
        sequence: int | None = None,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        expire_after_s: float | None = None,
    ) -> list[MessageId]:
        """Publishes with the open transaction, or else at once and not twice."""
        publish = self._producer.publish
        messages = one_or_many(payloads, key, headers, expire_after_s)
        return await self._in_thread(publish, topic, messages, sequence)

    @overload
    async def save_positions(self, *consumers: TopicConsumer) -> None: ...

    @overload
    async def save_positions(
        self, group: str, positions: Mapping[str, MessageId], /
    ) -> None: ...

    async def save_positions(self, *consumers: Any) -> None:
        """Moves groups with the commit: of consumers, or one group by `{topic: id}`."""
        if consumers and isinstance(consumers[0], str):
            blocking = list(consumers)
        else:
            blocking = [blocking_one(consumer) for consumer in consumers]
        await self._in_thread(self._producer.save_positions, *blocking)

    async def commit(self) -> None:
        """Commits what `begin` began; called again after an unknown outcome."""
        await self._in_thread(self._producer.commit)

    async def abort(self) -> None:
        """Undoes everything that was done since `begin`."""
        await self._in_thread(self._producer.abort)
