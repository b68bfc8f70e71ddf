"""The places in a topic where a consumer may start, and the place where it stands."""

from collections.abc import Mapping
from typing import Literal, Protocol, cast

from txaware.errors import BadRequest, PartitionNeeded
from txaware.model.interfaces import COMMITTED, Isolation, MessagingService
from txaware.model.messages import ID_BYTES, MessageId, Places
from txaware.model.partitions import partition_name
from txaware.model.requests import checked_flag, checked_start

# An id, a time in ms, None for the beginning, or a word for what the topic has at that
# moment: its first message, its last one, or what is published from then on. For a
# committed reader that is its last committed one, or what is decided from then on. In a
# topic of several partitions it may be an id for each of them.
StartAt = (
    MessageId | int | Mapping[int, MessageId] | Literal["first", "last", "next"] | None
)
# The place after which a reader goes on; of several partitions, an id in each.
Position = MessageId | Places

# The id after which everything comes.
BEGINNING = MessageId(ID_BYTES)


class ReadPlace(Protocol):
    """A position that can be read and moved.

    A position is always exclusive: everything up to it is done. None is the beginning,
    as long as nobody has moved it.
    """

    @property
    def position(self) -> Position | None:
        """The message after which to go on."""

    def move(self, position: Position) -> None:
        """Goes on from a position."""


def place_of(
    service: MessagingService,
    topic: str,
    start: StartAt,
    *,
    inclusive: bool = True,
    isolation: Isolation = COMMITTED,
) -> Position | None:
    """Returns the position of a consumer that begins at `start`.

    `inclusive` matters for ids only, as in `poll`, and `isolation` for words only.
    """
    checked_flag("inclusive", inclusive)
    if isinstance(start, MessageId):
        return start.before() if inclusive else start
    if isinstance(start, Mapping):
        places = cast(Places, checked_start(start))
        return {n: one.before() for n, one in places.items()} if inclusive else places
    if start is None or start == "first":
        return None
    if start in ("last", "next"):
        try:
            bounds = service.bounds(topic, isolation=isolation)
        except PartitionNeeded:
            return _place_in_each(service, topic, start, isolation=isolation)
        last = bounds.last if start == "last" else None
        return (last or bounds.next).before()
    if isinstance(start, bool) or not isinstance(start, int):
        raise BadRequest(
            f"start is a MessageId, a time in ms, None, 'first', 'last' or 'next', "
            f"not {start!r}"
        )
    time_ms = cast(int, checked_start(start))
    return MessageId.of(time_ms).before() if time_ms else None


def _place_in_each(
    service: MessagingService, topic: str, start: StartAt, *, isolation: Isolation
) -> Places:
    """Returns the place of a word in each partition of a topic."""
    names = partition_names(service, topic)
    return {
        number: cast(MessageId, place_of(service, name, start, isolation=isolation))
        for number, name in names.items()
    }


def partition_names(service: MessagingService, topic: str) -> dict[int, str]:
    """Returns the names of the partitions that a topic has now, by their numbers."""
    count = service.topic(topic).partitions
    return {number: partition_name(topic, number) for number in range(count)}


def moved_places(
    saved: Position | None, position: Position | None
) -> dict[int, MessageId]:
    """Returns the partitions whose place is another than the saved one."""
    if not isinstance(position, dict):
        return {}
    before = saved if isinstance(saved, dict) else {}
    return {
        number: place
        for number, place in position.items()
        if before.get(number, BEGINNING) != place
    }


def place_in_partition(position: Position | None, number: int) -> MessageId:
    """Returns the place in one partition; a new one begins at its beginning."""
    if isinstance(position, dict):
        return position.get(number, BEGINNING)
    return BEGINNING if position is None else position


def of_one(position: Position | None, topic: str) -> MessageId | None:
    """Returns the place in a topic of one partition, or in a named one."""
    if isinstance(position, dict):
        raise PartitionNeeded(
            f"topic {topic} has several partitions; name one of them here, as "
            f"{partition_name(topic, 0)}"
        )
    return position
