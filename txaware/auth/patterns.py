"""Patterns of names, in which each `*` stands for any text, the empty one too."""

import re
from typing import Self

import attrs

from txaware.errors import BadRequest
from txaware.topics import DEFAULT_NAMESPACE

_NAMESPACE = re.compile(r"[A-Za-z0-9_*]+")
_NAMES = {
    "topic": re.compile(r"[A-Za-z0-9_*-]+"),
    "group": re.compile(r"[A-Za-z0-9_.*-]+"),
}


def _single_stars(text: str) -> str:
    return re.sub(r"\*+", "*", text)


@attrs.frozen
class Pattern:
    """Matches in time that grows with the name only, however many stars there are."""

    text: str = attrs.field(converter=_single_stars)

    @property
    def is_everything(self) -> bool:
        """Whether it is but a star."""
        return self.text == "*"

    def matches(self, name: str) -> bool:
        """Whether it stands for this name."""
        first, *middle = self.text.split("*")
        if not middle:
            return name == first
        last = middle.pop()
        at, end = len(first), len(name) - len(last)
        if at > end or not (name.startswith(first) and name.endswith(last)):
            return False
        for part in middle:
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


@attrs.frozen
class NamePattern:
    """A pattern of names in namespaces; `*:*` is all there are."""

    namespace: Pattern
    name: Pattern

    @classmethod
    def parse(cls, text: str, *, of: str) -> Self:
        """Reads `name` or `namespace:name` of a `topic` or `group`.

        Without a namespace it is `default`, as with the names themselves.
        """
        namespace, colon, name = text.rpartition(":")
        if not colon:
            namespace = DEFAULT_NAMESPACE
        if not _NAMESPACE.fullmatch(namespace) or not _NAMES[of].fullmatch(name):
            raise BadRequest(
                f"{text!r:.100} is no pattern of a {of}; `name` and `namespace:name` "
                f"are, with * for any text"
            )
        return cls(Pattern(namespace), Pattern(name))

    @property
    def is_everything(self) -> bool:
        """Whether it is `*:*`."""
        return self.namespace.is_everything and self.name.is_everything

    def matches(self, namespace: str, name: str) -> bool:
        """Whether it stands for this name in this namespace."""
        return self.namespace.matches(namespace) and self.name.matches(name)

    def __str__(self) -> str:
        if self.namespace.text == DEFAULT_NAMESPACE:
            return self.name.text
        return f"{self.namespace.text}:{self.name.text}"
