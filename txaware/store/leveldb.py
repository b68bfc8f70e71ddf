"""The table in LevelDB: a directory, its owner, and the errors of both."""

from pathlib import Path

from coordinator.directory_lock import DirectoryLock
from coordinator.private_directory import tighten_files
from txaware.errors import BadRequest, StoreCorrupted, TxAwareError, Unavailable
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.interfaces import Write
from txaware.model.settings import Settings
from txaware.store.damage import damage_text, is_damage, said
from txaware.store.journaled_table import JournaledTable
from txaware.store.keys import FIRST_PAYLOAD, PAYLOAD, STATE
from txaware.store.leveldb_binding import is_of_leveldb
from txaware.store.leveldb_store import Database, LevelDbView, LogFile, Open, leveldb_at

ROWS = "rows"
MOVED_ROWS = 5000


class LevelDbTable(JournaledTable):
    """A durable table in a directory, which one process owns. Every batch is synced."""

    def __init__(
        self,
        name: str,
        open_database: Open,
        *,
        clock_ms: ClockMs = system_clock_ms,
        sync_limit_bytes: int = 1 << 20,
        lock: DirectoryLock | None = None,
        rows: Path | None = None,
    ) -> None:
        self._lock = lock
        self._rows = rows  # LevelDB's files, which are made private to this user
        self._leveldb = Database(
            name,
            open_database,
            Path(name) / ROWS,
            log=None if rows is None else LogFile(rows),
        )
        super().__init__(
            self._leveldb, clock_ms=clock_ms, sync_limit_bytes=sync_limit_bytes
        )

    @classmethod
    def open(
        cls, directory: str | Path, settings: Settings, *, clock_ms: ClockMs
    ) -> "LevelDbTable":
        """Opens a directory, which no other process may use meanwhile."""
        path = Path(directory).absolute()  # the program may change its directory
        try:
            lock = DirectoryLock(path)
        except (NotADirectoryError, FileExistsError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise BadRequest(f"{path} is no directory: {why}") from error
        except OSError as error:
            raise Unavailable(f"{path} cannot be opened: {error.strerror}") from error
        try:
            return cls(
                str(path),
                leveldb_at(path / ROWS, settings),
                clock_ms=clock_ms,
                sync_limit_bytes=settings.sync_limit_bytes,
                lock=lock,
                rows=path / ROWS,
            )
        except BaseException as error:
            lock.release()
            raise _mapped(path, error) from error

    def _bring_up_to_date(self) -> None:
        """Moves payloads to the keys of today, and removes that of batch numbers."""
        leveldb = self._leveldb
        while rows := leveldb.scan(FIRST_PAYLOAD, limit=MOVED_ROWS):
            moved: list[Write] = [(PAYLOAD + key, value) for key, value in rows]
            self._batches.write(
                [], moved + [(FIRST_PAYLOAD + key, None) for key, _ in rows]
            )
        self._batches.write([], [(STATE + b"batch", None)])

    def _place(self) -> bytes:
        return super()._place() if self._lock is None else self._lock.place

    @property
    def directory(self) -> Path:
        """The directory, which no other process may use meanwhile."""
        return Path(self.name)

    def last_value(self, prefix: bytes, stop: bytes) -> bytes | None:
        """Returns the last value of a prefix; None where a scan has to look."""
        return None if self._held else self._leveldb.last_value(prefix, stop)

    def view(self) -> LevelDbView:
        """Returns a view of the rows on disk now, without those held for a commit."""
        return self._leveldb.view()

    def close(self) -> None:
        """Writes the released rows and gives the directory back."""
        try:
            super().close()
        except Exception:
            self._give_back()
            raise
        self._give_back()  # not when interrupted: the next close finishes it

    def _give_back(self) -> None:
        try:
            if self._rows is not None:
                tighten_files(self._rows)
        finally:
            if self._lock is not None:
                self._lock.release()


def _mapped(path: Path, error: BaseException) -> BaseException:
    """Returns our error for one of LevelDB or the directory when it was opened."""
    if isinstance(error, OSError) and not isinstance(error, TxAwareError):
        return Unavailable(f"{path} cannot be opened: {error.strerror or said(error)}")
    if not is_of_leveldb(error):
        return error
    if is_damage(error):
        text = damage_text(str(path), error)
        return StoreCorrupted(f"{path} cannot be opened: {text}")
    return Unavailable(f"{path} cannot be opened: {said(error)}")
