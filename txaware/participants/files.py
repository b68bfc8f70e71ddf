"""Files of a directory that change together with the messages, or not at all."""

import logging
import threading
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Self
from weakref import WeakValueDictionary

from coordinator.context import TransactionContext, current_transaction
from coordinator.fork_guard import guard
from coordinator.interfaces import Coordinator
from coordinator.joining import JoinsByItself
from coordinator.optional_ports import life_of, outcome_of, way_to_decide
from coordinator.outcome import Outcome
from coordinator.participants import raise_first
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    NotApplied,
    TransactionConflict,
    TransactionOutcomeUnknown,
    TransactionRefused,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.messaging.messaging import checked_messaging
from txaware.participants.file_changes import FileChanges
from txaware.participants.file_intents import FileIntents
from txaware.participants.file_places import Changes, FilePlaces

log = logging.getLogger(__name__)


def files(
    messaging: Messaging, directory: str | Path, *, name: str | None = None
) -> "Files":
    """Opens a directory whose files change in transactions; ends what a crash left.

    It is registered as a keeper under `name`, by default one with its path, so that the
    outcome of what a crash leaves there is not forgotten. One process at a time has it
    open; `close` gives it back. Committed files that cannot be put in place are told to
    the log, and wait until `recover` or `skip` ends them; all others can be used.
    """
    checked_messaging(messaging, taker="participants.files")
    if not isinstance(directory, str | Path):
        raise BadRequest(f"a directory is a str or a Path, not {directory!r:.100}")
    path = Path(directory).absolute()
    try:
        opened = Files(messaging.coordinator, path, name=name)
    except (NotADirectoryError, FileExistsError) as error:
        raise BadRequest(f"{path} is no directory: {error.strerror}") from error
    try:
        messaging.register_keeper(opened)
        try:
            opened.recover()
        except NotApplied as error:
            log.error("%s", "; ".join([str(error), *getattr(error, "__notes__", [])]))
    except BaseException:
        opened.close()
        raise
    return opened


