"""Processes that a benchmark starts, and the processor time that they take."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STARTS_S = 120
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@contextmanager
def started(
    *command: str, checkout: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a Python module, of another checkout too, until the end of the block."""
    child = subprocess.Popen(
        [sys.executable, "-m", *command], cwd=checkout, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        yield child
    finally:
        child.terminate()
        child.wait(STARTS_S)
        child.stdout.close()


@contextmanager
def served(
    directory: Path, checkout: Path | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Serves a directory in a process of its own; yields the address."""
    at = ("--data", str(directory.resolve()), "--port", "0")
    with started("txaware", "serve", *at, checkout=checkout) as child:
        assert child.stdout is not None
        said = child.stdout.readline().decode()
        if not said.startswith("listening on "):
            raise RuntimeError(f"the server does not start: {said}")
        yield said.removeprefix("listening on ").strip(), child


def busy_s(process: subprocess.Popen[bytes]) -> float:
    """Returns the processor time that a process has taken until now."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
