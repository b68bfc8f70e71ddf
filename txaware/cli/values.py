"""What can be written on the command line: durations, places in a topic, properties."""

import re
from datetime import UTC, datetime

import click

from txaware.consume.places import StartAt
from txaware.errors import BadRequest
from txaware.messages import ID_BYTES, MessageId
from txaware.requests import MAX_POINTER

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
WORDS: dict[str, StartAt] = {"first": "first", "last": "last", "next": "next"}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)")


def duration(text: str) -> float:
    """Seconds, or a number with a unit: `90`, `15m`, `12h`, `7d`, `2w`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is no duration; 90, 15m, 12h and 7d are")
    seconds = float(found[1]) * UNITS_S[found[2] or "s"]
    return int(seconds) if seconds.is_integer() else seconds


def place(text: str) -> StartAt:
    """Where to start in a topic: an id, a time in ms or ISO, first, last or next."""
    if text in WORDS:
        return WORDS[text]
    try:
        if len(text) == 2 * ID_BYTES:
            return MessageId.parse(text)
        return int(text) if text.isdecimal() else time_ms(text)
    except (BadRequest, ValueError, OverflowError) as error:
        raise click.BadParameter(
            f"{text!r} is no place in a topic; an id of 40 hex digits, a time "
            f"(2026-01-31T12:00:00Z, or ms since 1970), first, last and next are"
        ) from error


def time_ms(text: str) -> int:
    """An ISO time in ms since the epoch; UTC where it names no zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)


def pointer(text: str) -> int:
    """The id of a transaction."""
    if not text.isdecimal() or not 0 < int(text) <= MAX_POINTER:
        raise click.BadParameter(
            f"{text!r} is no transaction; txaware transactions list shows their ids"
        )
    return int(text)


def pair(text: str) -> tuple[str, str]:
    """One `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value
