"""Where reading begins and ends: what the options say, as ids of a topic."""

from datetime import UTC, datetime

from txaware.errors import BadRequest
from txaware.messages import ID_BYTES, Bounds, MessageId

FIRST, NEXT = "first", "next"
_GREATEST = 2 ** (8 * ID_BYTES) - 1


def after(message_id: MessageId) -> MessageId:
    """The least id above this one."""
    number = min(int.from_bytes(message_id, "big") + 1, _GREATEST)
    return MessageId(number.to_bytes(ID_BYTES, "big"))


def place(text: str | None, bounds: Bounds, *, default: str) -> MessageId:
    """An id, a time (ISO, or ms since 1970), `first` or `next` (behind the last)."""
    text = default if text is None else text
    if text == FIRST:
        return bounds.first or bounds.next
    if text == NEXT:
        return bounds.next
    try:
        if len(text) == 2 * ID_BYTES:
            return MessageId.parse(text)
        return MessageId.of(int(text) if text.isdecimal() else _time_ms(text))
    except (BadRequest, ValueError, OverflowError) as error:
        raise BadRequest(
            f"{text!r} is no place in a topic; an id of 40 hex digits, a time "
            f"(2026-01-31T12:00:00Z, or ms since 1970), first and next are"
        ) from error


def _time_ms(text: str) -> int:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)
