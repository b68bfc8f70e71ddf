"""Processes that a benchmark starts, and the processor time that they take."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

STARTS_S, ENDS_S = 120, 60
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# A worker says this once it waits for the first line of its input.
READY = "ready"


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


@attrs.frozen
class WorkDone:
    """Counts what a process did in its turn, and the processor time that it took."""

    count: int
    busy_s: float


@contextmanager
def workers(
    commands: Sequence[Sequence[str]], *, env: Mapping[str, str] | None = None
) -> Iterator[Callable[[], list[WorkDone]]]:
    """Starts Python processes that work at once; a call of what it yields is a turn.

    Each prints `READY`. For each line of its input it works, and then it prints how
    much it did, and the processor time in seconds.
    """
    children: list[subprocess.Popen[str]] = []
    with ExitStack() as opened:
        for command in commands:
            child = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=env,
            )
            opened.callback(_ended, child)
            children.append(child)
        if any(_line(child) != READY for child in children):
            raise RuntimeError("a process to be measured does not start")

        def turn() -> list[WorkDone]:
            for child in children:
                assert child.stdin is not None
                child.stdin.write("go\n")
                child.stdin.flush()
            told = [_line(child).split() for child in children]
            return [WorkDone(int(count), float(used_s)) for count, used_s in told]

        yield turn


def _line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def _ended(child: "subprocess.Popen[str]") -> None:
    """Waits for the end of a process, and closes its pipes."""
    try:
        child.communicate(timeout=ENDS_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
