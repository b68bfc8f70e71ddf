"""Publishers to one topic, of bytes or values: with a transaction, or at once."""

from collections.abc import Iterable, Mapping
from sys import modules
from typing import Any, Generic, TypeVar, Unpack, cast

from coordinator.brief_errors import shorten
from coordinator.context import TransactionContext, current_transaction
from coordinator.fork_guard import guard
from coordinator.interfaces import Coordinator
from coordinator.tracing import API, active
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    RequestTooLarge,
    TxAwareError,
)
from txaware.model.encoding import Encode, encoded, encoder
from txaware.model.interfaces import MessagingService, Payload
from txaware.model.messages import MessageOptions, Outgoing, Receipt, outgoing
from txaware.model.partitions import full_name
from txaware.model.requests import alike, checked_payloads, usual_bytes
from txaware.model.signatures import unpacked
from txaware.model.traced_messages import carrying, sent
from txaware.publish.outbox import TakesItems, TransactionPublisher

T = TypeVar("T")

# The memory of a message beside its payload. With it a limit in bytes also bounds how
# many small messages are held.
OVERHEAD_BYTES = 64
# So many messages of a list take no longer one by one than at once.
FEW = 8


def checked_size_bytes(payload: Payload, limit_bytes: int) -> int:
    """Returns the size of a message in memory; `BadRequest` for what is no message."""
    # Nearly every payload is bytes; the whole check would take twice the time of all
    # the rest of a `publish`.
    if payload.__class__ is bytes:
        size_bytes = len(payload)
    elif not (size_bytes := usual_bytes(payload)):
        size_bytes = checked_payloads([payload], limit_bytes=limit_bytes).size_bytes
    if size_bytes > limit_bytes:
        raise RequestTooLarge(
            f"a message of {size_bytes} bytes is above the limit of {limit_bytes} bytes"
        )
    return size_bytes + OVERHEAD_BYTES


def checked_sizes_bytes(payloads: list[Payload], limit_bytes: int) -> int:
    """Returns the size of messages in memory, as `checked_size_bytes` does of each."""
    if {*map(type, payloads)} == {bytes}:
        size_bytes = sum(map(len, cast(list[bytes], payloads)))
        if size_bytes <= limit_bytes:
            return size_bytes + OVERHEAD_BYTES * len(payloads)
    return sum([checked_size_bytes(one, limit_bytes) for one in payloads])


def checked_many(
    payloads: Iterable[Payload], *, call: str = "publish_all"
) -> Iterable[Payload]:
    """Returns many payloads as they are; raises `BadRequest` for a single message."""
    if payloads.__class__ is list:  # nearly always, and a tenth of the time
        return payloads
    if isinstance(payloads, Iterable) and not isinstance(
        payloads, bytes | str | Mapping
    ):
        return payloads
    raise BadRequest(f"{call} takes many messages, not one {type(payloads).__name__}")


