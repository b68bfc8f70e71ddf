"""A consumer of values, which a function makes of payloads."""

from typing import Any

from coordinator.brief_errors import briefly
from txaware.consume.consumer import Consumer
from txaware.model.encoding import Decode, decoder
from txaware.model.messages import Page, T, end_of, page_of


def consumer_of(
    decode: Decode[T] | None, *arguments: Any, **options: Any
) -> Consumer[T]:
    """Returns a consumer, which decodes where it is told how."""
    if decode is None:
        return Consumer(*arguments, **options)
    return DecodingConsumer(*arguments, decode=decode, **options)


class DecodingConsumer(Consumer[T]):
    """A `Consumer` whose messages have the value that `decode` makes of a payload.

    A payload that cannot be decoded raises what `decode` raised. Outside a transaction
    the consumer then stands where it stood; in one, the rollback takes it back.
    """

    def __init__(self, *arguments: Any, decode: Decode[T], **options: Any) -> None:
        self._decode = decoder(decode)
        super().__init__(*arguments, **options)

    @briefly
    def poll(self, limit: int = 100) -> Page[T]:
        """Returns the next messages, decoded."""
        before = self.position
        page = self._poll_bytes(limit)
        try:
            decoded = [message.decoded(self._decode) for message in page]
        except BaseException:
            self.seek(before, inclusive=False)
            raise
        return page_of(decoded, end_of(page))
