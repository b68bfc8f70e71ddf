"""The way from a sender to the store: what a loop asks, and calls that it gets back."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from txaware.errors import Unavailable
from txaware.model.interfaces import MessagingService
from txaware.model.messages import MessageId
from txaware.model.partitions import partition_name
from txaware.model.producers import ProducerIdentity
from txaware.model.requests import Payloads
from txaware.publish.repeated_publish import KnowsRepeats

if TYPE_CHECKING:  # most programs have no event loop
    import asyncio

# Waits until an event, but no longer than so many seconds.
Pause = Callable[["asyncio.Event", float], Awaitable[None]]

# A try goes on for so long, also where its messages are given up sooner.
LEAST_TRY_S = 5.0

# Called with the id of the first message, or why there is none; in the loop's thread.
OnSent = Callable[[MessageId | BaseException], None]
OnCounted = Callable[[int | BaseException], None]


@attrs.frozen
class SendRequest:
    """One try of a batch. It is over after `timeout_s`, and its outcome is unknown."""

    topic: str
    partition: int
    payloads: Payloads
    producer: ProducerIdentity
    sequence: int
    timeout_s: float

    @property
    def name(self) -> str:
        """The name of the partition; it stays when the topic gets more of them."""
        return partition_name(self.topic, self.partition)


class SendsBatches(Protocol):
    """The way from a sender to the store; all calls come from the loop's thread.

    A call may tell its end before it returns, and tells it once.
    """

    def send(self, request: SendRequest, callback: OnSent) -> None:
        """Begins to publish a batch; those of one partition come in their order."""

    def count(self, topic: str, callback: OnCounted) -> None:
        """Begins to ask how many partitions a topic has."""

    async def close(self) -> None:
        """Ends what is under way."""


class PlainWay:
    """The way to a service that blocks: one batch at a time, in the loop's thread.

    A service that knows producers stores each batch once. Others get plain publishes.
    """

    def __init__(self, service: KnowsRepeats | MessagingService, *, once: bool) -> None:
        self._service: Any = service
        self._once = once and isinstance(service, KnowsRepeats)

    def send(self, request: SendRequest, callback: OnSent) -> None:
        """Publishes a batch."""
        messages = request.payloads.messages()
        # It may know nothing of partitions.
        name = request.name if request.partition else request.topic
        if not self._once:
            self._service.publish(name, messages)
            callback(MessageId())
            return
        # One at a time, so that it never leaves a gap.
        producer = attrs.evolve(request.producer, is_sender=False)
        ids = self._service.publish_once(
            name,
            messages,
            producer=producer,
            sequence=request.sequence,
        )
        callback(ids[0] if ids else MessageId())

    def count(self, topic: str, callback: OnCounted) -> None:
        """Takes a topic for one partition: it is for publishers to one topic."""
        callback(1)

    async def close(self) -> None:
        """Does nothing: nothing is under way between two calls."""


def timed_out(request: SendRequest) -> Unavailable:
    """Returns the error of a try that took too long."""
    return Unavailable(
        f"no answer for {len(request.payloads)} messages to {request.topic} in "
        f"{request.timeout_s:g} s"
    )
