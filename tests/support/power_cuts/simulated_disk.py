"""A disk that was written to by a recorded program, and what a power cut leaves of it.

What was synced is there. Of what was not, a cut leaves as much as `Survival` says: of
each file any first part of its writes, the last of them torn at any byte or sector, or
with a hole; of each directory any first part of what happened to its names. A sync of a
file says nothing about its name, which is there for sure when its directory was synced.
A rename is one step, also from one directory to another.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from tests.support.power_cuts.recording import (
    CLOSE,
    CUT,
    EXIT,
    MAKE,
    OPEN,
    REMOVE,
    RENAME,
    SYNC,
    SYNCED,
    WRITE,
    Entry,
)

SECTOR_BYTES = 512


@attrs.define(eq=False)
class File:
    """A file: what is on disk for sure, and the writes and cuts since."""

    synced: bytearray = attrs.field(factory=bytearray)
    since: list[tuple[int, bytes | None]] = attrs.field(factory=list)

    def content(self, count: int | None = None) -> bytearray:
        """Returns it with the first so many changes since its last sync."""
        content = bytearray(self.synced)
        for at, data in self.since[:count]:
            _change(content, at, data)
        return content

    def settle(self, count: int) -> None:
        """Notes that the first so many changes are on disk."""
        self.synced, self.since = self.content(count), self.since[count:]


@attrs.frozen(eq=False)
class Renaming:
    """Names of a directory that are set, or removed (None), in one step.

    What is removed because it has `gone` to another directory is removed with that.
    """

    names: dict[str, "Node | None"]
    gone: "tuple[Directory, Renaming] | None" = None


@attrs.define(eq=False)
class Directory:
    """A directory: the names on disk for sure, and what happened to them since."""

    synced: dict[str, "Node"] = attrs.field(factory=dict)
    since: list[Renaming] = attrs.field(factory=list)

    def names(
        self,
        count: int | None = None,
        kept: "Callable[[Directory], int | None]" = lambda directory: None,
    ) -> dict[str, "Node"]:
        """Returns them with the first so many changes since the last sync.

        `kept` says how many changes of another directory there are.
        """
        names: dict[str, Node | None] = dict(self.synced)
        for change in self.since[:count]:
            if change.gone is not None:
                to, arrival = change.gone
                survivors = kept(to)
                if survivors is not None and arrival in to.since[survivors:]:
                    continue
            names.update(change.names)
        return {name: node for name, node in names.items() if node is not None}

    def settle(self, count: int) -> None:
        """Notes that the first so many changes are on disk."""
        for change in self.since[:count]:
            if change.gone is not None and change.gone[1] in change.gone[0].since:
                to, arrival = change.gone
                to.settle(to.since.index(arrival) + 1)
        self.synced, self.since = self.names(count), self.since[count:]


Node = File | Directory


def _change(content: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        del content[at:]
        content.extend(bytes(at - len(content)))
        return
    content.extend(bytes(max(0, at - len(content))))
    content[at : at + len(data)] = data


class Survival:
    """Says how much of what was not synced is there after a cut: by chance."""

    def __init__(self, chance: random.Random, *, files: str, names: str) -> None:
        self._chance, self.files, self._names = chance, files, names
        self._kept: dict[int, int] = {}

    def __str__(self) -> str:
        return f"files: {self.files}, names: {self._names}"

    def names(self, directory: Directory) -> dict[str, Node]:
        """Returns the names of a directory."""
        return directory.names(self._count(directory), self._count)

    def content(self, file: File) -> bytes:
        """Returns the content of a file."""
        count = self._part(self.files, len(file.since))
        content = file.content(count)
        if count == len(file.since) or self.files not in ("torn", "hole"):
            return bytes(content)
        at, data = file.since[count]
        if data:
            cut = self._chance.randrange(len(data) + 1)
            if self._chance.random() < 0.5:  # at the end of a sector
                cut = min(len(data), max(0, cut - (at + cut) % SECTOR_BYTES))
            _change(content, at, data[:cut])
            if self.files == "hole":  # the sectors of one write come in any order
                _change(content, at, bytes(cut) + data[cut:])
        return bytes(content)

    def _count(self, directory: Directory) -> int:
        """Returns how many of a directory's changes survive, always the same."""
        if id(directory) not in self._kept:
            count = self._part(self._names, len(directory.since))
            self._kept[id(directory)] = count
        return self._kept[id(directory)]

    def _part(self, how: str, count: int) -> int:
        if how == "none":
            return 0
        if how == "all":
            return count
        return self._chance.randint(0, count)


