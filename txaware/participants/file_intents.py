"""What transactions are about to do with files, on disk before they commit.

Beside the files is a directory `.txaware`. A file that is written waits there, under a
name of its own. An intent names, for one transaction, which of them go where and which
files are removed.
"""

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from coordinator.directory_lock import DirectoryLock
from coordinator.durable_names import make_directory, sync_directory
from txaware.errors import StoreCorrupted

PLACE = ".txaware"
ASIDE, INTENT, PART = "new-", ".intent", ".part"

# By name of the file: what waits for it in `.txaware`; None where it is removed.
Changes = Mapping[str, str | None]


class FileIntents:
    """The intents of a directory of files, which one process owns."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._place = directory / PLACE
        self._lock = DirectoryLock(self._place)

    def new_aside(self) -> str:
        """Returns a name that no file has."""
        return f"{ASIDE}{uuid.uuid4().hex}"

    def path_of(self, aside: str) -> Path:
        """Returns where a file waits."""
        return self._place / aside

    def all(self) -> Iterator[tuple[int, Changes]]:
        """Reads all intents, in the order of their transactions."""
        found = {int(path.stem): path for path in self._place.glob(f"*{INTENT}")}
        for transaction_id in sorted(found):
            path = found[transaction_id]
            try:
                changes: Changes = dict(json.loads(path.read_bytes())["changes"])
            except (ValueError, LookupError, TypeError) as error:
                raise StoreCorrupted(f"{path} cannot be read: {error}") from error
            yield transaction_id, changes

    def save(self, transaction_id: int, changes: Changes) -> None:
        """Writes an intent; it is on disk then, and so is all that it names."""
        for aside in changes.values():
            if aside is not None:
                _sync_file(self.path_of(aside))
        path = self._path(transaction_id)
        part = path.with_suffix(PART)
        with part.open("wb") as file:
            file.write(json.dumps({"changes": dict(changes)}).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_directory(self._place)

    def apply(self, transaction_id: int, changes: Changes) -> None:
        """Does what an intent says, and removes it; what was done before stays so."""
        for name, aside in changes.items():
            target = self.directory / name
            if aside is None:
                target.unlink(missing_ok=True)
            elif self.path_of(aside).exists():  # else it was moved before a crash
                make_directory(target.parent, mode=0o777)
                os.replace(self.path_of(aside), target)
        for parent in {(self.directory / name).parent for name in changes}:
            if parent.exists():
                sync_directory(parent)
        self._remove(transaction_id)

    def drop(self, transaction_id: int, changes: Changes) -> None:
        """Removes an intent, and then what waited for it."""
        self._remove(transaction_id)
        for aside in changes.values():
            if aside is not None:
                self.path_of(aside).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Removes what waits for no intent: its transaction has never committed."""
        named = {aside for _, changes in self.all() for aside in changes.values()}
        for path in self._place.iterdir():
            left = path.name.startswith(ASIDE) and path.name not in named
            if left or path.suffix == PART:
                path.unlink()

    def path_text(self, transaction_id: int) -> str:
        """Returns where an intent is, for somebody who has to look at it."""
        return str(self._path(transaction_id))

    def close(self) -> None:
        """Gives the directory back."""
        self._lock.release()

    def _path(self, transaction_id: int) -> Path:
        return self._place / f"{transaction_id}{INTENT}"

    def _remove(self, transaction_id: int) -> None:
        with suppress(FileNotFoundError):
            self._path(transaction_id).unlink()
            sync_directory(self._place)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
