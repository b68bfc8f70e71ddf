"""What one transaction wants to publish to one topic, in order, with its size."""

from txaware.interfaces import Payload


class TopicBuffer:
    """Messages in the order of publishing, and what they take in memory."""

    __slots__ = ("messages", "size_bytes")

    def __init__(self) -> None:
        self.messages: list[Payload] = []
        self.size_bytes = 0

    def add(self, message: Payload, size_bytes: int) -> None:
        """Takes one message more."""
        self.messages.append(message)
        self.size_bytes += size_bytes

    def first(self, limit_bytes: int) -> list[Payload]:
        """The first messages, of about so many bytes; at least one."""
        count = len(self.messages)
        fitting = count * limit_bytes // max(1, self.size_bytes)
        return self.messages[: max(1, min(count, fitting))]

    def drop(self, count: int) -> None:
        """Forgets the first messages."""
        self.size_bytes -= self.size_bytes * count // len(self.messages)
        del self.messages[:count]
