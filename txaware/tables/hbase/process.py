"""Which process owns a store, and whether that one has surely ended."""

import os
import socket
from pathlib import Path

import attrs

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NUMBERS = Path("/proc/self/ns/pid")


@attrs.frozen
class Process:
    """One process of one machine: a number that is used again later tells no lie.

    Two containers, or two hosts of the same name, are two machines.
    """

    host: str
    machine: str
    pid: int
    started: str

    @classmethod
    def this(cls) -> "Process":
        """The one that asks."""
        pid = os.getpid()
        return cls(socket.gethostname(), _machine(), pid, _started(pid))

    @property
    def has_ended(self) -> bool:
        """Whether it surely has; of other machines nobody knows."""
        return self.is_here and _started(self.pid) != self.started

    @property
    def is_here(self) -> bool:
        """Whether it can be seen from here."""
        return (self.host, self.machine) == (socket.gethostname(), _machine())

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _machine() -> str:
    """Where a process number means the same; empty where that cannot be told."""
    try:
        return f"{_BOOT.read_text().strip()} {os.readlink(_NUMBERS)}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process began, by a mark that no later one has; empty where it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return _exists(pid)
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _exists(pid: int) -> str:
    """The same where there is no /proc: whether there is one of that number."""
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "unknown"
