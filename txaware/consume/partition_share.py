"""The partitions that a member holds, read together: fairly, topic by topic."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from txaware.consume.consumer import is_ahead
from txaware.consume.held_partition import HeldPartition, InGroup
from txaware.errors import TopicNotFound
from txaware.model.groups import Partition, owned_by_topic
from txaware.model.interfaces import COMMITTED
from txaware.model.messages import ID_BYTES, Message, MessageId, Page, in_topic
from txaware.model.requests import Start
from txaware.model.topics import TopicName

log = logging.getLogger(__name__)

# The place behind everything: what others hold is read from there, and nothing found.
END = MessageId(b"\xff" * ID_BYTES)

# Returns the place after which a partition is read.
PlaceOf = Callable[[Partition], MessageId]
# Is called with the place after which a partition goes on, once a page is read.
MoveTo = Callable[[Partition, MessageId], object]


class PartitionShare:
    """The partitions that a member holds, each with its state; topics may be paused.

    The partitions of a topic are polled by one call, which goes round them. Each poll
    begins with another topic.
    """

    def __init__(self, in_group: InGroup) -> None:
        self.held: dict[Partition, HeldPartition] = {}
        self.paused: set[str] = set()
        self._in_group = in_group
        self._service = in_group.service
        self._counts: dict[str, int] = {}
        self._turn = 0

    def count(self) -> None:
        """Learns how many partitions the topics have."""
        self._counts = {}
        for topic in {pair[0] for pair in self.held}:
            try:
                found = self._service.topic(self.shown(topic))
            except TopicNotFound:
                continue
            self._counts[topic] = found.partitions

    def partitions(self, topic: str) -> int:
        """Tells how many partitions a topic has, as it was counted last."""
        return self._counts.get(topic, 0)

    def position(self, pair: Partition) -> MessageId:
        """Returns where a partition stands."""
        return self.held[pair].position

    def starts(
        self, places: Mapping[Partition, MessageId] | None = None
    ) -> dict[str, Start]:
        """Returns where each topic is read on, by the name to read it by.

        `places` are those to go on from, in place of all where the partitions stand.
        """
        place_of = self.position if places is None else places.__getitem__
        return {
            self._name(topic, numbers): self._start_of(topic, numbers, place_of)
            for topic, numbers in self._readable(places).items()
        }

    def first_behind(
        self, places: Mapping[Partition, MessageId]
    ) -> tuple[set[Partition], list[int]]:
        """Returns the partition of each topic with messages behind the oldest place.

        Where there is none, it tells the transactions that committed readers stop at.
        """
        found, stops = set[Partition](), list[int]()
        for topic, numbers in self._readable(places).items():
            options: dict[str, Any] = {"isolation": COMMITTED}
            page = self._page(topic, numbers, places.__getitem__, 1, options)
            if page:
                number = numbers[0] if len(numbers) == 1 else page[0].partition
                found.add((topic, number))
            elif page is not None and page.blocked_by is not None:
                stops.append(page.blocked_by.pointer)
        return found, stops

    def pages(
        self,
        limit: int,
        *,
        move_to: MoveTo,
        place_of: PlaceOf | None = None,
        among: Iterable[Partition] | None = None,
        **options: Any,
    ) -> list[Message]:
        """Polls up to `limit` messages, and moves what it went past.

        `place_of` is for other places than those where the partitions stand, and
        `among` for some of them alone.
        """
        at, found = place_of or self.position, list[Message]()
        for topic, numbers in self._in_turn(among):
            page = self._page(topic, numbers, at, limit - len(found), options)
            if page is None:
                continue
            for number in numbers:
                if _went_on(page, numbers, number, at((topic, number))):
                    move_to((topic, number), _next_of(page, numbers, number))
            found += self._of(topic, numbers, page)
            if len(found) >= limit:
                break
        return found

    def shown(self, topic: str) -> str:
        """Returns the name of a topic as a program names it."""
        return str(TopicName(topic, self._in_group.name.namespace))

    def shown_all(self, pairs: Iterable[Partition]) -> dict[str, list[int]]:
        """Returns partitions by topic, as a program names these."""
        owned = owned_by_topic(pairs)
        return {self.shown(topic): numbers for topic, numbers in owned.items()}

    def _readable(
        self, among: Iterable[Partition] | None = None
    ) -> dict[str, list[int]]:
        owned = owned_by_topic(self.held if among is None else among)
        return {t: numbers for t, numbers in owned.items() if t not in self.paused}

    def _in_turn(
        self, among: Iterable[Partition] | None
    ) -> Iterator[tuple[str, list[int]]]:
        topics = sorted(self._readable(among).items())
        self._turn += 1
        at = self._turn % len(topics) if topics else 0
        yield from (*topics[at:], *topics[:at])

    def _name(self, topic: str, numbers: Sequence[int]) -> str:
        """Returns the name to poll by: one partition alone is polled as such."""
        if len(numbers) == 1:
            return self._in_group.rows((topic, numbers[0]))
        return self.shown(topic)

    def _start_of(self, topic: str, numbers: Sequence[int], at: PlaceOf) -> Start:
        """Returns where to read partitions on; of all others there is nothing."""
        if len(numbers) == 1:
            return at((topic, numbers[0]))
        start = dict.fromkeys(range(self._counts.get(topic, 0)), END)
        start.update((number, at((topic, number))) for number in numbers)
        return start

    def _page(
        self,
        topic: str,
        numbers: Sequence[int],
        at: PlaceOf,
        limit: int,
        options: dict[str, Any],
    ) -> Page | None:
        """Polls one topic; None where it was deleted, and will be revoked."""

        def poll() -> Page:
            return self._service.poll(
                self._name(topic, numbers),
                start=self._start_of(topic, numbers, at),
                inclusive=False,
                limit=limit,
                **options,
            )

        try:
            page = poll()
            if len(numbers) > 1 and len(page.next) > self.partitions(topic):
                # Partitions were added: they are others', and would fill each page.
                self.count()
                page = poll()
        except TopicNotFound as error:
            log.info("a member holds a partition that is gone: %s", error)
            return None
        return page

    def _of(self, topic: str, numbers: Sequence[int], page: Page) -> list[Message]:
        """Returns the messages of these partitions, with their topic."""
        shown = self.shown(topic)
        if len(numbers) == 1:
            return in_topic(page, shown, numbers[0])
        own = set(numbers)
        return in_topic([one for one in page if one.partition in own], shown)


def _next_of(page: Page, numbers: Sequence[int], number: int) -> MessageId:
    """Returns where a partition goes on after a page."""
    found = page.next if len(numbers) == 1 else page.next[number]
    return cast(MessageId, found)


def _went_on(
    page: Page, numbers: Sequence[int], number: int, position: MessageId
) -> bool:
    """Tells whether a page went past anything of a partition."""
    if len(numbers) == 1:
        return is_ahead(page, position)
    has_messages = any(one.partition == number for one in page)
    return has_messages and page.next[number] > position
