"""The asyncio client: the same calls, awaited; one implementation of what they say."""

from collections.abc import Iterable
from typing import Self

from coordinator.context import TransactionContext
from coordinator.fork_guard import guard
from coordinator.interfaces import TransactionAware
from coordinator.remote.client import RemoteCoordinator
from coordinator.transaction import Transaction
from txaware.auth import token_to_send
from txaware.config import Settings
from txaware.consume import Consumer
from txaware.consume.start_places import StartAt
from txaware.http.client import admin_calls
from txaware.http.client.async_consumer import TopicConsumer
from txaware.http.client.async_publisher import TopicPublisher
from txaware.http.client.async_service import AsyncService
from txaware.http.client.async_transaction import (
    AsyncTransaction,
    Workers,
    open_transaction,
)
from txaware.http.client.async_transport import AsyncTransport
from txaware.http.client.coordinator_calls import CoordinatorSend
from txaware.http.client.link import Link
from txaware.http.client.service import HttpService, within_limits
from txaware.http.client.settings import ClientSettings
from txaware.http.client.transport import Transport
from txaware.interfaces import COMMITTED, UNSAID, Isolation
from txaware.keeper import Keeper, KeepsRows, named_pointer
from txaware.messages import MessageId, Page, PublishResponse, Receipt
from txaware.metrics import Metrics
from txaware.publish import KnownTopics, Publisher, WrittenByHand, written_by_hand
from txaware.reports import CleanUp, Peeked, Pruned, Report, TopicReport
from txaware.requests import Payload, Pointer, Start
from txaware.topics import TopicName


class AsyncOperator(AsyncService):
    """The verbs of `Messaging` beside those of the service, awaited; see there.

    Reading or cleaning all of a large store takes a while; no progress is told.
    """

    async def peek(
        self, topic: str, *, start: Start = None, limit: int = 100
    ) -> list[Peeked]:
        """Returns rows as they stand, whatever became of their transactions."""
        return await self._run(admin_calls.peek(topic, start, limit))

    async def namespaces(self) -> list[str]:
        """Returns all namespaces that have a topic, in order."""
        return await self._perform(admin_calls.namespaces())

    async def inspect(self, topic: str) -> TopicReport:
        """Returns counts, sizes, times and the blocker of a topic; reads all of it."""
        return await self._perform(admin_calls.inspect(topic))

    async def splits(
        self, topic: str, *, start: MessageId, stop: MessageId, part_bytes: int
    ) -> list[MessageId]:
        """Returns the ids between both at which parts of so many bytes begin; cheap."""
        return await self._perform(
            admin_calls.splits(topic, start=start, stop=stop, part_bytes=part_bytes)
        )

    async def lag_ms(self, group: str, topic: str) -> int:
        """Returns how far a group is behind the newest message of a topic."""
        return await self._perform(admin_calls.lag_ms(group, topic))

    async def oldest_unread_ms(self, group: str, topic: str) -> int:
        """Returns the age of the oldest message a group may read; 0 without one."""
        return await self._perform(admin_calls.oldest_unread_ms(group, topic))

    async def check(self) -> Report:
        """Verifies every invariant of the server's data, which stays in use."""
        return await self._perform(admin_calls.check())

    async def clean_up(self) -> CleanUp:
        """Removes what has expired, and marks what invalid transactions wrote.

        The server goes on with it when the task that awaits it is cancelled.
        """
        return await self._perform(admin_calls.clean_up())

    async def prune(self, *, exclusive: bool = False) -> Pruned:
        """Has the coordinator forget invalid transactions that nothing here needs."""
        return await self._perform(admin_calls.prune(exclusive=exclusive))

    async def forget_keeper(self, name: str) -> None:
        """Has `prune` no longer ask for a keeper, as its rows are gone."""
        await self._perform(admin_calls.forget_keeper(name))

    async def keepers(self) -> list[Keeper]:
        """Returns the participants that keep rows of their own, registered or not."""
        return await self._perform(admin_calls.keepers())

    async def metrics(self) -> Metrics:
        """Returns what was counted in the server, and how things stand."""
        return await self._perform(admin_calls.metrics())


class AsyncMessaging(AsyncOperator):
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
        self._known_topics = KnownTopics(self._blocking)
        self._coordinator = RemoteCoordinator(
            CoordinatorSend(blocking),
            takes_writers=lambda: self._blocking.info().takes_writers,
        )
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

    def publisher(self, topic: str) -> TopicPublisher:
        """Returns a publisher in the open transaction of this task, or at once."""
        return TopicPublisher(topic, self, self._coordinator, self._publisher)

    async def consumer(
        self,
        topic: str,
        *,
        group: str | None = None,
        start: StartAt = None,
        inclusive: bool = True,
        isolation: Isolation = COMMITTED,
    ) -> TopicConsumer:
        """Returns a reader of a topic in order; `start` is looked up now."""

        def make() -> Consumer:
            return Consumer(
                self._blocking,
                self._coordinator,
                topic,
                group=group,
                start=start,
                inclusive=inclusive,
                isolation=isolation,
                shares_journal=self._blocking.info().shares_journal,
            )

        block = open_transaction(self._coordinator)
        if block is not None:  # whose thread waits anyway; another may never be free
            consumer = await block.run(make)
        else:
            async with self._workers.one() as worker:
                consumer = await worker.run(make)
        return TopicConsumer(
            consumer,
            topic=str(TopicName.parse(topic)),
            group=group,
            isolation=isolation,
            service=self,
            coordinator=self._coordinator,
            workers=self._workers,
        )

    async def register_keeper(self, participant: KeepsRows) -> Keeper:
        """Has `prune` keep what a participant with rows of its own still needs.

        It is asked here and now, in a thread, and the answer holds until it registers
        again; see `Messaging.register_keeper`.
        """
        async with self._workers.one() as worker:
            name, bound = await worker.run(
                lambda: named_pointer(participant, self._coordinator)
            )
        return await self._perform(admin_calls.report_keeper(name, bound))

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

    async def poll(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int = 100,
        transaction: Transaction | None = None,
        isolation: Isolation = UNSAID,
        wait_s: float = 0,
    ) -> Page:
        """Returns messages from `start` on: an id, a time in ms, or None for the first.

        In an `async with` block of this task it sees the block's snapshot, unless
        `isolation` is named; see `Messaging.poll`.
        """
        if isolation is UNSAID:
            transaction = self._of_block("poll", transaction)
        return await super().poll(
            topic,
            start=start,
            inclusive=inclusive,
            limit=limit,
            transaction=transaction,
            isolation=isolation,
            wait_s=wait_s,
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


def connect_async(
    url: str, *, token: str | None = None, settings: ClientSettings | None = None
) -> AsyncMessaging:
    """Connects: `async with connect_async("http://HOST:PORT", token=...) as m:`.

    Without a `token` it comes from the environment, as for `connect`; several servers
    may be named as there.
    """
    return AsyncMessaging(Link(url, token=token_to_send(token), settings=settings))
