"""The topics that a query reads, their ranges, and the parts of these."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from itertools import pairwise

import attrs

from coordinator import codec
from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.messaging import Messaging
from txaware.model.interfaces import COMMITTED, UNCOMMITTED
from txaware.model.messages import ID_BYTES, Bounds, MessageId
from txaware.model.partitions import full_name, named_partition, shown_partitions
from txaware.model.requests import parsed_start
from txaware.model.topics import TopicName
from txaware.spark.options import Options
from txaware.spark.partitions import Span, pages

FIRST, NEXT = "first", "next"


def place(text: str | None, bounds: Bounds, *, default: str) -> MessageId:
    """Reads an id, a time (ISO, or ms since 1970), `first` or `next` (behind all)."""
    text = default if text is None else text
    if text == FIRST:
        return bounds.first or bounds.next
    if text == NEXT:
        return bounds.next
    found = parsed_start(text, words="first and next")
    return found if isinstance(found, MessageId) else MessageId.of(found)


# From the first id on, and before the second.
Range = tuple[MessageId, MessageId]

PART_BYTES = 16 << 20
_LEAST = MessageId(bytes(ID_BYTES))


@attrs.frozen
class QuerySelection:
    """Topics by name or pattern, and the bounds of each."""

    topics: tuple[str, ...]
    pattern: str | None
    start: str | None
    end: str | None
    isolation: str
    part_bytes: int

    @classmethod
    def of(cls, options: Options) -> "QuerySelection":
        """Reads the options, of which topic, topics or topic_pattern names topics."""
        one, several = options.text("topic"), options.text("topics")
        pattern = options.text("topic_pattern")
        if sum(each is not None for each in (one, several, pattern)) != 1:
            raise BadRequest(
                "one of the options topic, topics (a list with commas) and "
                "topic_pattern (* stands for anything) says what to read"
            )
        listed = (several or one or "").split(",") if pattern is None else []
        return cls(
            tuple(full_name(name.strip()) for name in listed),
            pattern,
            options.text("start"),
            options.text("end"),
            options.one_of("isolation", COMMITTED, UNCOMMITTED),
            options.number("part_bytes") or PART_BYTES,
        )

    def names(self, messaging: Messaging) -> list[str]:
        """Returns the topics that exist now; a topic given by name has to exist.

        Of a topic of several partitions these are the partitions, each by its name.
        """
        if self.pattern is None:
            named = [(name, messaging.topic(name)) for name in self.topics]
        else:
            namespace, _, pattern = self.pattern.rpartition(":")
            named = [
                (str(topic), messaging.topic(str(topic)))
                for topic in _all(messaging, namespace or "default")
                if fnmatchcase(topic.name, pattern)
            ]
        return [
            each
            for name, topic in named
            for each in (
                [part for part, _ in shown_partitions(topic)]
                if named_partition(name)[1] is None
                else [name]
            )
        ]

    def starts(self, messaging: Messaging) -> dict[str, MessageId]:
        """Returns the id at which the reading of each topic begins."""
        bounds = _bounds(messaging, self.names(messaging))
        return {name: self._start(found) for name, found in bounds.items()}

    def ends(self, messaging: Messaging) -> dict[str, MessageId]:
        """Returns the ids behind all that there is to read now, decided or not."""
        bounds = _bounds(messaging, self.names(messaging))
        return {name: self._end(found) for name, found in bounds.items()}

    @property
    def joins_at(self) -> MessageId:
        """The start of a topic that is created after the query began: all is new."""
        return self._start(Bounds(None, None, _LEAST))

    def snapshot(self, messaging: Messaging) -> Transaction | None:
        """Takes the snapshot that decides on rows; None if all rows are read."""
        is_committed = self.isolation == COMMITTED
        return messaging.coordinator.snapshot() if is_committed else None

    def ranges(
        self,
        messaging: Messaging,
        names: Iterable[str],
        begun: Mapping[str, MessageId] | None = None,
    ) -> tuple[Transaction | None, dict[str, Range]]:
        """Returns the range of each topic; the snapshot decides every row in it.

        `begun` says how far a running query has come in each topic.
        """
        bounds = _bounds(messaging, names)
        # After the bounds: rows before them are then decided, or of one in progress.
        snapshot = self.snapshot(messaging)
        ranges = {}
        for name, found in bounds.items():
            if begun is None:
                start = self._start(found)
            else:
                start = begun.get(name, self.joins_at)
            stop = self._end(found)
            if snapshot is not None:
                stop = messaging.administration.first_undecided(
                    name, start=start, stop=stop, snapshot=snapshot
                )
            ranges[name] = (start, max(start, stop))
        return snapshot, ranges

    def seen_by_one(
        self, messaging: Messaging, names: Iterable[str]
    ) -> tuple[Transaction | None, dict[str, Range]]:
        """Returns ranges that hold all of each transaction that the snapshot sees.

        The topics are looked at one after the other. A transaction that commits
        meanwhile may be visible, and have rows behind the end that was found for an
        early topic. So each range is extended.
        """
        snapshot, ranges = self.ranges(messaging, names)
        if snapshot is None or len(ranges) < 2:
            return snapshot, ranges
        return snapshot, {
            name: (start, self._further(messaging, name, (start, stop), snapshot))
            for name, (start, stop) in ranges.items()
        }

    def _further(
        self, messaging: Messaging, name: str, found: Range, snapshot: Transaction
    ) -> MessageId:
        """Returns the end up to which the snapshot decides rows behind that range."""
        start, stop = found
        end = place(self.end, messaging.bounds(name), default=NEXT)
        tail = Span(name, max(start, stop), end, codec.encode(snapshot))
        for messages in pages(messaging, tail, is_decided=False):
            stop = messages[-1].id.after()
        return stop

    def _start(self, bounds: Bounds) -> MessageId:
        return place(self.start, bounds, default=FIRST)

    def _end(self, bounds: Bounds) -> MessageId:
        return min(place(self.end, bounds, default=NEXT), bounds.next)

    def spans(
        self,
        messaging: Messaging,
        snapshot: Transaction | None,
        ranges: dict[str, Range],
    ) -> list[Span]:
        """Cuts ranges into parts of about equal size."""
        encoded = None if snapshot is None else codec.encode(snapshot)
        spans = []
        for name, (start, stop) in ranges.items():
            if start >= stop:
                continue
            cuts = messaging.splits(
                name, start=start, stop=stop, part_bytes=self.part_bytes
            )
            generation = messaging.topic(name).generation
            spans += [
                Span(name, first, behind, encoded, generation)
                for first, behind in pairwise([start, *cuts, stop])
            ]
        return spans


def _bounds(messaging: Messaging, names: Iterable[str]) -> dict[str, Bounds]:
    return {name: messaging.bounds(name) for name in names}


def _all(messaging: Messaging, namespace: str) -> list[TopicName]:
    names = [found for found in messaging.namespaces() if fnmatchcase(found, namespace)]
    return [
        TopicName.parse(f"{found}:{topic}")
        for found in names
        for topic in messaging.topics(found)
    ]
