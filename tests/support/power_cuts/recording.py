"""Runs a program that records what it writes and syncs; reads that record."""

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest

SOURCE = Path(__file__).with_name("recorder.c")
ROOT = Path(__file__).parents[3]
_HEAD = struct.Struct("<c3xiqII")
ENDS_S = 120

OPEN, WRITE, CUT, CLOSE = "O", "W", "T", "C"
SYNC, SYNCED = "B", "E"  # a sync begins and ends; both have its number in `at`
RENAME, REMOVE, MAKE = "R", "U", "M"
EXIT = "end of the process"


@attrs.frozen
class Entry:
    """One thing that a process did to its files."""

    kind: str
    fd: int = -1
    at: int = 0
    data: bytes = b""
    second: bytes = b""

    @property
    def path(self) -> Path:
        """The path that it names."""
        return Path(os.fsdecode(self.data))


def recorder(directory: Path) -> Path:
    """Compiles the library that records; skips the test where nothing compiles."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        why = "power cuts are recorded on Linux, with a C compiler"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    library = directory / "recorder.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror"]
    subprocess.run([*command, "-o", library, SOURCE, "-lpthread"], check=True)
    return library


def recorded(
    library: Path,
    below: Path,
    to: Path,
    program: Sequence[str],
    *,
    kills_after: int | None = None,
) -> list[Entry]:
    """Runs a Python program; returns what it did below a directory until its end."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "RECORD_BELOW": str(below),
        "RECORD_TO": str(to),
    }
    if kills_after is not None:
        environment["RECORD_KILLS_AFTER"] = str(kills_after)
    done = subprocess.run(
        [sys.executable, *program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )
    was_killed = kills_after is not None and done.returncode == -9
    assert was_killed or done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return [*entries(to.read_bytes()), Entry(EXIT)]


def entries(data: bytes) -> Iterator[Entry]:
    """Reads the entries of a record."""
    at = 0
    while at < len(data):
        kind, fd, place, size, second_size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        middle, end = at + size, at + size + second_size
        assert end <= len(data), "a record that ends within an entry"
        yield Entry(kind.decode(), fd, place, data[at:middle], data[middle:end])
        at = end
