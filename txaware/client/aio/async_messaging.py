"""The asyncio client: the same calls, awaited; one implementation of what they say."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Literal, Self, TypeVar, Unpack, overload

import attrs

from coordinator.callbacks import check_function
from coordinator.fork_guard import guard
from coordinator.interfaces import Coordinator, TransactionAware
from coordinator.transaction import Transaction
from txaware.auth import token_to_send
from txaware.client.aio.async_broadcast import AsyncBroadcastConsumer
from txaware.client.aio.async_consumer import TopicConsumer
from txaware.client.aio.async_loops import AsyncProcessor, AsyncSubscriber, for_threads
from txaware.client.aio.async_member import AsyncMember
from txaware.client.aio.async_producer import (
    AsyncProducer,
    AsyncTransactionalProducer,
)
from txaware.client.aio.async_publisher import TopicPublisher
from txaware.client.aio.async_queue import AsyncQueue, JobCalls
from txaware.client.aio.async_sender import AsyncSender
from txaware.client.aio.async_service import AsyncService
from txaware.client.aio.async_table import AsyncTable
from txaware.client.aio.async_transaction import (
    AsyncTransaction,
    DecidesInLoop,
    Workers,
    open_transaction,
)
from txaware.client.aio.async_transport import (
    AsyncTransport,
    TransportOfThreads,
    awaited_verb,
)
from txaware.client.aio.async_typed_topic import AsyncTypedTopic
from txaware.client.aio.handlers import Handlers, processing
from txaware.client.aio.in_threads import InThreads, in_thread, opened_in_thread
from txaware.client.calls.queue_calls import QueueCalls
from txaware.client.calls.verb_calls import steps_of
from txaware.client.link import Link
from txaware.client.settings import ClientSettings
from txaware.consume import Consumer, Subscriber
from txaware.errors import BadRequest, PartitionNeeded
from txaware.messaging import Messaging
from txaware.messaging.broadcast import BroadcastConsumer
from txaware.messaging.loop_verbs import LoopOptions
from txaware.messaging.messaging import refuse_closed
from txaware.messaging.parts import is_http
from txaware.messaging.processor import Made, Processor
from txaware.messaging.remote_parts import parts_over
from txaware.model.encoding import Decode, Encode
from txaware.model.interfaces import (
    UNSAID,
    Isolation,
    MessagingService,
)
from txaware.model.keeper import Keeper, KeepsRows, named_pointer
from txaware.model.latest import Latest, LatestPage
from txaware.model.messages import Message, MessageId, Page, PublishResponse, Receipt, T
from txaware.model.queue_service import QueueService
from txaware.model.queues import QueueDescriptor, checked_count
from txaware.model.reports import MessagingStatus
from txaware.model.requests import Payload, Pointer, checked_positions
from txaware.model.signatures import showing, signed_as
from txaware.model.topics import Topic
from txaware.model.traced_messages import sent
from txaware.protocol.operator import REPORT_KEEPER
from txaware.protocol.queues import DELETE_QUEUE, LIST_QUEUES
from txaware.protocol.tables import LIST_TABLES
from txaware.publish.sender import SenderLimits, SenderOptions
from txaware.publish.transactional_producer import TransactionalProducer
from txaware.queue import Queue
from txaware.tables import Table

L = TypeVar("L")
R = TypeVar("R")
V = TypeVar("V")

# Queues that are kept for all who ask for them.
KNOWN_QUEUES = 1000


def _table_over(table: Table[T], messaging: "AsyncMessaging") -> AsyncTable[T]:
    return AsyncTable(table, messaging._workers)


def _consumer_over(
    consumer: Consumer[T], messaging: "AsyncMessaging"
) -> TopicConsumer[T]:
    return TopicConsumer(consumer, messaging, messaging._workers)


def _broadcast_over(
    consumer: BroadcastConsumer[T], messaging: "AsyncMessaging"
) -> AsyncBroadcastConsumer[T]:
    return AsyncBroadcastConsumer(consumer, messaging, messaging._workers)


class AsyncMessaging(InThreads, AsyncService):
    """A `Messaging` for asyncio: an async context manager, of one event loop.

    Verbs go through the loop's own connection, and thousands may wait at once.
    Transactions, and consumers in them, run in threads, `pool_connections` at most,
    whose calls go through the same connection: their participants are the same ones as
    everywhere and may block. One that a database of asyncio decides takes no thread
    before something in it needs one. Loops have threads as well, and await their
    handlers in the event loop. A sender is a task of the loop. Publishers in the
    background, backups and the coordinator itself are not here.
    """

    def __init__(self, link: Link, coordinator: Coordinator | None = None) -> None:
        super().__init__(AsyncTransport(link))
        transport = TransportOfThreads(self._transport, lambda: self._workers.loop)
        self._blocking = Messaging(parts_over(transport, coordinator))
        self._coordinator = self._blocking.coordinator
        self._workers = Workers(link.settings.pool_connections, self._coordinator)
        self._queue_calls = QueueCalls(link)
        self._job_calls = JobCalls(self._transport)
        self._known_queues: dict[str, AsyncQueue] = {}
        self._senders: set[AsyncSender[Any]] = set()
        guard(self, self._blocking)

    def transaction(
        self,
        *participants: TransactionAware,
        timeout_s: float | None = None,
        long: bool = False,
    ) -> AsyncTransaction:
        """Returns a block that commits: `async with messaging.transaction(table):`."""
        context = self._blocking.transaction(
            *participants, timeout_s=timeout_s, long=long
        )
        [first, *others] = participants or (None,)
        decider = None
        if isinstance(first, DecidesInLoop) and not others and context.begins_later:
            decider = first
        return AsyncTransaction(context, self._workers, decider=decider)

    @overload
    def topic(self, topic: str) -> Coroutine[Any, Any, Topic]: ...

    @overload
    def topic(self, topic: str, *, type: type[V]) -> AsyncTypedTopic[V]: ...

    def topic(
        self,
        topic: str,
        *,
        type: type[V] | None = None,  # noqa: A002
    ) -> Coroutine[Any, Any, Topic] | AsyncTypedTopic[V]:
        """Returns the topic as it is now; with a `type`, a handle for events of it.

        See `Messaging.topic`.
        """
        if type is None:
            return super().topic(topic)
        messaging: Any = self
        return AsyncTypedTopic(messaging, topic, type)

    @overload
    def publisher(self, topic: str, *, encode: None = None) -> TopicPublisher: ...

    @overload
    def publisher(self, topic: str, *, encode: Encode[V]) -> TopicPublisher[V]: ...

    def publisher(
        self, topic: str, *, encode: Encode[V] | None = None
    ) -> TopicPublisher[V] | TopicPublisher:
        """Returns a publisher in the open transaction of this task, or at once."""
        return TopicPublisher(
            topic, self, self._workers, self._blocking.publisher, encode=encode
        )

    table = opened_in_thread(Messaging.table, _table_over)

    @overload
    async def queue(
        self, name: str, *, encode: Encode[Any], decode: None = None
    ) -> AsyncQueue[Any]: ...

    @overload
    async def queue(
        self,
        name: str,
        *,
        encode: Encode[T] | None = None,
        decode: Decode[T] | None = None,
    ) -> AsyncQueue[T]: ...

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
        make = partial(self._blocking.queue, name)
        # A database that decides the block is asked for all, and no server.
        queue: Queue = await self._workers.write(make)
        if len(self._known_queues) >= KNOWN_QUEUES:
            self._known_queues.clear()
        found = AsyncQueue(queue, self._workers, self._job_calls)
        return self._known_queues.setdefault(name, found)

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

    queues = awaited_verb(LIST_QUEUES)
    delete_queue = awaited_verb(DELETE_QUEUE)
    tables = awaited_verb(LIST_TABLES)

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
            return AsyncProducer(self._blocking.producer, self._workers)

        def newest() -> TransactionalProducer:
            return self._blocking.producer(transactional_id)

        return AsyncTransactionalProducer(newest, self._workers)

    @overload
    def sender(
        self, *, encode: None = None, **options: Unpack[SenderLimits]
    ) -> AsyncSender: ...

    @overload
    def sender(
        self, *, encode: Encode[V], **options: Unpack[SenderLimits]
    ) -> AsyncSender[V]: ...

    @showing(SenderOptions)
    def sender(
        self, *, encode: Encode[V] | None = None, **options: Unpack[SenderLimits]
    ) -> AsyncSender | AsyncSender[V]:
        """Returns a sender to any topics: `async with messaging.sender() as s:`.

        It keeps the line full from this event loop; see `AsyncSender`. The options are
        those of `SenderOptions`.
        """
        self._blocking._require_open()
        ask_limits = partial(self.in_thread, self._blocking._parts.ask_limits)
        said = SenderOptions(encode=encode, **options)
        return AsyncSender(self._transport, said, ask_limits, self._senders)

    consumer = opened_in_thread(Messaging.consumer, _consumer_over)

    @signed_as(Messaging.member)
    def member(self, group: str, **options: Any) -> AsyncMember:
        """Returns a member of a group: `async with messaging.member(...) as m`.

        See `Messaging.member`. Callbacks are functions, and are called in a thread.
        """
        make = partial(self._blocking.member, group, **options)
        return AsyncMember(make, self._workers)

    broadcast = opened_in_thread(Messaging.broadcast, _broadcast_over)
    instances = in_thread(Messaging.instances)

    @overload
    def subscribe(
        self,
        topic: str,
        handler: Callable[[Message], object],
        *,
        group: str | None = None,
        decode: None = None,
        together: Literal[False] = False,
        concurrency: int = 1,
        **options: Unpack[LoopOptions],
    ) -> AsyncSubscriber: ...

    @overload
    def subscribe(
        self,
        topic: str,
        handler: Callable[[Message[V]], object],
        *,
        group: str | None = None,
        decode: Decode[V],
        together: Literal[False] = False,
        concurrency: int = 1,
        **options: Unpack[LoopOptions],
    ) -> AsyncSubscriber: ...

    @overload
    def subscribe(
        self,
        topic: str,
        handler: Callable[[list[Message[Any]]], object],
        *,
        group: str | None = None,
        decode: Decode[Any] | None = None,
        together: Literal[True],
        concurrency: int = 1,
        **options: Unpack[LoopOptions],
    ) -> AsyncSubscriber: ...

    @showing(Messaging.subscribe)
    def subscribe(
        self,
        topic: str,
        handler: Callable[..., object],
        *,
        concurrency: int = 1,
        **options: Any,
    ) -> AsyncSubscriber:
        """Returns a loop that awaits `handler(message)` in transactions; `run` runs it.

        Handlers are `async def`, or functions that do not block. Each is in a block of
        its task, which commits with the position. At most `concurrency` of a
        transaction's messages are handled at once, those of one key in their order; a
        transaction commits all of them or none. See `Messaging.subscribe`.
        """
        check_function(handler, what="handler", may_await=True)
        most = checked_count("concurrency", concurrency)

        def make(handlers: Handlers) -> Subscriber:
            group = options.get("group")
            each = processing(handler, topic, group)
            at_once = None if most == 1 else handlers.at_once(each, most)
            return self._blocking._subscribed(
                topic,
                handlers.blocking(handler),
                at_once=at_once,
                **for_threads(options, handlers, "after_commit"),
            )

        return self._loop(AsyncSubscriber, make, topic)

    @overload
    def process(
        self,
        source: str,
        target: str,
        function: Callable[[Message], Made | Awaitable[Made]],
        *,
        group: str,
        producer: str,
        decode: None = None,
        concurrency: int = 1,
        **options: Unpack[LoopOptions],
    ) -> AsyncProcessor: ...

    @overload
    def process(
        self,
        source: str,
        target: str,
        function: Callable[[Message[V]], Made | Awaitable[Made]],
        *,
        group: str,
        producer: str,
        decode: Decode[V],
        concurrency: int = 1,
        **options: Unpack[LoopOptions],
    ) -> AsyncProcessor: ...

    @showing(Messaging.process)
    def process(
        self,
        source: str,
        target: str,
        function: Callable[..., Any],
        *,
        concurrency: int = 1,
        **options: Any,
    ) -> AsyncProcessor:
        """Returns a loop from a topic to another, each message once; `run` runs it.

        `await` of it, or the first `run`, fences an older loop of the same producer. At
        most `concurrency` functions are at work at once, and what they return is
        published in the order of the messages. See `Messaging.process`.
        """
        check_function(function, what="function", may_await=True)
        most = checked_count("concurrency", concurrency)

        def make(handlers: Handlers) -> Processor:
            each = processing(function, source, options["group"])
            at_once = None if most == 1 else handlers.at_once(each, most)
            return self._blocking._process(
                source,
                target,
                handlers.blocking(function),
                at_once=at_once,
                **for_threads(options, handlers, "after_commit"),
            )

        return self._loop(AsyncProcessor, make, source)

    def _loop(
        self,
        kind: Callable[..., L],
        make: Callable[[Handlers], object],
        of: str,
    ) -> L:
        return kind(make, self._workers, handles=of)

    prepared = in_thread(Messaging.prepared)
    commit_prepared = in_thread(Messaging.commit_prepared)
    rollback_prepared = in_thread(Messaging.rollback_prepared)

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
            options: dict[str, Any] = {"transaction": transaction, "receipts": receipts}
            if not isinstance(messages, list):
                return await super().publish(topic, messages, **options)
            with sent("publish", topic, messages) as carried:
                return await super().publish(topic, carried, **options)
        publish = partial(
            self._blocking.publish, topic, messages, transaction=transaction
        )
        return await block.run(partial(publish, receipts=receipts))

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

    @signed_as(Messaging.latest_page)
    async def latest_page(
        self, topic: str, *, transaction: Transaction | None = None, **options: Any
    ) -> LatestPage:
        seen_by = self._of_block("latest_page", transaction)
        return await super().latest_page(topic, transaction=seen_by, **options)

    @signed_as(Messaging.latest)
    async def latest(
        self, topic: str, *, transaction: Transaction | None = None
    ) -> Latest:
        seen_by, found = self._of_block("latest", transaction), Latest()
        try:
            while not found.is_whole:
                page = await super().latest_page(
                    topic, start=found.place, transaction=seen_by
                )
                found.add(page)
        except PartitionNeeded:
            read = partial(self._blocking.latest, topic, transaction=seen_by)
            found = await self.in_thread(read)
        return found

    @signed_as(Messaging.position)
    async def position(
        self, group: str, topic: str, *, transaction: Transaction | None = None
    ) -> MessageId | None:
        seen_by = self._of_block("position", transaction)
        return await super().position(group, topic, transaction=seen_by)

    def _of_block(self, call: str, named: Transaction | None) -> Transaction | None:
        block = open_transaction(self._coordinator) if named is None else None
        return named if block is None else block.snapshot_for(call)

    @signed_as(Messaging.save_position)
    async def save_position(self, *args: Any, **options: Any) -> None:
        block = open_transaction(self._coordinator)
        if block is None:
            await super().save_position(*args, **options)
        else:
            await block.run(self._blocking.save_position, *args, **options)

    @signed_as(Messaging.partitions)
    async def partitions(self, topic: str) -> int:
        return (await super().topic(topic)).partitions

    @signed_as(Messaging.save_positions)
    async def save_positions(
        self, group: str, positions: Mapping[str, MessageId], *, transaction: Pointer
    ) -> None:
        for topic, position in checked_positions(group, positions).items():
            await self.save_position(group, topic, position, transaction=transaction)

    async def status(self) -> MessagingStatus:
        """Tells how calls reach the data: in frames or by HTTP."""
        return self._transport.status(await self.info())

    async def in_thread(self, call: Callable[[], R]) -> R:
        """Makes a call that blocks, in the thread of this task's block or a free one.

        It is for participants.
        """
        return await self._workers.run(call)

    async def close(self) -> None:
        """Closes its senders, which lose nothing, and all connections and threads."""
        try:
            for sender in [*self._senders]:
                await sender.close()
        finally:
            self._workers.close()
            await asyncio.to_thread(self._blocking.close)
            await self._transport.close()
            refuse_closed(self)

    async def __aenter__(self) -> Self:
        self._blocking._require_open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncMessaging by {self._transport!r}>"


def messaging_of(messaging: AsyncMessaging) -> Messaging:
    """Returns the one whose calls block, which the threads of blocks have."""
    return messaging._blocking


def connect_async(
    url: str,
    *,
    token: str | None = None,
    settings: ClientSettings | None = None,
    frames: bool = True,
) -> AsyncMessaging:
    """Connects: `async with connect_async("http://HOST:PORT", token=...) as m:`.

    Without a `token` it comes from the environment, as for `connect`; several servers
    may be named as there. `frames` says the same as there.
    """
    if isinstance(url, str) and not is_http(url):
        raise BadRequest(
            f"{url!r} is no URL of a server, as http://HOST:PORT is; asyncio reaches "
            f"what connect() opens in a process by its messaging.serve()"
        )
    settings = ClientSettings() if settings is None else settings
    if not isinstance(settings, ClientSettings):
        raise BadRequest(f"settings are a ClientSettings, not {settings!r:.100}")
    settings = attrs.evolve(settings, frames=settings.frames and frames)
    return AsyncMessaging(Link(url, token=token_to_send(token), settings=settings))
