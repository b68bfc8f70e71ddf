"""`spark.readStream.format("txaware")`: offsets are ids, kept in Spark's checkpoint."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import attrs
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from coordinator import codec
from coordinator.transaction import Transaction
from txaware.errors import TopicNotFound
from txaware.messaging import Messaging
from txaware.model.messages import MessageId
from txaware.spark.columns import TableMaker
from txaware.spark.options import Options
from txaware.spark.partitions import Span, pages, read
from txaware.spark.selection import QuerySelection, Range


@attrs.define
class StreamAdmission:
    """The messages and bytes that a batch may still take; None for no limit.

    A message above the limit of bytes comes in a batch of its own.
    """

    messages: int | None
    size_bytes: int | None
    _is_empty: bool = attrs.field(default=True, init=False)

    @classmethod
    def of(cls, limit: ReadLimit, max_bytes: int | None) -> Self:
        """Reads the limit that Spark asks for; `max_bytes` adds to one of messages."""
        if isinstance(limit, ReadMaxBytes):
            return cls(None, limit.max_bytes)
        if isinstance(limit, ReadMaxRows):
            return cls(limit.max_rows, max_bytes)
        return cls(None, None)

    def admit(self, messaging: Messaging, span: Span, *, topics_left: int) -> MessageId:
        """Returns the end of the batch in one of the topics that share what is left."""
        if self.messages is None and self.size_bytes is None:
            return span.stop
        most = _share(self.messages, topics_left)
        most_bytes = _share(self.size_bytes, topics_left)
        if most == 0:
            return span.start
        count = 0
        for messages in pages(messaging, span, limit=most):
            for message in messages:
                size = message.size_bytes
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
        """Tells whether a message fits; the first of a topic may exceed its share."""
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


# By topic, the first id that is not read yet, as 40 hex digits.
Offset = dict[str, str]


class StreamSource(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that never goes past a row that its snapshot cannot decide.

    So a batch reads the same messages whenever it is read again, except for those that
    the time to live has removed by then. Spark keeps one such source while a query
    runs; tasks read with another one.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._selection = QuerySelection.of(options)
        self._address = options.address().resolved()
        self._tasks = self._address.for_tasks()
        self._table = TableMaker(schema)
        self._max_messages = options.number("max_messages")
        self._max_bytes = options.number("max_bytes")
        self._target: Mapping[str, MessageId] | None = None

    def initialOffset(self) -> Offset:
        """Returns the ids at which the options make the query begin."""
        with self._address.open() as messaging:
            return _offset(self._selection.starts(messaging))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns the limit that the options max_messages and max_bytes set."""
        if self._max_messages is not None:
            return ReadMaxRows(self._max_messages)
        if self._max_bytes is not None:
            return ReadMaxBytes(self._max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Notes the ends of the topics; messages from now on are for the next run."""
        with self._address.open() as messaging:
            names = self._selection.names(messaging)
            _, ranges = self._selection.ranges(messaging, names)
        self._target = {name: stop for name, (_, stop) in ranges.items()}

    def reportLatestOffset(self) -> Offset:
        """Returns the ends of the topics, with messages that wait for a transaction.

        Spark shows them beside the progress of the query.
        """
        with self._address.open() as messaging:
            return _offset(self._selection.ends(messaging))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Returns the ids up to which the next batch reads."""
        with self._address.open() as messaging:
            names = self._selection.names(messaging)
            begun = {name: MessageId.parse(text) for name, text in start.items()}
            snapshot, ranges = self._selection.ranges(messaging, names, begun)
            if self._target is not None:
                ranges = _up_to(ranges, self._target)
            if not isinstance(limit, ReadAllAvailable):
                ranges = self._limited(messaging, snapshot, ranges, limit)
        # A topic that is not shown just now (to a token that lost its rights for a
        # while) goes on where it was; one that is created again has greater ids.
        return {**start, **{name: str(stop) for name, (_, stop) in ranges.items()}}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Plans the rows of a batch with a new snapshot, which decides all of them."""
        joins_at = str(self._selection.joins_at)
        ranges = {
            name: (
                MessageId.parse(start.get(name, joins_at)),
                MessageId.parse(end[name]),
            )
            for name in sorted(end)
        }
        with self._address.open() as messaging:
            present = self._selection.names(messaging)
            for name in ranges.keys() - set(present):
                if ranges[name][0] >= ranges[name][1] or not _is_there(messaging, name):
                    del ranges[name]
            snapshot = self._selection.snapshot(messaging)
            return self._selection.spans(messaging, snapshot, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads the messages of one part of a batch."""
        if isinstance(partition, Span):
            with self._tasks.service() as service:
                yield from read(service, partition, self._table)

    def commit(self, end: Offset) -> None:
        """Does nothing: the checkpoint alone says how far the query is."""

    def stop(self) -> None:
        """Does nothing, as nothing is kept open between calls."""

    def _limited(
        self,
        messaging: Messaging,
        snapshot: Transaction | None,
        ranges: dict[str, Range],
        limit: ReadLimit,
    ) -> dict[str, Range]:
        """Cuts the ranges to the limit; each topic gets its share of it."""
        encoded = None if snapshot is None else codec.encode(snapshot)
        admission = StreamAdmission.of(limit, self._max_bytes)
        limited = dict(ranges)
        # The topic that is farthest behind comes first, so that none waits for ever.
        due = sorted(
            [name for name, (start, stop) in ranges.items() if start < stop],
            key=lambda name: (ranges[name][0], name),
        )
        for number, name in enumerate(due):
            start, stop = ranges[name]
            span, left = Span(name, start, stop, encoded), len(due) - number
            limited[name] = start, admission.admit(messaging, span, topics_left=left)
        return limited


def _is_there(messaging: Messaging, topic: str) -> bool:
    """Tells whether a topic exists; one that may not be read any more is an error.

    Its rows would be missing from a batch, and would never be read.
    """
    try:
        messaging.bounds(topic)
    except TopicNotFound:
        return False
    return True


def _offset(ids: Mapping[str, MessageId]) -> Offset:
    return {name: str(one) for name, one in ids.items()}


def _up_to(
    ranges: dict[str, Range], target: Mapping[str, MessageId]
) -> dict[str, Range]:
    """Cuts ranges to what was there when the query began; later topics wait."""
    return {
        name: (start, max(start, min(stop, target[name])))
        for name, (start, stop) in ranges.items()
        if name in target
    }
