"""The asyncio client: the same calls, awaited; one implementation of what they say."""

from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Any, Self, TypeVar, overload

from coordinator.context import TransactionContext
from coordinator.fork_guard import guard
from coordinator.interfaces import TransactionAware
from coordinator.prepared_transactions import PreparedTransaction
from coordinator.remote.client import RemoteCoordinator
from coordinator.transaction import Transaction
from txaware.auth import token_to_send
from txaware.client.aio.async_consumer import TopicConsumer
from txaware.client.aio.async_producer import (
    AsyncProducer,
    AsyncTransactionalProducer,
)
from txaware.client.aio.async_publisher import TopicPublisher
from txaware.client.aio.async_queue import AsyncQueue, Loop
from txaware.client.aio.async_service import AsyncService
from txaware.client.aio.async_table import AsyncTable
from txaware.client.aio.async_transaction import (
    AsyncTransaction,
    Workers,
    open_transaction,
)
from txaware.client.aio.async_transport import AsyncTransport
from txaware.client.calls.coordinator_calls import CoordinatorSend
from txaware.client.calls.queue_calls import QueueCalls
from txaware.client.calls.table_calls import TableCalls
from txaware.client.calls.verb_calls import steps_of
from txaware.client.link import Link
from txaware.client.service import (
    HttpQueues,
    HttpService,
    HttpTables,
    within_limits,
)
from txaware.client.settings import ClientSettings
from txaware.client.transport import Transport
from txaware.consume import Consumer, consumer_of
from txaware.consume.start_places import StartAt
from txaware.model.encoding import Decode, Encode
from txaware.model.interfaces import (
    COMMITTED,
    UNSAID,
    Isolation,
    MessagingService,
)
from txaware.model.keeper import Keeper, KeepsRows, named_pointer
from txaware.model.messages import MessageId, Page, PublishResponse, Receipt
from txaware.model.queue_service import QueueService
from txaware.model.queues import Popped, QueueDescriptor
from txaware.model.requests import Payload, Pointer, checked_positions
from txaware.model.settings import Settings
from txaware.model.signatures import signed_as
from txaware.model.topics import QueueName, TopicName
from txaware.protocol.operator import REPORT_KEEPER
from txaware.publish import (
    KnownTopics,
    Producer,
    Publisher,
    WrittenByHand,
    written_by_hand,
)
from txaware.publish.fenced_transaction import FencedTransaction
from txaware.publish.transactional_producer import TransactionalProducer
from txaware.queue import Queue, Worker
from txaware.queue.queue_access import QueueAccess
from txaware.tables import Table
from txaware.tables.table_changes import Conflicts

V = TypeVar("V")

# Publishers that a producer keeps, one a topic.
KNOWN_PUBLISHERS = 1000


