"""The options of `spark.read`, `readStream`, `write` and `writeStream`, checked."""

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import attrs

from txaware.auth import read_token
from txaware.errors import BadRequest
from txaware.spark.addresses import StoreAddress

ADDRESS = ("url", "coordinator", "token", "token_file")
_WHAT = ("topic", "topics", "topic_pattern", "start", "end", "isolation", "part_bytes")
OF_TOPICS = (*_WHAT, "pushdown")
READ, READ_STREAM, WRITE, WRITE_STREAM = "read", "readStream", "write", "writeStream"
# The options of each of the four.
USES: Mapping[str, tuple[str, ...]] = {
    READ: (*ADDRESS, *OF_TOPICS, "queue", "max_messages"),
    READ_STREAM: (*ADDRESS, *_WHAT, "max_messages", "max_bytes"),
    WRITE: (*ADDRESS, "topic", "queue", "timeout_s", "save_id", "repeat_by"),
    WRITE_STREAM: (*ADDRESS, "topic", "queue", "timeout_s", "name", "repeat_by"),
}
# Spark's own options, which it hands on to every source.
SPARKS = ("path", "checkpointlocation", "queryname")
MOST_DIGITS = 18
# A batch that comes again is known by its number and its rows, or by its number alone,
# if the same data gives other rows each time.
RepeatBy = Literal["rows", "number"]


@attrs.frozen
class Options:
    """The options set with `.option(name, value)`; Spark makes names lower-case."""

    _texts: Mapping[str, str] = attrs.field(repr=False)  # there may be a token

    @classmethod
    def of(cls, options: Mapping[str, str], use: str | None = None) -> "Options":
        """Refuses options that the use, one of the four, does not have; None has all.

        An option that nobody reads would be one that a user relies on in vain.
        """
        texts = {name.lower(): str(value) for name, value in options.items()}
        if use is not None:
            for name in texts:
                _check_name(name, use)
                if not texts[name] and name not in ADDRESS:
                    raise BadRequest(f"option {name} is empty")
            if use == READ and "max_messages" in texts and "queue" not in texts:
                raise BadRequest(
                    "option max_messages is for a queue, or for readStream"
                )
            _check_path(texts, use)
        return cls(texts)

    def text(self, name: str) -> str | None:
        """Returns the text of an option; None if it was not given, or is empty."""
        return self._texts.get(name) or None

    def number(self, name: str) -> int | None:
        """Reads a whole number above 0."""
        text = self.text(name)
        if text is None:
            return None
        if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < 1:
            raise BadRequest(f"{name} is a whole number above 0, not {text!r}")
        return int(text)

    def seconds(self, name: str) -> float | None:
        """Reads a number of seconds above 0."""
        text = self.text(name)
        if text is None:
            return None
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0
        if not seconds > 0:
            raise BadRequest(f"{name} is a number of seconds above 0, not {text!r}")
        return seconds

    def is_on(self, name: str) -> bool:
        """Reads `true` or `false`, which is the default."""
        text = (self.text(name) or "false").lower()
        if text not in ("true", "false"):
            raise BadRequest(f"{name} is true or false, not {text!r}")
        return text == "true"

    def one_of(self, name: str, *words: str) -> str:
        """Reads one of these words, by default the first."""
        text = self.text(name) or words[0]
        if text not in words:
            raise BadRequest(f"{name} is {' or '.join(words)}, not {text!r}")
        return text

    def repeat_by(self) -> RepeatBy:
        """Reads the rule by which a repeated batch or save is known."""
        return checked_repeat_by(self.text("repeat_by") or "rows")

    def address(self) -> StoreAddress:
        """Reads the address of the data; the token may be in a file."""
        url = self.text("url")
        if url is None:
            raise BadRequest(
                "option url is missing: http://HOST:PORT, or leveldb:PATH of a "
                "directory that is served"
            )
        return StoreAddress(url, self.text("coordinator"), self._token())

    def _token(self) -> str | None:
        file = self.text("token_file")
        if file is None:
            return self.text("token")
        return read_token(Path(file))


def _check_path(texts: Mapping[str, str], use: str) -> None:
    """Refuses `load("orders")`; tables of Spark's catalog have a directory there."""
    path = texts.get("path")
    named = ("topic", "topics", "topic_pattern", "queue")
    has_topics = any(name in texts for name in named)
    if path is None or ("/" in path and (has_topics or use.startswith(WRITE))):
        return
    verb = {WRITE: "save", WRITE_STREAM: "start"}.get(use, "load")
    raise BadRequest(
        f"{verb}({path!r}) names a path, and topics have none: "
        f'.option("topic", {json.dumps(path)}).{verb}() names a topic'
    )


def checked_repeat_by(text: str) -> RepeatBy:
    """Refuses anything but the two words."""
    if text == "rows":
        return "rows"
    if text == "number":
        return "number"
    raise BadRequest(f"repeat_by is rows or number, not {text!r}")


def _check_name(name: str, use: str) -> None:
    known = USES[use]
    if name in known or name in SPARKS:
        return
    elsewhere = [each for each, names in USES.items() if name in names]
    if elsewhere:
        raise BadRequest(f"option {name} is for {', '.join(elsewhere)}, not for {use}")
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    hint = f"{close[0]} is one" if close else f"{use} has {', '.join(known)}"
    raise BadRequest(f"there is no option {name}; {hint}")
