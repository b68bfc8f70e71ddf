"""What transactions are about to do with files, on disk before they commit.

Beside the files is a directory `.txaware`. A file that is written waits there, under a
name of its own. An intent names, for one transaction and its life, which of them go
where and which files are removed.
"""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from coordinator.directory_lock import DirectoryLock
from coordinator.private_directory import make_directory, sync_directory
from txaware.errors import StoreCorrupted
from txaware.participants.file_places import PLACE, Changes

ASIDE, INTENT, PART, SKIPPED = "new-", ".intent", ".part", ".skipped"


class FileIntents:
    """The intents of a directory of files, which one process owns.

    `lives` has, by transaction, the life of the coordinator that its intent names. It
    is empty for one of an earlier version.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lives: dict[int, str] = {}
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
            changes, life = _read(found[transaction_id])
            self.lives[transaction_id] = life
            yield transaction_id, changes

    def save(self, transaction_id: int, changes: Changes) -> None:
        """Writes an intent; it is on disk then, and so is all that it names."""
        for aside in changes.values():
            if aside is not None:
                _sync_file(self.path_of(aside))
        self._write(transaction_id, changes)

    def _write(self, transaction_id: int, changes: Changes) -> None:
        path = self._path(transaction_id)
        part = path.with_suffix(PART)
        intent = {"changes": dict(changes), "life": self.lives.get(transaction_id, "")}
        with part.open("wb") as file:
            file.write(json.dumps(intent).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_directory(self._place)

    def apply(self, transaction_id: int, changes: Changes) -> dict[str, OSError]:
        """Does what an intent says, and removes it; what was done before stays so.

        Returns what cannot be done, with its reason. The intent then names only that,
        so that nothing is done a second time over what others have done meanwhile.
        """
        failed: dict[str, OSError] = {}
        for name, aside in changes.items():
            try:
                self._put(self.directory / name, aside)
            except OSError as error:
                failed[name] = error
        try:
            for parent in {(self.directory / name).parent for name in changes}:
                if parent.is_dir():
                    sync_directory(parent)
            if not failed:
                self._remove(transaction_id)
            elif len(failed) < len(changes):
                self._write(transaction_id, {name: changes[name] for name in failed})
        except OSError as error:  # the intent still names all
            return dict.fromkeys(changes, error)
        return failed

    def _put(self, target: Path, aside: str | None) -> None:
        if aside is None:
            # Where a directory is, or a file above it, there is no file to remove.
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                target.unlink()
        elif self.path_of(aside).exists():  # else it was moved before a crash
            make_directory(target.parent, mode=0o777)
            os.replace(self.path_of(aside), target)

    def skip(self, transaction_id: int) -> Path:
        """Puts an intent by, with all that waits for it; returns where it is now."""
        path = self._path(transaction_id)
        skipped = path.with_suffix(SKIPPED)
        os.replace(path, skipped)
        sync_directory(self._place)
        self.lives.pop(transaction_id, None)
        return skipped

    def drop(self, transaction_id: int, changes: Changes) -> None:
        """Removes an intent, and then what waited for it."""
        self._remove(transaction_id)
        for aside in changes.values():
            if aside is not None:
                self.path_of(aside).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Removes what waits for no intent: its transaction has never committed."""
        skipped = [_read(path)[0] for path in self._place.glob(f"*{SKIPPED}")]
        waiting = [changes for _, changes in self.all()]
        named = {aside for one in (*skipped, *waiting) for aside in one.values()}
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
        self.lives.pop(transaction_id, None)


def _read(path: Path) -> tuple[Changes, str]:
    """Returns what an intent says, and the life of its transaction."""
    try:
        intent = json.loads(path.read_bytes())
        return dict(intent["changes"]), str(intent.get("life", ""))
    except (ValueError, LookupError, TypeError) as error:
        raise StoreCorrupted(f"{path} cannot be read: {error}") from error


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
