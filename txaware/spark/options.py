"""The options of `spark.read`, `readStream`, `write` and `writeStream`, checked."""

import difflib
from collections.abc import Mapping
from pathlib import Path

import attrs

from txaware.auth import read_token
from txaware.errors import BadRequest
from txaware.spark.addresses import Address

ADDRESS = ("url", "coordinator", "token", "token_file")
READING = ("topic", "topics", "topic_pattern", "start", "end", "isolation", "pushdown")
PARTS = ("part_bytes", "max_messages", "max_bytes")
WRITING = ("topic", "timeout_s", "save_id")
MOST_DIGITS = 18
KNOWN = tuple(dict.fromkeys((*ADDRESS, *READING, *PARTS, *WRITING)))


@attrs.frozen
class Options:
    """What somebody wrote with `.option(name, value)`; Spark makes names lower-case."""

    _texts: Mapping[str, str] = attrs.field(repr=False)  # there may be a token

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Options":
        """Refuses what is nearly the name of an option; Spark adds some of its own."""
        texts = {name.lower(): str(value) for name, value in options.items()}
        for name in texts:
            if name in KNOWN:
                continue
            close = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.8)
            if close:
                raise BadRequest(f"there is no option {name}; {close[0]} is one")
        return cls(texts)

    def text(self, name: str) -> str | None:
        """The text of an option; None where it was not given, or is empty."""
        return self._texts.get(name) or None

    def number(self, name: str) -> int | None:
        """A whole number above 0."""
        text = self.text(name)
        if text is None:
            return None
        if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < 1:
            raise BadRequest(f"{name} is a whole number above 0, not {text!r}")
        return int(text)

    def seconds(self, name: str) -> float | None:
        """A number of seconds above 0."""
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
        """`true` or `false`, which is the default."""
        text = (self.text(name) or "false").lower()
        if text not in ("true", "false"):
            raise BadRequest(f"{name} is true or false, not {text!r}")
        return text == "true"

    def one_of(self, name: str, *words: str) -> str:
        """One of these words, by default the first."""
        text = self.text(name) or words[0]
        if text not in words:
            raise BadRequest(f"{name} is {' or '.join(words)}, not {text!r}")
        return text

    def address(self) -> Address:
        """Where the data is; the token may stand in a file."""
        url = self.text("url")
        if url is None:
            raise BadRequest(
                "option url is missing: http://HOST:PORT, or leveldb:PATH of a "
                "directory that is served"
            )
        return Address(url, self.text("coordinator"), self._token())

    def _token(self) -> str | None:
        file = self.text("token_file")
        if file is None:
            return self.text("token")
        return read_token(Path(file))
