"""A consumer of values, which a function makes of payloads."""

from typing import Any, cast

from txaware.consume.consumer import Consumer
from txaware.consume.poison import Decoded
from txaware.encoding import Decode
from txaware.messages import Page


def consumer_of(decode: Decode | None, *arguments: Any, **options: Any) -> Consumer:
    """Returns a consumer, which decodes where it is told how."""
    if decode is None:
        return Consumer(*arguments, **options)
    return DecodingConsumer(*arguments, decode=decode, **options)


class DecodingConsumer(Consumer):
    """A `Consumer` whose messages are `Decoded`.

    A payload that cannot be decoded raises what `decode` raised. Outside a transaction
    the consumer then stands where it stood; in one, the rollback takes it back.
    """

    def __init__(self, *arguments: Any, decode: Decode, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._decode = decode

    def poll(self, limit: int = 100) -> Page:
        """Returns the next messages, decoded."""
        before = self.position
        page = super().poll(limit)
        try:
            decoded = [Decoded.of(message, self._decode) for message in page]
        except BaseException:
            self.seek(before, inclusive=False)
            raise
        return Page(
            cast(Any, decoded),
            next_id=page.next,
            blocked_by=page.blocked_by,
            skipped_before=page.skipped_before,
        )
