"""A disk that is full for a while, below LevelDB."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from txaware.errors import Unavailable
from txaware.store.leveldb_store import Database


class FullDisk:
    """A disk that takes nothing while it is full; the database is opened again then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._made = Database.batch
        self.is_full = False
        self.refused = 0
        disk = self

        def batch(database: Database, number: int) -> Any:
            real = disk._made(database, number)

            def write() -> None:
                if disk.is_full:
                    disk.refused += 1
                    raise OSError(errno.ENOSPC, "No space left on device")
                real.write()

            return SimpleNamespace(put=real.put, delete=real.delete, write=write)

        monkeypatch.setattr(Database, "batch", batch)

    @contextmanager
    def full(self, *, if_so: bool = True) -> Iterator[None]:
        """A block in which the disk is full; what fails for that is left out.

        Just behind it the database may still be being opened.
        """
        self.is_full = if_so
        try:
            with suppress(Unavailable):
                yield
        finally:
            self.is_full = False
