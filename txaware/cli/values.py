"""Values of the command line: durations, places in a topic, properties."""

import importlib
import os
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from txaware.cli.show import NOTHING
from txaware.errors import BadRequest
from txaware.model.duration import UNITS_S, seconds_of
from txaware.model.requests import MAX_POINTER, parsed_start
from txaware.model.start_places import StartAt
from txaware.model.topics import DEFAULT_NAMESPACE, Topic, TopicName

MOST_INTERVAL_S = 52 * UNITS_S["w"]
WORDS: dict[str, StartAt] = {"first": "first", "last": "last", "next": "next"}

T = TypeVar("T", bound=Callable[..., Any])


def duration(text: str) -> float:
    """Reads seconds, or a number with a unit: `90`, `15m`, `12h`, `7d`, `2w`."""
    try:
        return seconds_of(text)
    except BadRequest as error:
        raise click.BadParameter(str(error)) from error


def imported(target: str, *, what: str) -> object:
    """Imports what is named `module:name`; the module may lie in this directory."""
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise BadRequest(f"{target!r} is not MODULE:{what.upper()}")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise BadRequest(f"there is no module {module_name}, here or installed") from (
            error
        )
    for part in path.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise BadRequest(f"module {module_name} has no {what} {path}")
    return found


def interval(text: str) -> float:
    """Reads how often something is done: a duration above 0, up to a year."""
    seconds = duration(text)
    if not 0 < seconds <= MOST_INTERVAL_S:
        raise click.BadParameter(f"{text!r} is not more than 0 and at most 52w")
    return seconds


def offsets_at(text: str) -> Any:
    """Reads which place in a partition is meant: a word, or a time in ms or ISO."""
    if text in ("first", "last", "stable"):
        return text
    try:
        start = parsed_start(text, words="first, last and stable")
    except BadRequest as error:
        raise click.BadParameter(str(error)) from error
    return start if isinstance(start, int) else text


def place(text: str) -> StartAt:
    """Reads a place in a topic: an id, a time in ms or ISO, first, last or next."""
    if text in WORDS:
        return WORDS[text]
    try:
        return parsed_start(text, words="first, last and next")
    except BadRequest as error:
        raise click.BadParameter(str(error)) from error


def moment(text: str) -> datetime:
    """Reads a time in ISO with its zone: `2026-12-24T18:00+01:00`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise click.BadParameter(
            f"{text!r} is no time with a zone, such as 2026-12-24T18:00+01:00"
        )
    return found


def pointer(text: str) -> int:
    """Reads the id of a transaction."""
    if not text.isdecimal() or not 0 < int(text) <= MAX_POINTER:
        raise click.BadParameter(
            f"{text!r} is no transaction; txaware transaction list shows their ids"
        )
    return int(text)


def pair(text: str) -> tuple[str, str]:
    """Reads one `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value


namespace_option = click.option(
    "--namespace",
    help="The namespace of names without one; as `namespace:name`.",
    default=DEFAULT_NAMESPACE,
    show_default=True,
)
exist_ok_option = click.option(
    "--exist-ok",
    is_flag=True,
    help="Take one that exists, if it is as the options say.",
)
to_option = click.option(
    "--to",
    "start",
    type=place,
    required=True,
    metavar="PLACE",
    help="What it reads next: first, last, next, an id, a time in ms or ISO.",
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line."
)


def limit_option(what: str, default: int) -> Callable[[T], T]:
    """Returns the option that bounds how many of something are shown."""
    return click.option(
        "--limit",
        "-n",
        type=click.IntRange(min=1),
        default=default,
        show_default=True,
        help=f"At most so many {what}.",
    )


def is_sure(question: str, *, yes: bool) -> bool:
    """Asks on a terminal, unless `yes` was said; elsewhere nobody could answer."""
    return yes or not sys.stdin.isatty() or click.confirm(question)


def full_name(name: str, namespace: str) -> str:
    """Returns a name with a namespace, if it names none."""
    return name if ":" in name else str(TopicName(name, namespace))


def topic_json(topic: Topic) -> dict[str, object]:
    """Returns a topic as `--json` prints it."""
    return {
        "topic": str(topic.topic),
        "generation": topic.generation,
        "ttl_s": topic.ttl_s,
        "properties": dict(topic.properties),
    }


def properties_text(topic: Topic) -> str:
    """Formats `a=1, b=2`."""
    pairs = sorted(topic.properties.items())
    return ", ".join(f"{key}={value}" for key, value in pairs) or NOTHING
