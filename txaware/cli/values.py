"""What can be written on the command line: durations, places in a topic, properties."""

import re

import click

from txaware.consume.start_places import StartAt
from txaware.errors import BadRequest
from txaware.requests import MAX_POINTER, parsed_start

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
        return parsed_start(text, words="first, last and next")
    except BadRequest as error:
        raise click.BadParameter(str(error)) from error


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
