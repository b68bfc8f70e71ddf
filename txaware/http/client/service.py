"""The messaging service at the other end of a connection."""

from collections.abc import Iterable, Mapping

import attrs

from coordinator.transaction import Transaction
from txaware.config import Settings
from txaware.http.client.calls import ServiceCalls
from txaware.http.client.server_info import ServerInfo
from txaware.http.client.transport import Transport
from txaware.http.wire import ColumnarPage
from txaware.interfaces import COMMITTED, UNCOMMITTED
from txaware.messages import Bounds, MessageId, Page, PublishResponse, Receipt
from txaware.requests import Payload, Pointer, Start
from txaware.topics import Topic


class HttpService:
    """A `MessagingService` by way of a server; any number of threads may call.

    `Unavailable` leaves open whether the server did what was asked. What could be asked
    again without harm was, for as long as the settings say.
    """

    def __init__(self, transport: Transport) -> None:
        self._run = transport.run
        self._transport = transport
        self._calls = ServiceCalls(transport.link)

    def create_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Topic:
        """Creates a topic, or the next generation of one that was deleted."""
        return self._run(self._calls.create_topic(topic, ttl_s, properties))

    def update_topic(
        self,
        topic: str,
        *,
        ttl_s: int | str | None = None,
        properties: Mapping[str, str | None] | None = None,
    ) -> Topic:
        """Changes what is named and leaves the rest; a property set to None goes."""
        return self._run(self._calls.update_topic(topic, ttl_s, properties))

    def topic(self, topic: str) -> Topic:
        """Returns the topic as it stands."""
        return self._run(self._calls.topic(topic))

    def topics(self, namespace: str = "default") -> list[str]:
        """Returns the names of a namespace's topics, in the order of their keys."""
        return self._run(self._calls.topics(namespace))

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic; its messages are gone at once."""
        self._run(self._calls.delete_topic(topic))

    def publish(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer | None = None,
        receipts: Iterable[Receipt] | None = None,
    ) -> PublishResponse | None:
        """Publishes in one piece; in a transaction answers what `rollback` takes."""
        return self._run(self._calls.publish(topic, messages, transaction, receipts))

    def store(
        self,
        topic: str,
        messages: Iterable[Payload],
        *,
        transaction: Pointer,
        attempt: bytes | None = None,
    ) -> Receipt:
        """Stores payloads ahead of the commit; a reference publishes them later.

        What is too large for one request goes in several: where one of these fails,
        others may be stored, and the attempt must not be named in a reference.
        """
        return self._run(self._calls.store(topic, messages, transaction, attempt))

    def rollback(self, topic: str, response: PublishResponse) -> None:
        """Hides what a publish wrote from all who poll in a transaction."""
        self._run(self._calls.rollback(topic, response))

    def poll(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int = 100,
        transaction: Transaction | None = None,
        isolation: str = UNCOMMITTED,
        wait_s: float = 0,
    ) -> Page:
        """Returns messages from `start` on: an id, a time in ms, None for the first."""
        return self._run(
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

    def poll_columns(
        self,
        topic: str,
        *,
        start: Start = None,
        inclusive: bool = True,
        limit: int = 100,
        transaction: Transaction | None = None,
    ) -> ColumnarPage:
        """Returns what `poll` answers at once, as columns, for makers of tables."""
        return self._run(
            self._calls.poll_columns(
                topic,
                start=start,
                inclusive=inclusive,
                limit=limit,
                transaction=transaction,
            )
        )

    def position(
        self, group: str, topic: str, *, transaction: Transaction | None = None
    ) -> MessageId | None:
        """Returns a group's position, as the transaction or a new snapshot sees it."""
        return self._run(self._calls.position(group, topic, transaction))

    def save_position(
        self,
        group: str,
        topic: str,
        position: MessageId | None,
        *,
        transaction: Pointer,
    ) -> None:
        """Moves a group with the commit; None takes back what this one had saved."""
        self._run(self._calls.save_position(group, topic, position, transaction))

    def bounds(self, topic: str) -> Bounds:
        """Returns the first and last id, committed or not, and where the next goes."""
        return self._run(self._calls.bounds(topic))

    def wait(
        self,
        topic: str,
        *,
        start: Start,
        inclusive: bool = True,
        isolation: str = COMMITTED,
        timeout_s: float,
    ) -> bool:
        """Waits until something is there to poll; False after the time-out."""
        return self._run(
            self._calls.wait(
                topic,
                start=start,
                inclusive=inclusive,
                isolation=isolation,
                timeout_s=timeout_s,
            )
        )

    def info(self) -> ServerInfo:
        """Returns the instance of the server, and its limits."""
        return self._run(self._calls.info())

    def close(self) -> None:
        """Closes the connections."""
        self._transport.close()

    def __repr__(self) -> str:
        return f"<HttpService by {self._transport!r}>"


def within_limits(settings: Settings, info: ServerInfo) -> Settings:
    """Returns the settings with the limits of a server, where those are lower."""
    return attrs.evolve(
        settings,
        message_limit_bytes=min(
            settings.message_limit_bytes, info.largest_message_bytes
        ),
        buffer_limit_bytes=min(
            settings.buffer_limit_bytes, info.buffer_bytes, info.largest_message_bytes
        ),
    )