def checked_setting(name: str, value: object, *, least: float = 1) -> None:
    """Raises `BadRequest` for a limit or a time that is no number or too small."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"{name} is a number, not {value!r}")
    if not value >= least:
        raise BadRequest(f"{name} is at least {least}, not {value}")


class KnownTopics:
    """Topics that were seen to exist, so that each is looked up once.

    One instance serves all publishers of a program, in any number of threads.
    """

    def __init__(self, service: MessagingService) -> None:
        self._service = service
        self.names: set[str] = set()

    def require(self, topic: str) -> None:
        """Raises what a commit would raise if no transaction can publish to a topic."""
        if topic in self.names:
            return
        if self._service.topic(topic).publishing == "plain":
            raise BadRequest(f"topic {topic} takes no messages of transactions")
        self.names.add(topic)


class DirectPublisher:
    """A publisher that publishes at once, also inside a transaction.

    A transaction cannot take its messages back.
    """

    def __init__(
        self, service: MessagingService, topic: str, *, message_limit_bytes: int
    ) -> None:
        checked_setting("message_limit_bytes", message_limit_bytes)
        self.topic = full_name(topic)
        self._service = service
        self._message_limit_bytes = message_limit_bytes
        guard(self)

    @unpacked
    def publish(self, payload: Payload, **options: Unpack[MessageOptions]) -> None:
        """Publishes one message; it is on disk when this returns, and ages from then.

        The options are those of an `Outgoing`.
        """
        payload = outgoing(payload, options)
        if active() is not None:
            self.publish_all([payload])
            return
        checked_size_bytes(payload, self._message_limit_bytes)
        self._service.publish(self.topic, [payload])

    def publish_all(self, payloads: Iterable[Payload]) -> None:
        """Publishes many in one piece, with nothing in between: all or none."""
        with sent("publish", self.topic, list(checked_many(payloads))) as messages:
            checked_sizes_bytes(messages, self._message_limit_bytes)
            if messages:
                self._service.publish(self.topic, messages)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.topic}>"


class Publisher:
    """A publisher that publishes with the open transaction of its thread or task.

    Without a transaction it publishes at once.

    In a transaction messages are held in memory up to `buffer_limit_bytes`, and stored
    ahead of the commit above it. Nobody who polls in a transaction sees any of them
    before the commit. Any number of threads may share it.
    """

    def __init__(
        self,
        service: MessagingService,
        coordinator: Coordinator,
        topic: str,
        *,
        buffer_limit_bytes: int,
        message_limit_bytes: int,
        shares_journal: bool,
        known_topics: KnownTopics | None = None,
    ) -> None:
        checked_setting("buffer_limit_bytes", buffer_limit_bytes)
        self._direct = DirectPublisher(
            service, topic, message_limit_bytes=message_limit_bytes
        )
        self.topic = self._direct.topic
        self._service = service
        self._coordinator = coordinator
        self._buffer_limit_bytes = buffer_limit_bytes
        self._message_limit_bytes = message_limit_bytes
        self._shares_journal = shares_journal
        self._known_topics = known_topics or KnownTopics(service)
        self._key = publisher_key(service)
        guard(self)

    @unpacked
    def publish(self, payload: Payload, **options: Unpack[MessageOptions]) -> None:
        """Publishes one message, which ages from its flush or spill on.

        The options are those of an `Outgoing`. An error that can be known before the
        commit is raised here.
        """
        # Asked here too: each call counts in a transaction of one message.
        if options:
            payload = outgoing(payload, options)
        joined = self._joined()
        if joined is None:
            self._direct.publish(payload)
        elif API not in modules or (tracing := active()) is None:
            self._hold(joined, payload)
        else:
            with tracing.sending("publish", self.topic) as context:
                self._hold(joined, carrying(payload, context))

    def publish_all(self, payloads: Iterable[Payload]) -> None:
        """Publishes many messages in order; without a transaction all or none.

        In a transaction they are taken one by one, and may be more than fit in memory.
        When this raises, the messages before the wrong one were taken.
        """
        joined = self._joined()
        if joined is None:
            self._direct.publish_all(payloads)
        else:
            self._hold_traced(joined, checked_many(payloads))

    def publish_in(
        self, context: TransactionContext, payloads: Iterable[Payload]
    ) -> None:
        """Publishes many messages in order with a transaction, open here or not."""
        self._hold_traced(self._joined_in(context), payloads)

    def publish_stored(self, receipts: Iterable[Receipt]) -> None:
        """Publishes with the open transaction what others stored for it.

        Other processes `store` and pass on the receipts; only what is named here is
        ever read. Its place is behind what was published to the topic before. A call
        without receipts, before the others store, makes sure of that.
        """
        joined = self._joined()
        if joined is None:
            raise MisusedTransaction(
                f"what others stored for {self.topic} is published in the transaction "
                f"that they stored it for, and none is open here"
            )
        joined.publish_stored(self.topic, list(receipts))

    def flush(self) -> None:
        """Publishes what the open transaction holds for the topic, before its commit.

        Who reads with `isolation="uncommitted"` gets it at once, and keeps it if it is
        rolled back. All others get it with the commit, and wait for that from here on.
        """
        context = current_transaction(self._coordinator)
        if context is None:
            raise MisusedTransaction(
                f"flush() writes what the open transaction holds for {self.topic}, and "
                f"none is open here; without one all is published at once"
            )
        self._joined_in(context).flush_early(context, self.topic)

    def __repr__(self) -> str:
        return f"<Publisher of {self.topic}>"

    def _joined(self) -> TransactionPublisher | None:
        context = current_transaction(self._coordinator)
        try:
            return None if context is None else self._joined_in(context)
        except TxAwareError as error:
            shorten(error)
            raise

    def _joined_in(self, context: TransactionContext) -> TransactionPublisher:
        if self.topic not in self._known_topics.names:
            taker = context.standing_in(self._key)
            if not isinstance(taker, TakesItems) or taker.looks_up:
                self._known_topics.require(self.topic)
        return context.joined(self._key, self._make)

    def _hold_traced(
        self, joined: TransactionPublisher, payloads: Iterable[Payload]
    ) -> None:
        """Holds messages, in a span where somebody traces it."""
        if active() is None:
            self._hold_all(joined, payloads)
            return
        with sent("publish", self.topic, list(payloads)) as carried:
            self._hold_all(joined, carried)

    def _hold_all(
        self, joined: TransactionPublisher, payloads: Iterable[Payload]
    ) -> None:
        """Holds all at once where they are alike and there is room, else one by one."""
        listed = payloads.copy() if payloads.__class__ is list else []
        checked = alike(listed) if len(listed) > FEW else None
        is_held = (
            checked is not None
            and checked.size_bytes <= self._message_limit_bytes
            and joined.publish_all(
                self.topic,
                listed,
                checked,
                size_bytes=checked.size_bytes + OVERHEAD_BYTES * len(listed),
                limit_bytes=self._buffer_limit_bytes,
            )
        )
        if is_held:
            return
        for payload in listed or payloads:
            self._hold(joined, payload)

    def _hold(self, joined: TransactionPublisher, payload: Payload) -> None:
        joined.publish(
            self.topic,
            payload,
            size_bytes=checked_size_bytes(payload, self._message_limit_bytes),
            limit_bytes=self._buffer_limit_bytes,
        )

    def _make(self) -> TransactionPublisher:
        return TransactionPublisher(self._service, shares_journal=self._shares_journal)


def publisher_key(service: MessagingService) -> tuple[str, int]:
    """Returns the key of a service's `TransactionPublisher` in a transaction.

    One publisher serves all topics. Two services may share a coordinator, and with it a
    transaction, so the key names the service.
    """
    return "publisher", id(service)


class EncodingPublisher(Generic[T]):
    """A `Publisher` of anything that its `encode` makes bytes of.

    Among many, one with a key, headers or an expiry is an `Outgoing(value, key=...)`.
    One that cannot be encoded raises here, and nothing of it is published.
    """

    def __init__(self, publisher: Publisher, encode: Encode[T]) -> None:
        self.topic = publisher.topic
        self._publisher = publisher
        self._encode = encoder(encode)

    @unpacked
    def publish(
        self, value: T | Outgoing[T], **options: Unpack[MessageOptions]
    ) -> None:
        """Publishes one value, as `Publisher.publish` does."""
        message = outgoing(value, options)
        self._publisher.publish(encoded(message, self._encode))

    def publish_all(self, values: Iterable[T | Outgoing[T]]) -> None:
        """Publishes many values, as `Publisher.publish_all` does."""
        many: Any = checked_many
        encode = self._encode
        self._publisher.publish_all(encoded(value, encode) for value in many(values))

    def publish_stored(self, receipts: Iterable[Receipt]) -> None:
        """Publishes what others stored, as `Publisher.publish_stored` does."""
        self._publisher.publish_stored(receipts)

    def flush(self) -> None:
        """Publishes before the commit, as `Publisher.flush` does."""
        self._publisher.flush()

    def __repr__(self) -> str:
        return f"<EncodingPublisher of {self.topic}>"
