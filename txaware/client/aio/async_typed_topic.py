"""Topics of typed events for asyncio; see `TypedTopic`."""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, Literal, Protocol, Self, TypeVar, Unpack, overload

from txaware.client.aio.async_consumer import TopicConsumer
from txaware.client.aio.async_loops import AsyncSubscriber
from txaware.client.aio.async_publisher import TopicPublisher
from txaware.messaging.loop_verbs import LoopOptions
from txaware.messaging.typed_topic import TypedTopic
from txaware.model.event_type import EventType
from txaware.model.messages import Message, Outgoing
from txaware.model.partitions import full_name
from txaware.model.signatures import showing, signed_as
from txaware.publish.publisher import checked_many

T = TypeVar("T")


class OpensTopicsAsync(Protocol):
    """Holds what a typed topic makes its publisher, consumers and subscribers by."""

    def publisher(self, topic: str) -> TopicPublisher:
        """Returns a publisher to the open transaction of the task."""

    async def consumer(self, topic: str, **options: Any) -> TopicConsumer[Any]:
        """Returns a reader of a topic."""

    def subscribe(
        self, topic: str, handler: Callable[..., object], **options: Any
    ) -> AsyncSubscriber:
        """Returns a loop over a topic."""


class AsyncTypedTopic(Generic[T]):
    """The promises of `TypedTopic`, awaited. To await it gives it, as it is there."""

    def __init__(self, messaging: OpensTopicsAsync, name: str, kind: type[T]) -> None:
        self.name = full_name(name)
        self.event_type = EventType(kind)
        self._messaging = messaging

    @signed_as(TypedTopic[T].publish)
    async def publish(self, event: T | Outgoing[T], **options: Any) -> None:
        message = self.event_type.message(event, **options)
        await self._messaging.publisher(self.name).publish(message)

    @signed_as(TypedTopic[T].publish_all)
    async def publish_all(self, events: Iterable[T | Outgoing[T]]) -> None:
        many: Any = checked_many
        messages = list(map(self.event_type.message, many(events)))
        await self._messaging.publisher(self.name).publish_all(messages)

    @signed_as(TypedTopic.consumer)
    async def consumer(self, **options: Any) -> TopicConsumer[T]:
        return await self._messaging.consumer(
            self.name, decode=self.event_type.decode, **options
        )

    @overload
    def subscribe(
        self,
        handler: Callable[[Message[T]], object],
        *,
        group: str | None = None,
        together: Literal[False] = False,
        concurrency: int = 1,
        **options: Unpack[LoopOptions],
    ) -> AsyncSubscriber: ...

    @overload
    def subscribe(
        self,
        handler: Callable[[list[Message[T]]], object],
        *,
        group: str | None = None,
        together: Literal[True],
        concurrency: int = 1,
        **options: Unpack[LoopOptions],
    ) -> AsyncSubscriber: ...

    @showing(TypedTopic.subscribe)
    def subscribe(
        self,
        handler: Callable[[Any], object],
        *,
        concurrency: int = 1,
        **options: Any,
    ) -> Any:
        """Returns a loop that awaits `handler(message)`; see `TypedTopic.subscribe`."""
        return self._messaging.subscribe(
            self.name,
            handler,
            concurrency=concurrency,
            decode=self.event_type.decode,
            **options,
        )

    def __await__(self) -> Generator[None, None, Self]:
        return self
        yield

    def __repr__(self) -> str:
        return f"<AsyncTypedTopic {self.name} of {self.event_type.name}>"