class Files(JoinsByItself):
    """A directory whose files change in the open transaction of this thread or task.

    A file is written aside, renamed once the transaction has committed, and is then
    there whole. Other programs just read the files. Two transactions that change one
    file at the same time conflict, and two of which one changes a file and the other
    one a file above or below it. Any number of threads may share it.
    """

    def __init__(
        self, coordinator: Coordinator, directory: Path, *, name: str | None = None
    ) -> None:
        self.directory = directory
        self.transaction_aware_name = name or f"files {directory}"
        self._coordinator = coordinator
        self._intents = FileIntents(directory)
        self._places = FilePlaces(directory)
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
        self._changes("write").write(self._places.checked_name(name), pieces)

    def delete(self, name: str | PurePath) -> None:
        """Removes a file; one that is not there stays so."""
        self._changes("delete").delete(self._places.checked_name(name))

    def read(self, name: str | PurePath) -> bytes | None:
        """Returns a file as the open transaction wrote it, or as it is; None without.

        A file has no versions: what others have committed meanwhile is seen.
        """
        checked = self._places.checked_name(name)
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
            except (IsADirectoryError, NotADirectoryError):
                self._places.require(checked, writes=False)
                raise

    def recover(self) -> list[int]:
        """Ends what a crash, or an unknown outcome, left; returns what is still open.

        It does so by itself when it is opened. Raises `TransactionOutcomeUnknown` where
        nobody can tell any more whether a transaction committed, and `NotApplied` where
        committed files cannot be put in place; all others have ended then.
        """
        return self._end_all(put_by=None)

    def skip(self) -> list[str]:
        """Ends what `recover` cannot, without doing it; returns where it is put by.

        Each is a file that names what was to be done with which files. What was to be
        written lies beside it, until that file is removed and the directory is opened.
        """
        put_by: list[str] = []
        self._end_all(put_by=put_by)
        return put_by

    def _end_all(self, *, put_by: list[str] | None) -> list[int]:
        unknown: list[BaseException] = []
        waiting: list[BaseException] = []
        with self._lock:
            for pointer in sorted(self._pending):
                try:
                    self._end(pointer)
                except (NotApplied, TransactionOutcomeUnknown) as error:
                    if put_by is not None:
                        put_by.append(str(self._intents.skip(pointer)))
                        self._pending.pop(pointer, None)
                        continue
                    rest = waiting if isinstance(error, NotApplied) else unknown
                    rest.append(error)
            if unknown or waiting:
                raise_first([*unknown, *waiting], "all others have ended")
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
            places=self._places,
            opened=self._open,
            pending=self._pending,
            claim=self._claim,
            apply=self._apply,
        )

    def _claim(self, pointer: int, changes: Changes) -> None:
        """Notes what a transaction is about to do, if nothing is in its way.

        What was in its way when it began to write was refused then, so what is in its
        way now has come meanwhile.
        """
        with self._lock:
            self._places.require_apart(changes)
            for other in sorted(self._pending):
                if other != pointer:
                    self._require_way(other, changes)
            try:
                for name, aside in changes.items():
                    self._places.require(name, writes=aside is not None)
            except BadRequest as error:
                raise TransactionConflict(
                    f"somebody else changed what is there since transaction {pointer} "
                    f"began: {error}"
                ) from error
            self._intents.lives[pointer] = life_of(self._coordinator, pointer)
            self._pending[pointer] = changes

    def _outcome(self, pointer: int) -> Outcome:
        life = self._intents.lives.get(pointer, "")
        return outcome_of(self._coordinator, pointer, life=life)

    def _require_way(self, other: int, changes: Changes) -> None:
        """Refuses changes that an intent of another transaction is in the way of."""
        others = self._pending.get(other, {})
        clash = next(self._places.clashes(changes, others), None)
        if clash is None and changes.keys().isdisjoint(others):
            return
        outcome = self._outcome(other)
        if outcome is Outcome.COMMITTED:
            try:
                self._do(other)
            except NotApplied as error:
                if self._is_held_up(changes, self._pending.get(other, {})):
                    raise TransactionRefused(
                        f"other files are in the way: {error}"
                    ) from error
        elif clash is not None and outcome is not Outcome.ROLLED_BACK:
            raise TransactionConflict(
                f"{clash[0]!r} is in the way of {clash[1]!r}, which transaction "
                f"{other} changes, and that has not ended"
            )

    def _is_held_up(self, changes: Changes, left: Changes) -> bool:
        """Tells whether changes wait for what is left of others.

        They may remove what is in the way of those.
        """
        clashing = [name for name, _ in self._places.clashes(changes, left)]
        return not changes.keys().isdisjoint(left) or any(
            changes[name] is not None for name in clashing
        )

    def _apply(self, pointer: int) -> None:
        """Does the changes of a transaction that has committed, after older ones."""
        with self._lock:
            if pointer in self._pending:  # else a reader, or a later one, has done it
                self._do(pointer)

    def _do(self, pointer: int) -> None:
        """Does what one has committed, after all older ones of the same files.

        Those who change one file commit in the order in which they began.
        """
        changes = self._pending[pointer]
        self._settle(changes, but=pointer, before=pointer)
        failed = self._intents.apply(pointer, changes)
        if not failed:
            self._pending.pop(pointer, None)
            return
        self._pending[pointer] = {name: changes[name] for name in failed}
        name, why = next(iter(failed.items()))
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise NotApplied(
            f"transaction {pointer} has committed, and its file {name!r}{more} cannot "
            f"be put in place: {why.strerror}. Mend that, and it is done at the next "
            f"use; or give it up by txaware participant recover {self.directory} "
            f"--skip. {self._intents.path_text(pointer)} says what was to be done"
        ) from why

    def _settle(
        self,
        names: Iterable[str],
        *,
        but: int | None,
        before: int | None = None,
    ) -> None:
        """Does what has committed and is not done yet, where it is of these files."""
        wanted = set(names)
        for pointer in sorted(self._pending):
            if before is not None and pointer >= before:
                return
            if pointer == but or wanted.isdisjoint(self._pending.get(pointer, {})):
                continue
            if self._outcome(pointer) is Outcome.COMMITTED:
                try:
                    self._do(pointer)
                except NotApplied:
                    if not wanted.isdisjoint(self._pending[pointer]):
                        raise

    def _end(self, pointer: int) -> None:
        outcome = self._outcome(pointer)
        changes = self._pending.get(pointer)
        if changes is None:
            return  # its own thread has ended it meanwhile
        if outcome is Outcome.FORGOTTEN:
            life = self._intents.lives.get(pointer, "")
            way = way_to_decide(self._coordinator, pointer, life=life)
            raise TransactionOutcomeUnknown(
                f"nobody knows whether transaction {pointer} has committed: look at "
                f"{self._intents.path_text(pointer)}, which says what it was about to "
                f"do. {way}give it up by txaware participant recover "
                f"{self.directory} --skip. Nothing was changed"
            )
        if outcome is Outcome.COMMITTED:
            self._do(pointer)
        elif outcome is Outcome.ROLLED_BACK:
            self._intents.drop(pointer, changes)
            self._pending.pop(pointer, None)
