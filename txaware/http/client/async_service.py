"""The verbs of the messaging service as coroutines."""

from collections.abc import Iterable, Mapping

from coordinator.transaction import Transaction
from txaware.http.client.async_transport import AsyncTransport
from txaware.http.client.calls import ServiceCalls
from txaware.http.client.server_info import ServerInfo
from txaware.interfaces import COMMITTED, UNCOMMITTED, Isolation
from txaware.messages import Bounds, MessageId, Page, PublishResponse, Receipt
from txaware.requests import Payload, Pointer, Start
from txaware.topics import Topic


class AsyncService:
    """The verbs of `MessagingService`, awaited; see there what each promises."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._run = transport.run
        self._perform = transport.perform
        self._transport = transport
        self._calls = ServiceCalls(transport.link)

    async def create_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Topic:
        """Creates a topic, or the next generation of one that was deleted."""
        return await self._run(self._calls.create_topic(topic, ttl_s, properties))

    async def update_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str | None] | None = None,
    ) -> Topic:
        """Changes what is named and leaves the rest; a property set to None goes."""
        return await self._run(self._calls.update_topic(topic, ttl_s, properties))

    async def topic(self, topic: str) -> Topic:
        """Returns the topic as it stands."""
        return await self._run(self._calls.topic(topic))

    async def topics(self, namespace: str = "default") -> list[str]:
        """Returns the names of a namespace's topics, in the order of their keys."""
        return await self._run(self._calls.topics(namespace))

    async def delete_topic(self, topic: str) -> None:
        """Deletes a topic; its messages are gone at once."""
        await self._run(self._calls.delete_topic(topic))

    async def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> PublishResponse | None:
        """Publishes in one piece; in a transaction answers what `rollback` takes."""
        return await self._run(
            self._calls.publish(topic, messages, transaction, receipts)
        )

    async def store(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer,
        attempt: bytes | None = None,
    ) -> Receipt:
        """Stores payloads ahead of the commit; a reference publishes them later."""
        return await self._run(self._calls.store(topic, messages, transaction, attempt))

    async def rollback(self, topic: str, response: PublishResponse) -> None:
        """Hides what a publish wrote from all who poll in a transaction."""
        await self._run(self._calls.rollback(topic, response))

    async def poll(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int = 100,
        transaction: Transaction | None = None,
        isolation: Isolation = UNCOMMITTED,
        wait_s: float = 0,
    ) -> Page:
        """Returns messages from `start` on: an id, a time in ms, None for the first."""
        return await self._run(
            self._calls.poll(
                topic,
                start=start,
                inclusive=inclusive,
                limit=limit,
                transaction=transaction,
                isolation=isolation,
                wait_s=wait_s,
            )
        )

    async def position(
        self, group: str, topic: str, *, transaction: Transaction | None = None
    ) -> MessageId | None:
        """Returns a group's position, as the transaction or a new snapshot sees it."""
        return await self._run(self._calls.position(group, topic, transaction))

    async def save_position(
        self,
        group: str,
        topic: str,
        position: MessageId | None,
        *,
        transaction: Pointer,
    ) -> None:
        """Moves a group with the commit; None takes back what this one had saved."""
        await self._run(self._calls.save_position(group, topic, position, transaction))

    async def bounds(self, topic: str) -> Bounds:
        """Returns the first and last id, committed or not, and where the next goes."""
        return await self._run(self._calls.bounds(topic))

    async def wait(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        isolation: Isolation = COMMITTED,
        timeout_s: float,
    ) -> bool:
        """Waits until something is there to poll; False after the time-out."""
        return await self._run(
            self._calls.wait(
                topic,
                start=start,
                inclusive=inclusive,
                isolation=isolation,
                timeout_s=timeout_s,
            )
        )

    async def info(self) -> ServerInfo:
        """Returns the instance of the server, and its limits."""
        return await self._run(self._calls.info())
