"""Topics of typed events, as a program has them: `messaging.topic(name, type=...)`."""

from collections.abc import Callable, Iterable
from typing import Any, Generic, Literal, Protocol, TypeVar, Unpack, overload

from txaware.consume import Consumer, Subscriber
from txaware.messaging.loop_verbs import LoopOptions
from txaware.model.event_type import EventType
from txaware.model.interfaces import COMMITTED, Isolation, MessagingService
from txaware.model.messages import Message, MessageOptions, Outgoing
from txaware.model.partitions import full_name
from txaware.model.signatures import unpacked
from txaware.model.start_places import StartAt
from txaware.model.topics import Topic
from txaware.publish import Publisher
from txaware.publish.publisher import checked_many

T = TypeVar("T")


class OpensTopics(Protocol):
    """Holds what a typed topic makes its publisher, consumers and subscribers by."""

    def publisher(self, topic: str) -> Publisher:
        """Returns a publisher to the open transaction."""

    def consumer(self, topic: str, **options: Any) -> Consumer[Any]:
        """Returns a reader of a topic."""

    def subscribe(
        self, topic: str, handler: Callable[..., object], **options: Any
    ) -> Subscriber:
        """Returns a loop over a topic."""


class TypedTopic(Generic[T]):
    """A topic whose events are of one class: written as JSON, and read as that class.

    Others see bytes, with the headers `content-type` and `type`. Any number of threads
    may share it.
    """

    def __init__(self, messaging: OpensTopics, name: str, kind: type[T]) -> None:
        self.name = full_name(name)
        self.event_type = EventType(kind)
        self._messaging = messaging
        self._publisher = messaging.publisher(name)

    @unpacked
    def publish(
        self, event: T | Outgoing[T], **options: Unpack[MessageOptions]
    ) -> None:
        """Publishes one event, with the open transaction or at once.

        One that does not fit its class, so that a reader would refuse it, is a
        `BadRequest` that names the field. The options are those of an `Outgoing`.
        """
        self._publisher.publish(self.event_type.message(event, **options))

    def publish_all(self, events: Iterable[T | Outgoing[T]]) -> None:
        """Publishes many events in order; without a transaction all or none.

        Where one does not fit, none is published.
        """
        many: Any = checked_many
        self._publisher.publish_all(list(map(self.event_type.message, many(events))))

    def consumer(
        self,
        *,
        group: str | None = None,
        start: StartAt = None,
        inclusive: bool = True,
        isolation: Isolation = COMMITTED,
    ) -> Consumer[T]:
        """Returns a reader, whose messages have the event as their payload.

        A message that does not fit raises, and the reader stands where it stood. The
        options are those of `Messaging.consumer`.
        """
        return self._messaging.consumer(
            self.name,
            group=group,
            start=start,
            inclusive=inclusive,
            isolation=isolation,
            decode=self.event_type.decode,
        )

    @overload
    def subscribe(
        self,
        handler: Callable[[Message[T]], object],
        *,
        group: str | None = None,
        together: Literal[False] = False,
        **options: Unpack[LoopOptions],
    ) -> Subscriber: ...

    @overload
    def subscribe(
        self,
        handler: Callable[[list[Message[T]]], object],
        *,
        group: str | None = None,
        together: Literal[True],
        **options: Unpack[LoopOptions],
    ) -> Subscriber: ...

    def subscribe(
        self,
        handler: Callable[[Any], object],
        *,
        group: str | None = None,
        together: bool = False,
        **options: Unpack[LoopOptions],
    ) -> Subscriber:
        """Returns a loop that calls `handler(message)`; `message.payload` is the event.

        A message that does not fit goes to the `dead_letter_topic` at once, with what
        is wrong in its header `error`; without one it is skipped with a warning. The
        options are those of `Messaging.subscribe`.
        """
        return self._messaging.subscribe(
            self.name,
            handler,
            group=group,
            together=together,
            decode=self.event_type.decode,
            **options,
        )

    def __repr__(self) -> str:
        return f"<TypedTopic {self.name} of {self.event_type.name}>"


class TopicVerbs:
    """The verb of a `Messaging` that looks a topic up, or opens one of events."""

    _service: MessagingService

    @overload
    def topic(self, topic: str) -> Topic: ...

    @overload
    def topic(self, topic: str, *, type: type[T]) -> TypedTopic[T]: ...

    def topic(
        self,
        topic: str,
        *,
        type: type[T] | None = None,  # noqa: A002
    ) -> Topic | TypedTopic[T]:
        """Returns the topic as it is now; with a `type`, a handle for events of it.

        The type is a class of attrs, a dataclass, a `TypedDict`, a `msgspec.Struct` or
        a model of pydantic. The handle publishes, consumes and subscribes; the topic
        may be made later.
        """
        if type is None:
            return self._service.topic(topic)
        messaging: Any = self
        return TypedTopic(messaging, topic, type)
