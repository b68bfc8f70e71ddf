"""A publisher of values, which a function makes payloads of."""

from collections.abc import Callable, Iterable

from txaware.encoding import Encode, encoded
from txaware.messages import Receipt
from txaware.publish.publisher import Publisher, checked_many


class EncodingPublisher:
    """A `Publisher` of anything that its `encode` makes bytes of.

    A value with a key, headers or an expiry comes as `Outgoing(value, key=...)`. One
    that cannot be encoded raises here, and nothing of it is published.
    """

    def __init__(self, publisher: Publisher, encode: Encode) -> None:
        self.topic = publisher.topic
        self._publisher = publisher
        self._encode = encode

    def publish(self, value: object) -> None:
        """Publishes one value, as `Publisher.publish` does."""
        self._publisher.publish(encoded(value, self._encode))

    def publish_all(self, values: Iterable[object]) -> None:
        """Publishes many values, as `Publisher.publish_all` does."""
        many: Callable[..., Iterable[object]] = checked_many
        encode = self._encode
        self._publisher.publish_all(encoded(value, encode) for value in many(values))

    def publish_stored(self, receipts: Iterable[Receipt]) -> None:
        """Publishes what others stored, as `Publisher.publish_stored` does."""
        self._publisher.publish_stored(receipts)

    def __repr__(self) -> str:
        return f"<EncodingPublisher of {self.topic}>"
