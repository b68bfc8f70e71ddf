"""Batches that wait for a partition, in lines, and the topics whose lines they are."""

from collections import deque

from txaware.errors import TopicNotFound
from txaware.model.partitions import partition_of
from txaware.model.producers import ProducerIdentity
from txaware.publish.send_batch import SendBatch
from txaware.publish.send_limits import MOST_IN_FLIGHT, NEVER_S


class Line:
    """The batches of one partition, in order, until they are over.

    A line without a number holds what no partition was chosen for yet.
    """

    def __init__(self, topic: "TopicLines", number: int | None) -> None:
        self.topic = topic
        self.number = number
        self.batches: deque[SendBatch] = deque()
        self.open: SendBatch | None = None
        self.in_flight = 0
        self.producer: ProducerIdentity | None = None
        self.next = 0
        # True once a batch of this producer was stored: the first one goes alone.
        self.is_begun = False
        # The error of the last try; only the oldest batch is tried until one is stored.
        self.error: BaseException | None = None
        self.pause_until_s = 0.0

    @property
    def is_writable(self) -> bool:
        """True when a batch that is given to it would go out now."""
        return self.error is None and len(self.batches) < MOST_IN_FLIGHT


class TopicLines:
    """A topic's partitions, and what waits for one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.partitions = 0  # until they were counted
        self.loose = Line(self, None)
        self.lines: dict[int, Line] = {}
        # The lines of all partitions, once they were counted.
        self.row: list[Line] = []
        self.failing = 0
        self.turn = 0
        self.is_asked = False
        self.asked_s = -NEVER_S

    @property
    def held_bytes(self) -> int:
        """The bytes of all of its messages that are not over."""
        lines = (self.loose, *self.lines.values())
        return sum(batch.size_bytes for line in lines for batch in line.batches)

    @property
    def is_missing(self) -> bool:
        """True when the store says that it, or a partition of it, does not exist."""
        lines = (self.loose, *self.lines.values())
        return any(isinstance(line.error, TopicNotFound) for line in lines)

    def count(self, partitions: int) -> None:
        """Takes how many partitions it has."""
        self.partitions = partitions
        self.row = [self.line(number) for number in range(partitions)]

    def line(self, number: int) -> Line:
        """Returns the line of a partition."""
        found = self.lines.get(number)
        if found is None:
            found = self.lines[number] = Line(self, number)
        return found

    def line_of(self, key: bytes | None, number: int | None) -> Line:
        """Returns the line of a message, with a key or to a partition that it names."""
        if not self.partitions:
            return self.loose  # in which it keeps its place among the others
        if number is None and self.partitions == 1:
            return self.line(0)
        if number is not None:
            return self.line(number)
        if key is None:
            return self.loose
        return self.line(partition_of(key, self.partitions))

    def writable(self) -> Line | None:
        """Returns the partition that is next in turn and takes a batch now."""
        for step in range(self.partitions):
            number = (self.turn + step) % self.partitions
            line = self.line(number)
            if line.is_writable:
                self.turn = number + 1
                return line
        return None
