"""How much of what is there a micro-batch takes."""

from typing import Self

import attrs
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, ReadMaxRows

from txaware.messages import MessageId
from txaware.messaging import Messaging
from txaware.spark.places import after
from txaware.spark.spans import Span, pages


@attrs.define
class Admission:
    """What may still be taken; None where there is no limit."""

    messages: int | None
    size_bytes: int | None

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
        count = size_bytes = 0
        if most == 0 or most_bytes == 0:
            return span.start
        for messages in pages(messaging, span, limit=most):
            for message in messages:
                size = len(message.payload)
                if count and most_bytes is not None and size_bytes + size > most_bytes:
                    self._take(count, size_bytes)
                    return message.id
                count, size_bytes = count + 1, size_bytes + size
            if count == most:
                self._take(count, size_bytes)
                return after(messages[-1].id)
        self._take(count, size_bytes)
        return span.stop

    def _take(self, messages: int, size_bytes: int) -> None:
        if self.messages is not None:
            self.messages -= messages
        if self.size_bytes is not None:
            self.size_bytes = max(0, self.size_bytes - size_bytes)


def _share(left: int | None, topics_left: int) -> int | None:
    return None if left is None else -(-left // topics_left)
