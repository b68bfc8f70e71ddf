"""Where reading begins and ends: what the options say, as ids of a topic."""

from txaware.messages import Bounds, MessageId
from txaware.requests import parsed_start

FIRST, NEXT = "first", "next"


def place(text: str | None, bounds: Bounds, *, default: str) -> MessageId:
    """An id, a time (ISO, or ms since 1970), `first` or `next` (behind the last)."""
    text = default if text is None else text
    if text == FIRST:
        return bounds.first or bounds.next
    if text == NEXT:
        return bounds.next
    found = parsed_start(text, words="first and next")
    return found if isinstance(found, MessageId) else MessageId.of(found)
