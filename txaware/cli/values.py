"""What can be written on the command line: durations, places in a topic, properties."""

import re
from datetime import UTC, datetime
from typing import cast

import click

from txaware.errors import BadRequest
from txaware.messages import ID_BYTES, MessageId

Start = MessageId | int | str
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)")
_WORDS = ("first", "last", "next")


class Duration(click.ParamType):
    """Seconds, or a number with a unit: `90`, `15m`, `12h`, `7d`, `2w`."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """In seconds, whole ones as an int."""
        if isinstance(value, int | float):
            return value
        found = _DURATION.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no duration; 90, 15m, 12h and 7d are", param, ctx)
        seconds = float(found[1]) * UNITS_S[found[2] or "s"]
        return int(seconds) if seconds.is_integer() else seconds


class Place(click.ParamType):
    """Where to start in a topic: an id, a time in ms or ISO, first, last or next."""

    name = "place"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Start:
        """An id, a time in ms, or one of the words."""
        text = str(value).strip()
        if isinstance(value, MessageId | int) or text in _WORDS:
            return cast(Start, value)
        try:
            if len(text) == 2 * ID_BYTES:
                return MessageId.parse(text)
            return int(text) if text.isdecimal() else time_ms(text)
        except (BadRequest, ValueError):
            self.fail(
                f"{text!r} is no place in a topic; an id of 40 hex digits, a time "
                f"(2026-01-31T12:00:00Z, or ms since 1970), first, last and next are",
                param,
                ctx,
            )


def time_ms(text: str) -> int:
    """An ISO time in ms since the epoch; UTC where it names no zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)


class KeyValue(click.ParamType):
    """One `NAME=VALUE`."""

    name = "name=value"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The name and the value."""
        if isinstance(value, tuple):
            return cast(tuple[str, str], value)
        key, equals, text = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return key, text
