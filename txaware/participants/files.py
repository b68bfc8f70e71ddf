"""Files of a directory that change together with the messages, or not at all."""

import os
import threading
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Self
from weakref import WeakValueDictionary

from coordinator.context import TransactionContext, current_transaction
from coordinator.fork_guard import guard
from coordinator.interfaces import Coordinator
from coordinator.joining import JoinsByItself
from coordinator.outcome import Outcome
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    TransactionOutcomeUnknown,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.participants.file_changes import FileChanges
from txaware.participants.file_intents import PLACE, Changes, FileIntents

LONGEST_PART_BYTES = 255


def files(
    messaging: Messaging, directory: str | Path, *, name: str | None = None
) -> "Files":
    """Opens a directory whose files change in transactions; ends what a crash left.

    It is registered as a keeper under `name`, by default one with its path, so that the
    outcome of what a crash leaves there is not forgotten. One process at a time has it
    open; `close` gives it back.
    """
    opened = Files(messaging.coordinator, Path(directory).absolute(), name=name)
    try:
        messaging.register_keeper(opened)
        opened.recover()
    except BaseException:
        opened.close()
        raise
    return opened


class Files(JoinsByItself):
    """A directory whose files change in the open transaction of this thread or task.

    A file is written aside, renamed once the transaction has committed, and is then
    there whole. Other programs just read the files. Two transactions that change one
    file at the same time conflict. Any number of threads may share it.
    """

    def __init__(
        self, coordinator: Coordinator, directory: Path, *, name: str | None = None
    ) -> None:
        self.directory = directory
        self.transaction_aware_name = name or f"files {directory}"
        self._coordinator = coordinator
        self._intents = FileIntents(directory)
        self._lock = threading.RLock()
        self._closed = False
        self._pending: dict[int, Changes] = {}
        self._open: WeakValueDictionary[int, FileChanges] = WeakValueDictionary()
        try:
            self._intents.sweep()
            self._pending.update(self._intents.all())
        except BaseException:
            self._intents.close()
            raise
        guard(self)

    def write(self, name: str | PurePath, data: bytes | Iterable[bytes]) -> None:
        """Writes a whole file, in place of one that is there; `data` may be pieces."""
        if isinstance(data, str):
            raise BadRequest("a file is written in bytes, and this is a str")
        pieces = [data] if isinstance(data, bytes) else data
        self._changes("write").write(_checked_name(name), pieces)

    def delete(self, name: str | PurePath) -> None:
        """Removes a file; one that is not there stays so."""
        self._changes("delete").delete(_checked_name(name))

    def read(self, name: str | PurePath) -> bytes | None:
        """Returns a file as the open transaction wrote it, or as it is; None without.

        A file has no versions: what others have committed meanwhile is seen.
        """
        checked = _checked_name(name)
        context = current_transaction(self._coordinator)
        own = None if context is None else context.snapshot_for("read").transaction_id
        with self._lock:
            changes = None if own is None else self._open.get(own)
            if changes is not None and checked in changes.changes:
                return changes.read(checked)
            self._settle([checked], but=own)
            try:
                return (self.directory / checked).read_bytes()
            except FileNotFoundError:
                return None

    def recover(self) -> list[int]:
        """Ends what a crash, or an unknown outcome, left; returns what is still open.

        It does so by itself when it is opened. Raises `TransactionOutcomeUnknown` where
        nobody can tell any more whether a transaction committed.
        """
        with self._lock:
            for pointer in sorted(self._pending):
                self._end(pointer)
            return sorted(self._pending)

    def smallest_pointer(self) -> int | None:
        """Returns the least transaction whose files wait for its outcome."""
        return min(list(self._pending), default=None)

    def close(self) -> None:
        """Gives the directory back; the next opening ends what waits there."""
        self._closed = True
        self._intents.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Files {self.directory}, {len(self._pending)} transactions waiting>"

    def _changes(self, call: str) -> FileChanges:
        if self._closed:
            raise Unavailable(f"{self!r} is closed")
        context: TransactionContext | None = current_transaction(self._coordinator)
        if context is None:
            raise MisusedTransaction(
                f"{call}() changes files in a transaction, and none is open here: with "
                f"messaging.transaction(): ..."
            )
        return context.joined(("files", id(self)), self._make)

    def _make(self) -> FileChanges:
        return FileChanges(
            self._intents,
            self.transaction_aware_name,
            opened=self._open,
            pending=self._pending,
            apply=self._apply,
        )

    def _apply(self, pointer: int) -> None:
        """Does the changes of a transaction that has committed, after older ones."""
        with self._lock:
            changes = self._pending.get(pointer)
            if changes is None:
                return  # a reader, or a later transaction, has done it
            self._settle(changes, but=pointer, before=pointer)
            self._intents.apply(pointer, changes)
            self._pending.pop(pointer, None)

    def _settle(
        self,
        names: Iterable[str],
        *,
        but: int | None,
        before: int | None = None,
    ) -> None:
        """Does what has committed and is not done yet, as far as it is of these files.

        Those who change one file commit in the order in which they began.
        """
        asked = set(names)
        for pointer in sorted(self._pending):
            if before is not None and pointer >= before:
                return
            changes = self._pending.get(pointer, {})
            if pointer == but or asked.isdisjoint(changes):
                continue
            if self._coordinator.outcome(pointer) is Outcome.COMMITTED:
                self._intents.apply(pointer, changes)
                self._pending.pop(pointer, None)

    def _end(self, pointer: int) -> None:
        outcome = self._coordinator.outcome(pointer)
        changes = self._pending.get(pointer)
        if changes is None:
            return  # its own thread has ended it meanwhile
        if outcome is Outcome.FORGOTTEN:
            raise TransactionOutcomeUnknown(
                f"nobody knows any more whether transaction {pointer} has committed: "
                f"look at {self._intents.path_text(pointer)}, which says what it was "
                f"about to do; do that or not, and remove it. Nothing was changed"
            )
        if outcome is Outcome.COMMITTED:
            self._intents.apply(pointer, changes)
        elif outcome is Outcome.ROLLED_BACK:
            self._intents.drop(pointer, changes)
        else:
            return
        self._pending.pop(pointer, None)


def _checked_name(name: object) -> str:
    """Returns the path of a file below the directory; `BadRequest` for any other."""
    if not isinstance(name, str | PurePath):
        raise BadRequest(f"a file is named by a str or a path, not {name!r:.100}")
    path = PurePath(name)
    wrong = (
        not path.parts
        or path.is_absolute()
        or ".." in path.parts
        or path.parts[0] == PLACE
        or "\0" in str(path)
        or any(len(os.fsencode(part)) > LONGEST_PART_BYTES for part in path.parts)
    )
    if wrong:
        raise BadRequest(f"{str(name)!r:.300} is no name of a file below the directory")
    return path.as_posix()