class AsyncMessaging(AsyncService):
    """A `Messaging` for asyncio: an async context manager, of one event loop.

    Verbs go through the loop's own connections, and thousands may wait at once.
    Transactions, and consumers in them, run in threads, as many as there may be
    connections: their participants are the same ones as everywhere and may block.
    Participants that are coroutines, subscribers, background publishers, backups and
    the coordinator itself are not here.
    """

    def __init__(self, link: Link) -> None:
        transport = AsyncTransport(link)
        super().__init__(transport)
        blocking = Transport(link)
        self._blocking = HttpService(blocking)
        self._blocking_tables = HttpTables(blocking, self._blocking.carrier)
        self._blocking_queues = HttpQueues(blocking)
        self._queue_calls = QueueCalls(link)
        self._known_queues: dict[str, AsyncQueue] = {}
        self._known_topics = KnownTopics(self._blocking)
        self._coordinator = RemoteCoordinator(
            CoordinatorSend(blocking),
            takes_writers=lambda: self._blocking.info().takes_writers,
        )
        self._blocking.carrier.coordinator = self._coordinator
        self._workers = Workers(link.settings.pool_connections)
        guard(self, self._blocking, self._coordinator)

    def transaction(
        self,
        *participants: TransactionAware,
        timeout_s: float | None = None,
        long: bool = False,
    ) -> AsyncTransaction:
        """Returns a block that commits: `async with messaging.transaction(table):`."""
        context = TransactionContext(
            self._coordinator, *participants, timeout_s=timeout_s, long=long
        )
        return AsyncTransaction(context, self._workers)

    @overload
    def publisher(self, topic: str, *, encode: None = None) -> TopicPublisher: ...

    @overload
    def publisher(self, topic: str, *, encode: Encode[V]) -> TopicPublisher[V]: ...

    def publisher(
        self, topic: str, *, encode: Encode[V] | None = None
    ) -> TopicPublisher[V] | TopicPublisher:
        """Returns a publisher in the open transaction of this task, or at once."""
        return TopicPublisher(
            topic, self, self._coordinator, self._publisher, encode=encode
        )

    @overload
    async def table(
        self,
        name: str,
        *,
        encode: None = None,
        decode: None = None,
        conflicts: Conflicts = "row",
    ) -> AsyncTable: ...

    @overload
    async def table(
        self,
        name: str,
        *,
        encode: Encode[V],
        decode: Decode[V],
        conflicts: Conflicts = "row",
    ) -> AsyncTable[V]: ...

    @overload
    async def table(
        self,
        name: str,
        *,
        encode: Encode[Any],
        decode: None = None,
        conflicts: Conflicts = "row",
    ) -> AsyncTable[Any]: ...

    @overload
    async def table(
        self,
        name: str,
        *,
        encode: None = None,
        decode: Decode[Any],
        conflicts: Conflicts = "row",
    ) -> AsyncTable[Any]: ...

    async def table(
        self,
        name: str,
        *,
        encode: Encode[Any] | None = None,
        decode: Decode[Any] | None = None,
        conflicts: Conflicts = "row",
    ) -> AsyncTable[Any]:
        """Returns a table of yours, whose rows commit with the messages beside them.

        See `Messaging.table`.
        """
        info = await self.info()
        table = Table(
            self._blocking_tables,
            self._coordinator,
            name,
            encode=encode,
            decode=decode,
            conflicts=conflicts,
            shares_journal=info.shares_journal,
            value_limit_bytes=within_limits(Settings(), info).message_limit_bytes,
            request_bytes=info.largest_row_bytes,
        )
        return AsyncTable(table, self._coordinator, self._workers)

    @overload
    async def queue(
        self, name: str, *, encode: None = None, decode: None = None
    ) -> AsyncQueue: ...

    @overload
    async def queue(
        self, name: str, *, encode: Encode[V] | None = None, decode: Decode[V]
    ) -> AsyncQueue[V]: ...

    @overload
    async def queue(
        self, name: str, *, encode: Encode[Any], decode: None = None
    ) -> AsyncQueue[Any]: ...

    async def queue(
        self,
        name: str,
        *,
        encode: Encode[Any] | None = None,
        decode: Decode[Any] | None = None,
    ) -> AsyncQueue[Any]:
        """Returns a queue, to push to and to pop from; see `Messaging.queue`."""
        queue = await self._queue(name)
        if encode is None and decode is None:
            return queue
        return queue.typed(encode=encode, decode=decode)

    async def _queue(self, name: str) -> AsyncQueue:
        known = self._known_queues.get(name) if isinstance(name, str) else None
        if known is not None:
            return known
        info = await self.info()
        settings = within_limits(Settings(), info)
        access = QueueAccess(
            self._blocking_queues,
            self._blocking,
            self._coordinator,
            info.shares_journal,
            settings.buffer_limit_bytes,
            settings.message_limit_bytes,
            begin=partial(TransactionContext, self._coordinator),
            opened=_no_workers,
        )
        queue: Queue = Queue(access, str(QueueName.parse(name)))
        loop = Loop(self._coordinator, self._workers, self._pop)
        if len(self._known_queues) >= KNOWN_PUBLISHERS:
            self._known_queues.clear()
        return self._known_queues.setdefault(name, AsyncQueue(queue, loop))

    async def _pop(self, queue: str, **options: Any) -> list[Popped]:
        return await self._transport.run(self._queue_calls.pop(queue, **options))

    @signed_as(QueueService.create_queue)
    async def create_queue(self, name: str, **options: Any) -> QueueDescriptor:
        return await self._transport.run(
            self._queue_calls.create_queue(name, **options)
        )

    @signed_as(QueueService.update_queue)
    async def update_queue(self, name: str, **settings: Any) -> QueueDescriptor:
        return await self._transport.run(
            self._queue_calls.update_queue(name, **settings)
        )

    async def queues(self, namespace: str = "default") -> list[str]:
        """Returns the names of a namespace's queues, in order."""
        return await self._transport.run(self._queue_calls.queues(namespace))

    async def delete_queue(self, name: str) -> None:
        """Deletes a queue with all that waits in it."""
        await self._transport.run(self._queue_calls.delete_queue(name))

    async def tables(self, namespace: str = "default") -> list[str]:
        """Returns the names of a namespace's tables that have rows, in order."""
        return await self._transport.run(
            TableCalls(self._transport.link).tables(namespace)
        )

    @overload
    def producer(self) -> AsyncProducer: ...

    @overload
    def producer(self, transactional_id: str) -> AsyncTransactionalProducer: ...

    def producer(
        self, transactional_id: str | None = None
    ) -> AsyncProducer | AsyncTransactionalProducer:
        """Returns a producer: `async with messaging.producer() as producer:`.

        With a `transactional_id` it has transactions. When the block begins, every
        older instance of that id is fenced.
        """
        if transactional_id is None:
            return AsyncProducer(self._idempotent, self._coordinator, self._workers)
        return AsyncTransactionalProducer(
            partial(self._transactional, transactional_id),
            self._coordinator,
            self._workers,
        )

    def _idempotent(self) -> Producer:
        limits = within_limits(Settings(), self._blocking.info())
        return Producer(self._blocking, message_limit_bytes=limits.message_limit_bytes)

    def _transactional(self, transactional_id: str) -> TransactionalProducer:
        info = self._blocking.info()
        return TransactionalProducer(
            self._blocking,
            transactional_id,
            make=partial(FencedTransaction, self._coordinator),
            publisher=lru_cache(KNOWN_PUBLISHERS)(self._publisher),
            saves=self._blocking,
            message_limit_bytes=within_limits(Settings(), info).message_limit_bytes,
            shares_journal=info.shares_journal,
            begins=self._blocking,
        )

    @overload
    async def consumer(
        self,
        topic: str,
        *,
        group: str | None = None,
        start: StartAt = None,
        inclusive: bool = True,
        isolation: Isolation = COMMITTED,
        decode: None = None,
    ) -> TopicConsumer: ...

    @overload
    async def consumer(
        self,
        topic: str,
        *,
        group: str | None = None,
        start: StartAt = None,
        inclusive: bool = True,
        isolation: Isolation = COMMITTED,
        decode: Decode[V],
    ) -> TopicConsumer[V]: ...

    async def consumer(
        self,
        topic: str,
        *,
        group: str | None = None,
        start: StartAt = None,
        inclusive: bool = True,
        isolation: Isolation = COMMITTED,
        decode: Decode[V] | None = None,
    ) -> TopicConsumer[V] | TopicConsumer:
        """Returns a reader of a topic in order; `start` is looked up now."""

        def make() -> Consumer[Any]:
            return consumer_of(
                decode,
                self._blocking,
                self._coordinator,
                topic,
                group=group,
                start=start,
                inclusive=inclusive,
                isolation=isolation,
                shares_journal=self._blocking.info().shares_journal,
            )

        consumer = await self._workers.run(self._coordinator, make)
        return TopicConsumer(
            consumer,
            topic=str(TopicName.parse(topic)),
            group=group,
            isolation=isolation,
            service=self,
            coordinator=self._coordinator,
            workers=self._workers,
        )

    async def prepared(self) -> list[PreparedTransaction]:
        """Returns the prepared transactions that the caller may end, the oldest first.

        See `Messaging.prepared`.
        """
        return await self._workers.run(self._coordinator, self._coordinator.prepared)

    async def commit_prepared(self, name: str) -> None:
        """Commits a prepared transaction; raises `PreparedNotFound` without one."""
        commit = self._coordinator.commit_prepared
        await self._workers.run(self._coordinator, commit, name)

    async def rollback_prepared(self, name: str) -> None:
        """Rolls a prepared transaction back; raises `PreparedNotFound` without one."""
        roll_back = self._coordinator.rollback_prepared
        await self._workers.run(self._coordinator, roll_back, name)

    async def register_keeper(self, participant: KeepsRows) -> Keeper:
        """Has `prune` keep what a participant with rows of its own still needs.

        It is asked here and now, in a thread, and the answer holds until it registers
        again; see `Messaging.register_keeper`.
        """
        async with self._workers.one() as worker:
            name, bound = await worker.run(
                lambda: named_pointer(participant, self._coordinator)
            )
        report = steps_of(REPORT_KEEPER)(self._calls, name, bound)
        return await self._transport.run(report)

    async def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> PublishResponse | None:
        """Publishes in one piece, at once.

        Where `transaction` is that of an `async with` block of this task, the block
        takes it back when it fails. Other callers have to call `rollback` for it.
        """
        block = None if transaction is None else open_transaction(self._coordinator)
        if block is None or transaction is None:
            return await super().publish(
                topic, messages, transaction=transaction, receipts=receipts
            )

        def publish() -> PublishResponse | None:
            by_hand = self._by_hand(transaction) or self._blocking
            return by_hand.publish(
                topic, messages, transaction=transaction, receipts=receipts
            )

        return await block.run(publish)

    @signed_as(MessagingService.poll)
    async def poll(
        self,
        topic: str,
        *,
        transaction: Transaction | None = None,
        isolation: Isolation = UNSAID,
        **options: Any,
    ) -> Page:
        """Returns messages from `start` on: an id, a time in ms, or None for the first.

        In an `async with` block of this task it sees the block's snapshot, unless
        `isolation` is named; see `Messaging.poll`.
        """
        if isolation is UNSAID:
            transaction = self._of_block("poll", transaction)
        return await super().poll(
            topic, transaction=transaction, isolation=isolation, **options
        )

    async def position(
        self, group: str, topic: str, *, transaction: Transaction | None = None
    ) -> MessageId | None:
        """Returns a group's position, as the transaction or a fresh snapshot sees it.

        In an `async with` block of this task it is the block's transaction.
        """
        seen_by = self._of_block("position", transaction)
        return await super().position(group, topic, transaction=seen_by)

    def _of_block(self, call: str, named: Transaction | None) -> Transaction | None:
        block = open_transaction(self._coordinator) if named is None else None
        return named if block is None else block.snapshot_for(call)

    async def save_position(
        self,
        group: str,
        topic: str,
        position: MessageId | None,
        *,
        transaction: Pointer,
    ) -> None:
        """Moves a group with the commit; a block takes it back when it fails."""
        block = open_transaction(self._coordinator)
        if block is None:
            await super().save_position(group, topic, position, transaction=transaction)
            return

        def save() -> None:
            by_hand = self._by_hand(transaction) or self._blocking
            by_hand.save_position(group, topic, position, transaction=transaction)

        await block.run(save)

    async def save_positions(
        self, group: str, positions: Mapping[str, MessageId], *, transaction: Pointer
    ) -> None:
        """Moves a group in several topics, `{topic: id}`, with the commit."""
        for topic, position in checked_positions(group, positions).items():
            await self.save_position(group, topic, position, transaction=transaction)

    def _by_hand(self, transaction: Pointer) -> WrittenByHand | None:
        return written_by_hand(
            self._blocking,
            self._coordinator,
            transaction,
            shares_journal=self._blocking.info().shares_journal,
        )

    def _publisher(self, topic: str) -> Publisher:
        info = self._blocking.info()
        settings = within_limits(Settings(), info)
        return Publisher(
            self._blocking,
            self._coordinator,
            topic,
            buffer_limit_bytes=settings.buffer_limit_bytes,
            message_limit_bytes=settings.message_limit_bytes,
            shares_journal=info.shares_journal,
            known_topics=self._known_topics,
        )

    async def close(self) -> None:
        """Closes all connections and threads."""
        self._workers.close()
        self._blocking.close()
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncMessaging by {self._transport!r}>"


def _no_workers(_: Worker) -> None:
    """Does nothing: a queue makes no workers here, whose loops would block."""


def connect_async(
    url: str, *, token: str | None = None, settings: ClientSettings | None = None
) -> AsyncMessaging:
    """Connects: `async with connect_async("http://HOST:PORT", token=...) as m:`.

    Without a `token` it comes from the environment, as for `connect`; several servers
    may be named as there.
    """
    return AsyncMessaging(Link(url, token=token_to_send(token), settings=settings))
