"""Where files of a directory may be put, and which are in each other's way.

A file cannot be where a directory is, nor below another file. So a path stands in the
way of its parents and of its children, and of another name of itself (by a link).
"""

import errno
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath

from txaware.errors import BadRequest

# What a file is written to before it is renamed, and the intents.
PLACE = ".txaware"
LONGEST_PART_BYTES = 255
LONGEST_PATH_BYTES = 4095

# By name of the file: what waits for it in `.txaware`; None where it is removed.
Changes = Mapping[str, str | None]


class FilePlaces:
    """The paths below a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._place = directory / PLACE

    def checked_name(self, name: object) -> str:
        """Returns the path below the directory; `BadRequest` for what is none."""
        if not isinstance(name, str | PurePath):
            raise BadRequest(f"a file is named by a str or a path, not {name!r:.100}")
        path = PurePath(name)
        try:
            parts = [os.fsencode(part) for part in path.parts]
            whole = os.fsencode(self._directory / path)
        except UnicodeEncodeError as error:
            raise BadRequest(
                f"{str(name)!r:.300} is no name of a file: half a character"
            ) from error
        wrong = (
            not parts
            or path.is_absolute()
            or ".." in path.parts
            or path.parts[0] == PLACE
            or b"\0" in whole
        )
        if wrong:
            raise BadRequest(
                f"{str(name)!r:.300} is no name of a file below the directory"
            )
        longest = max(map(len, parts))
        if longest > LONGEST_PART_BYTES or len(whole) > LONGEST_PATH_BYTES:
            raise BadRequest(
                f"{str(name)!r:.300} is too long for the name of a file: a part of it "
                f"has at most {LONGEST_PART_BYTES} bytes, and with {self._directory} "
                f"it has at most {LONGEST_PATH_BYTES}"
            )
        return path.as_posix()

    def require(self, name: str, *, writes: bool) -> None:
        """Raises `BadRequest` where no file of that name can be put, or removed."""
        target = self._directory / name
        try:
            self._require(target, writes=writes)
        except OSError as error:
            raise BadRequest(f"{target} cannot be a file: {error.strerror}") from error

    def _require(self, target: Path, *, writes: bool) -> None:
        above = next(one for one in target.parents if os.path.lexists(one))
        if not above.is_dir():
            kind = "file" if above.exists() else "link to nothing"
            raise BadRequest(f"{above} is a {kind}, so nothing can be below it")
        if target.is_dir():
            raise BadRequest(f"{target} is a directory, and no file")
        real, place = above.resolve(), self._place.resolve()
        if real == place or place in real.parents:
            raise BadRequest(f"{target} is inside of {place}, where files wait")
        if not writes and not os.path.lexists(target):
            return
        if not os.access(above, os.W_OK | os.X_OK):
            raise BadRequest(
                f"this process may not change what is in {above}: give it the right"
            )
        if writes and self._is_on_another_device(above):
            raise BadRequest(
                f"{above} is on another file system than {self._place}, and no file "
                f"is renamed from one to the other: open {above} as files of its own"
            )

    def _is_on_another_device(self, above: Path) -> bool:
        """Tells whether a rename from `.txaware` would have to cross file systems.

        A directory that is mounted twice has one device, but the system refuses to
        rename across it. It says so before it finds that there is nothing to rename.
        """
        if above.stat().st_dev != self._place.stat().st_dev:
            return True
        nothing = f"nothing-{uuid.uuid4().hex}"
        try:
            os.rename(self._place / nothing, above / nothing)
        except OSError as error:
            return error.errno == errno.EXDEV
        return False

    def require_apart(self, changes: Changes) -> None:
        """Raises `BadRequest` where one name of a transaction is in another's way."""
        found: dict[Path, str] = {}
        for name in changes:
            other = found.setdefault(self._real(name), name)
            if other != name:
                raise BadRequest(f"{name!r} and {other!r} are one file")
        for real, name in found.items():
            for above in real.parents:
                if above in found:
                    raise BadRequest(
                        f"{found[above]!r} is a file of this transaction, so {name!r} "
                        f"cannot be below it"
                    )

    def clashes(self, changes: Changes, others: Changes) -> Iterator[tuple[str, str]]:
        """Yields the names that stand in the way of another one of `others`.

        Of two that are the same only the coordinator is asked, by their key.
        """
        mine, theirs = self._by_place(changes), self._by_place(others)
        for real, name in mine.items():
            for place in (real, *real.parents):
                if place in theirs and theirs[place] != name:
                    yield name, theirs[place]
        for real, name in theirs.items():
            for above in real.parents:
                if above in mine:
                    yield mine[above], name

    def _by_place(self, names: Iterable[str]) -> dict[Path, str]:
        return {self._real(name): name for name in names}

    def _real(self, name: str) -> Path:
        target = self._directory / name
        return Path(os.path.realpath(target.parent)) / target.name