class SimulatedDisk:
    """The files below a directory, brought up to date entry by entry of a record."""

    def __init__(self, below: Path, before: Path | None = None) -> None:
        """`before` is a copy of what was there, if the program has changed it since."""
        self._below = below
        self.root = _read(before or below)
        self._open: dict[int, Node | None] = {}
        self._syncs: dict[int, tuple[Node, int]] = {}

    def apply(self, entry: Entry) -> None:
        """Does what the program did."""
        steps: dict[str, Callable[[Entry], Any]] = {
            OPEN: self._opened,
            WRITE: lambda entry: self._written(entry, entry.data),
            CUT: lambda entry: self._written(entry, None),
            CLOSE: lambda entry: self._open.pop(entry.fd),
            SYNC: self._sync,
            SYNCED: self._synced,
            RENAME: self._renamed,
            REMOVE: lambda entry: self._name(entry.path, None),
            MAKE: lambda entry: self._name(entry.path, Directory()),
            EXIT: self._ended,
        }
        steps[entry.kind](entry)

    def image(self, survival: Survival, to: Path) -> None:
        """Writes a disk that may be found after a power cut now."""
        _write(self.root, survival, to)

    def whole(self) -> dict[str, bytes | None]:
        """Returns everything as the program sees it, by path; None for a directory."""
        return dict(_flat(self.root, ""))

    def loses_a_synced_file(self) -> bool:
        """Tells whether a cut now may lose a file whose content was synced."""
        return _may_lose(self.root)

    def _ended(self, entry: Entry) -> None:
        self._open.clear()
        self._syncs.clear()

    def _opened(self, entry: Entry) -> None:
        node = self._found(entry.path)
        if node is None and entry.at & os.O_CREAT:
            node = File()
            self._name(entry.path, node)
        elif isinstance(node, File) and entry.at & os.O_TRUNC and node.content():
            node.since.append((0, None))
        self._open[entry.fd] = node

    def _written(self, entry: Entry, data: bytes | None) -> None:
        node = self._open[entry.fd]
        if isinstance(node, File):
            node.since.append((entry.at, data))

    def _sync(self, entry: Entry) -> None:
        node = self._open[entry.fd]
        if node is not None:
            self._syncs[entry.at] = node, len(node.since)

    def _synced(self, entry: Entry) -> None:
        """Settles what was written before the sync began, unless another one has."""
        if entry.at not in self._syncs:
            return
        node, count = self._syncs.pop(entry.at)
        node.settle(count)
        for number, (other, later) in self._syncs.items():
            if other is node:
                self._syncs[number] = node, max(0, later - count)

    def _renamed(self, entry: Entry) -> None:
        old, new = entry.path, Path(os.fsdecode(entry.second))
        node = self._found(old)
        if node is None:
            return  # made by the C library, which keeps its calls to itself
        if old.parent == new.parent:
            directory = self._found(old.parent)
            assert isinstance(directory, Directory)
            directory.since.append(Renaming({old.name: None, new.name: node}))
        else:
            arrival = self._name(new, node)
            self._name(old, None, gone=arrival)

    def _name(
        self,
        path: Path,
        node: Node | None,
        *,
        gone: tuple[Directory, Renaming] | None = None,
    ) -> tuple[Directory, Renaming] | None:
        if path == self._below:
            return None
        directory = self._found(path.parent)
        assert isinstance(directory, Directory), path
        change = Renaming({path.name: node}, gone)
        directory.since.append(change)
        return directory, change

    def _found(self, path: Path) -> Node | None:
        node: Node | None = self.root
        for name in path.relative_to(self._below).parts:
            if not isinstance(node, Directory):
                return None
            node = node.names().get(name)
        return node


def _may_lose(directory: Directory) -> bool:
    sure = set(directory.synced.values())
    return any(
        _may_lose(node) if isinstance(node, Directory) else node not in sure
        for node in directory.names().values()
        if isinstance(node, Directory) or node.synced
    )


def _read(path: Path) -> Directory:
    """Reads what is there before the program begins, all of which was synced."""
    return Directory(
        {
            one.name: _read(one) if one.is_dir() else File(bytearray(one.read_bytes()))
            for one in path.iterdir()
        }
    )


def _write(directory: Directory, survival: Survival, to: Path) -> None:
    to.mkdir(mode=0o700)
    for name, node in survival.names(directory).items():
        if isinstance(node, Directory):
            _write(node, survival, to / name)
        else:
            (to / name).write_bytes(survival.content(node))
            (to / name).chmod(0o600)


def _flat(directory: Directory, prefix: str) -> list[tuple[str, bytes | None]]:
    found: list[tuple[str, bytes | None]] = []
    for name, node in directory.names().items():
        if isinstance(node, Directory):
            found += [(prefix + name, None), *_flat(node, f"{prefix}{name}/")]
        else:
            found.append((prefix + name, bytes(node.content())))
    return found
