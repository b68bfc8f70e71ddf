"""A disk in memory that can fail, and tells what it may look like after a crash."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import attrs

from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.file_journal import FileJournal
from tests.support.doubles import Clock


class Crash(OSError):
    """The machine stops here."""


@attrs.define(eq=False)
class Content:
    """A file: what was written, and how much of it a sync has put on disk."""

    data: bytearray = attrs.field(factory=bytearray)
    synced: bytes = b""


class FakeFile:
    """An open file of a fake disk."""

    def __init__(self, disk: "FakeDisk", content: Content) -> None:
        self._disk, self._content = disk, content

    def read(self) -> bytes:
        return bytes(self._content.data)

    def append(self, data: bytes) -> None:
        self._disk.step("write", lambda part: self._content.data.extend(part), data)
        self._disk.step("sync", lambda _: self._mark_synced())

    def truncate(self, size: int) -> None:
        self._disk.step("truncate", lambda _: self._cut(size))

    def close(self) -> None:
        pass

    def _cut(self, size: int) -> None:
        del self._content.data[size:]
        self._mark_synced()

    def _mark_synced(self) -> None:
        self._content.synced = bytes(self._content.data)


class FakeDisk:
    """Keeps names and contents apart, as a file system does.

    `before` is called with the number and name of every operation; what it raises is
    raised instead of it. `Crash` and "short" writes leave a part behind.
    """

    def __init__(self, names: dict[str, Content] | None = None) -> None:
        self.names = {} if names is None else names
        self.synced_names = dict(self.names)
        self.operations = 0
        self.before: Callable[[int, str], None] = lambda number, name: None

    def path(self, name: str) -> Path:
        return Path("fake") / name

    def open(self, name: str) -> FakeFile:
        return FakeFile(self, self.names.setdefault(name, Content()))

    def exists(self, name: str) -> bool:
        return name in self.names

    def remove(self, name: str) -> None:
        self.names.pop(name, None)

    def replace(self, name: str, new: str) -> None:
        self.step("replace", lambda _: self._replace(name, new))

    def sync_names(self) -> None:
        self.step("sync_names", lambda _: self._mark_names_synced())

    def step(
        self, name: str, effect: Callable[[bytes], object], data: bytes = b""
    ) -> None:
        """One operation; one that fails may leave half of what it writes."""
        number, self.operations = self.operations, self.operations + 1
        try:
            self.before(number, name)
        except BaseException:
            if name == "write":
                effect(data[: len(data) // 2])
            raise
        effect(data)

    def after_a_crash(self) -> Iterator["FakeDisk"]:
        """Every disk that may be found: with and without what was not synced."""
        for names in (self.synced_names, self.names):
            for survived in (0.0, 0.3, 0.9, 1.0):
                for hole in (False, True):
                    yield FakeDisk(
                        {
                            name: _survivor(content, survived, hole=hole)
                            for name, content in names.items()
                        }
                    )

    def _replace(self, name: str, new: str) -> None:
        self.names[name] = self.names.pop(new)

    def _mark_names_synced(self) -> None:
        self.synced_names = dict(self.names)


def _survivor(content: Content, survived: float, *, hole: bool) -> Content:
    """The synced part and some of the rest, which a hole may have lost its start of."""
    tail = bytes(content.data[len(content.synced) :])
    tail = tail[: int(len(tail) * survived)]
    if hole:
        tail = bytes(len(tail) // 2) + tail[len(tail) // 2 :]
    kept = content.synced + tail
    return Content(bytearray(kept), kept)


def full_disk() -> OSError:
    """What a write to a full disk raises."""
    return OSError(errno.ENOSPC, "No space left on device")


class Lives:
    """A durable coordinator that can be killed, and begun again on what survived."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.disk = FakeDisk()
        self.settings: dict[str, Any] = {}
        self.now = self.begin()

    def begin(self) -> EmbeddedCoordinator:
        stand_in: Any = self.disk
        journal = FileJournal(stand_in)
        return EmbeddedCoordinator(journal, clock_ms=self.clock, **self.settings)

    def crash(self) -> EmbeddedCoordinator:
        """Only what was synced survives."""
        cast(Any, self.now)._journal.close()
        self.disk = next(self.disk.after_a_crash())
        self.now = self.begin()
        return self.now

    def close(self) -> EmbeddedCoordinator:
        self.now.close()
        self.now = self.begin()
        return self.now

    def fail(self, *names: str) -> None:
        def before(_: int, name: str) -> None:
            if name in names:
                raise full_disk()

        self.disk.before = before

    def mend(self) -> None:
        self.disk.before = lambda number, name: None
