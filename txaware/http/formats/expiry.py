"""Messages that expire: seconds in Python, whole milliseconds on the wire."""

import math
from collections.abc import Sequence

from txaware.messages import Outgoing
from txaware.requests import MAX_TIME_MS, Payload


def expiring(payload: bytes, after_ms: int | None) -> Payload:
    """A message as it is published; bytes where it does not expire."""
    return payload if after_ms is None else Outgoing(payload, seconds(after_ms))


def payload_of(message: Payload) -> bytes:
    """The payload of a message to publish."""
    return message.payload if isinstance(message, Outgoing) else message


def expiries(messages: Sequence[Payload]) -> list[int | None] | None:
    """In how many ms each expires, or None where none does."""
    if not any(isinstance(message, Outgoing) for message in messages):
        return None
    after_ms = [_after_ms(message) for message in messages]
    return None if after_ms.count(None) == len(after_ms) else after_ms


def _after_ms(message: Payload) -> int | None:
    after_s = message.expire_after_s if isinstance(message, Outgoing) else None
    return None if after_s is None else max(int(after_s * 1000), 1)


def seconds(time_ms: int) -> float:
    """Seconds that give these ms again when they are multiplied and cut off."""
    time_s = time_ms / 1000
    return time_s if int(time_s * 1000) >= time_ms else math.nextafter(time_s, math.inf)


def milliseconds(time_s: float) -> int:
    """A time to wait, rounded up; below 0 is not at all."""
    return math.ceil(max(0.0, min(time_s, MAX_TIME_MS / 2000)) * 1000)
