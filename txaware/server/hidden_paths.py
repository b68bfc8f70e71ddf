"""Paths of this machine, and sentences that do not tell them."""

import re
from pathlib import Path
from typing import Self

import attrs

# A path of two names or more that is not part of a URL.
_PATH = re.compile(r"(?<![\w/:.~])~?(?:/[^\s/:'\",;()\\]+){2,}/?")


@attrs.frozen
class HiddenPaths:
    """Takes paths out of what callers are told who may not operate the server.

    `directory` is that of the data: its name may have spaces, and be written in more
    than one way. Other paths are found by how they look.
    """

    directory: tuple[str, ...] = ()

    @classmethod
    def of(cls, directory: Path | None) -> Self:
        """Makes one for the data in that directory, or elsewhere."""
        if directory is None:
            return cls()
        names = {str(directory), str(directory.absolute()), str(directory.resolve())}
        # One name without a slash is a word, and tells nobody where it is.
        return cls(tuple(sorted((n for n in names if "/" in n), key=len, reverse=True)))

    def hidden_in(self, text: str) -> str:
        """Returns the same sentence with words in place of paths."""
        for name in self.directory:
            text = text.replace(name, "the data directory")
        return _PATH.sub("a file of the server", text)
