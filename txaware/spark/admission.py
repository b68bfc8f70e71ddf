"""How much of what is there a micro-batch takes."""

from typing import Self

import attrs
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows

from txaware.messages import MessageId
from txaware.messaging import Messaging
from txaware.spark.partitions import Span, pages


@attrs.define
class Admission:
    """What may still be taken; None where there is no limit.

    A message above the limit of bytes comes in a batch of its own.
    """

    messages: int | None
    size_bytes: int | None
    _is_empty: bool = attrs.field(default=True, init=False)

    @classmethod
    def of(cls, limit: ReadLimit, max_bytes: int | None) -> Self:
        """What Spark asks for, and a limit of bytes beside one of messages."""
        if isinstance(limit, ReadMaxBytes):
            return cls(None, limit.max_bytes)
        if isinstance(limit, ReadMaxRows):
            return cls(limit.max_rows, max_bytes)
        return cls(None, None)

    def admit(self, messaging: Messaging, span: Span, *, topics_left: int) -> MessageId:
        """Where the batch ends in one of the topics that share what is left."""
        if self.messages is None and self.size_bytes is None:
            return span.stop
        most = _share(self.messages, topics_left)
        most_bytes = _share(self.size_bytes, topics_left)
        if most == 0:
            return span.start
        count = 0
        for messages in pages(messaging, span, limit=most):
            for message in messages:
                size = len(message.payload)
                if most_bytes is not None:
                    if not self._has_room(size, most_bytes, is_first=not count):
                        return message.id
                    most_bytes = max(0, most_bytes - size)
                self._take(size)
                count += 1
            if count == most:
                return messages[-1].id.after()
        return span.stop

    def _has_room(self, size_bytes: int, most_bytes: int, *, is_first: bool) -> bool:
        """The first of a topic may need more than the share of its topic."""
        if size_bytes <= most_bytes:
            return True
        left_bytes = self.size_bytes or 0
        return is_first and (self._is_empty or size_bytes <= left_bytes)

    def _take(self, size_bytes: int) -> None:
        self._is_empty = False
        if self.messages is not None:
            self.messages -= 1
        if self.size_bytes is not None:
            self.size_bytes = max(0, self.size_bytes - size_bytes)


def _share(left: int | None, topics_left: int) -> int | None:
    return None if left is None else -(-left // topics_left)
