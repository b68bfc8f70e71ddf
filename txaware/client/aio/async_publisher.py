"""Publishes with the open transaction of its task, or at once."""

from collections.abc import Callable, Iterable
from typing import Any, Generic, Unpack

from txaware.client.aio.async_service import AsyncService
from txaware.client.aio.async_transaction import Workers
from txaware.errors import MisusedTransaction
from txaware.model.encoding import Encode, encoded, encoder
from txaware.model.messages import MessageOptions, Outgoing, Receipt, T, outgoing
from txaware.model.partitions import full_name
from txaware.model.requests import Payload
from txaware.model.signatures import unpacked
from txaware.publish import Publisher
from txaware.publish.publisher import checked_many


class TopicPublisher(Generic[T]):
    """The promises of `Publisher`, awaited.

    In a transaction that has a thread each call visits it: `publish_all` does so once
    for many messages.
    """

    def __init__(
        self,
        topic: str,
        service: AsyncService,
        workers: Workers,
        make: Callable[[str], Publisher],
        *,
        encode: Encode[T] | None = None,
    ) -> None:
        self.topic = full_name(topic)
        self._service = service
        self._workers = workers
        self._make = make
        self._joining: Publisher | None = None
        self._encode = None if encode is None else encoder(encode)

    @unpacked
    async def publish(
        self, payload: T | Outgoing[T], **options: Unpack[MessageOptions]
    ) -> None:
        """Publishes one message, which ages from its flush or spill on.

        With `encode` it is any value. The options are those of an `Outgoing`.
        """
        await self.publish_all([outgoing(payload, options)])

    async def publish_all(self, payloads: Iterable[T | Outgoing[T]]) -> None:
        """Publishes many, in order; without a transaction in one piece, all or none."""
        many: Callable[..., Iterable[Any]] = checked_many
        messages: list[Payload] = list(many(payloads))
        if self._encode is not None:
            messages = [encoded(value, self._encode) for value in many(payloads)]
        transaction = self._workers.open_transaction()
        if transaction is not None:
            await transaction.write(self._hold, messages)
        elif messages:
            await self._service.publish(self.topic, messages)

    async def publish_stored(self, receipts: Iterable[Receipt]) -> None:
        """Publishes with the open transaction what others stored for it."""
        named = list(receipts)
        transaction = self._workers.open_transaction()
        if transaction is None:
            raise MisusedTransaction(
                f"what others stored for {self.topic} is published in the transaction "
                f"that they stored it for, and none is open here"
            )
        await transaction.run(self._publish_stored, named)

    async def flush(self) -> None:
        """Publishes what the open transaction holds for the topic, before its commit.

        See `Publisher.flush`.
        """
        transaction = self._workers.open_transaction()
        if transaction is None:
            raise MisusedTransaction(
                f"flush() writes what the open transaction holds for {self.topic}, and "
                f"none is open here; without one all is published at once"
            )
        await transaction.run(self._flush)

    def _flush(self) -> None:
        self._joined().flush()

    def _publish_stored(self, receipts: list[Receipt]) -> None:
        self._joined().publish_stored(receipts)

    def _hold(self, messages: list[Payload]) -> None:
        self._joined().publish_all(messages)

    def _joined(self) -> Publisher:
        """Makes the publisher in a thread, as it asks the server; then keeps it."""
        if self._joining is None:
            self._joining = self._make(self.topic)
        return self._joining

    def __repr__(self) -> str:
        return f"<TopicPublisher of {self.topic}>"
