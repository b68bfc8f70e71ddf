"""The places in a topic where a consumer may start, and the place where it stands."""

from typing import Literal, Protocol

from txaware.errors import BadRequest
from txaware.model.interfaces import COMMITTED, Isolation, MessagingService
from txaware.model.messages import ID_BYTES, MessageId

# An id, a time in ms, None for the beginning, or a word for what the topic has at that
# moment: its first message, its last one, or what is published from then on. For a
# committed reader that is its last committed one, or what is decided from then on.
StartAt = MessageId | int | Literal["first", "last", "next"] | None

# The id after which everything comes.
BEGINNING = MessageId(ID_BYTES)


class ReadPlace(Protocol):
    """A position that can be read and moved.

    A position is always exclusive: everything up to it is done. None is the beginning,
    as long as nobody has moved it.
    """

    @property
    def position(self) -> MessageId | None:
        """The message after which to go on."""

    def move(self, position: MessageId) -> None:
        """Goes on from a position."""


def place_of(
    service: MessagingService,
    topic: str,
    start: StartAt,
    *,
    inclusive: bool = True,
    isolation: Isolation = COMMITTED,
) -> MessageId | None:
    """Returns the position of a consumer that begins at `start`.

    `inclusive` matters for ids only, as in `poll`, and `isolation` for words only.
    """
    if isinstance(start, MessageId):
        return start.before() if inclusive else start
    if start is None or start == "first":
        return None
    if start == "last":
        bounds = service.bounds(topic, isolation=isolation)
        return (bounds.last or bounds.next).before()
    if start == "next":
        return service.bounds(topic, isolation=isolation).next.before()
    if isinstance(start, bool) or not isinstance(start, int):
        raise BadRequest(
            f"start is a MessageId, a time in ms, None, 'first', 'last' or 'next', "
            f"not {start!r}"
        )
    return MessageId.of(start).before() if start else None
