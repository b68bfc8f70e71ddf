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
