"""A step that is a program: its time-out, what it says, and its end."""

import ctypes
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import attrs

import txaware
from examples.workflow_scheduler.runs import CANCELLED, FAILED, SUCCEEDED

MOST_SAID_BYTES = 64 * 1024
MOST_RESULT_BYTES = 64 * 1024
# The kernel takes no longer text in an environment.
MOST_TEXT_BYTES = 128 * 1024 - 1
# A program that is told to end is killed after this time.
GRACE_S = 5.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@attrs.frozen
class CommandEnd:
    """How a step ended, and what it said."""

    state: str
    error: str = ""
    result: Any = None
    text: str = ""


class Said:
    """The end of what a program says, read in a thread."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._kept = bytearray()
        self._pipe = process.stdout
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        """The last of what it said so far."""
        return bytes(self._kept).decode(errors="replace")

    def close(self) -> None:
        """Waits for the last of it; a child that it left behind may hold the pipe."""
        self._thread.join(1.0)

    def _read(self) -> None:
        assert self._pipe is not None
        with self._pipe:
            while piece := os.read(self._pipe.fileno(), 8192):
                self._kept += piece
                del self._kept[:-MOST_SAID_BYTES]


def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout_s: float = 0,
    look: Callable[[str], bool],
    look_s: float,
) -> CommandEnd:
    """Runs a program to its end, and calls `look` now and then with what it has said.

    It is stopped at its time-out, and when `look` returns True; it dies with the
    worker. What it returns is the JSON that it wrote into the file TXAWARE_RESULT.
    What is too long for an environment it finds in a file: X of that is in X_FILE.
    """
    with tempfile.TemporaryDirectory(
        prefix="txaware-step-",
        ignore_cleanup_errors=True,  # what it left behind may still write there
    ) as directory:
        result = Path(directory) / "result.json"
        given = _in_files(environment, Path(directory))
        env = {**os.environ, **given, "TXAWARE_RESULT": str(result)}
        try:
            process = subprocess.Popen(
                list(command),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            return CommandEnd(FAILED, f"{command[0]} cannot be run: {error.strerror}")
        except ValueError as error:  # such as a zero byte in an argument
            return CommandEnd(FAILED, f"{command[0]!r} cannot be run: {error}")
        said = Said(process)
        stopped = _wait(process, said, timeout_s, look, look_s)
        said.close()
        if stopped is not None:
            return attrs.evolve(stopped, text=said.text)
        if process.returncode:
            return CommandEnd(FAILED, _code(process.returncode), text=said.text)
        return _ended_well(result, said.text)


def _in_files(environment: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Puts long texts into files, and names these instead."""
    found: dict[str, str] = {}
    for name, text in environment.items():
        if len(os.fsencode(f"{name}={text}")) <= MOST_TEXT_BYTES:
            found[name] = text
            continue
        path = directory / name
        path.write_bytes(os.fsencode(text))
        found[f"{name}_FILE"] = str(path)
    return found


def _wait(
    process: subprocess.Popen[bytes],
    said: Said,
    timeout_s: float,
    look: Callable[[str], bool],
    look_s: float,
) -> CommandEnd | None:
    """Waits for the end; returns why it had to be stopped, if it had."""
    until_s = time.monotonic() + timeout_s if timeout_s else float("inf")
    while True:
        left_s = until_s - time.monotonic()
        try:
            process.wait(max(0.001, min(look_s, left_s)))
            return None
        except subprocess.TimeoutExpired:
            if time.monotonic() >= until_s:
                _stop(process)
                return CommandEnd(FAILED, f"it took longer than {timeout_s:g} s")
            if look(said.text):
                _stop(process)
                return CommandEnd(CANCELLED, "the run was cancelled")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Has a program and its children end, first in good order."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE_S)
            return
        except ProcessLookupError:
            process.wait()
            return
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _ended_well(result: Path, text: str) -> CommandEnd:
    try:
        if not result.exists():
            return CommandEnd(SUCCEEDED, text=text)
        returned = read_result(_content(result))
        return CommandEnd(SUCCEEDED, result=returned, text=text)
    except (txaware.BadRequest, OSError) as error:
        return CommandEnd(
            FAILED, f"what it returned cannot be stored: {error}", text=text
        )


def _content(result: Path) -> bytes:
    """Returns the content of a file; nobody waits for a pipe, or reads a device."""
    if not result.is_file():
        raise txaware.BadRequest("TXAWARE_RESULT is no file any more")
    size = result.stat().st_size
    return result.read_bytes() if size <= MOST_RESULT_BYTES else _too_large(size)


def read_result(encoded: bytes) -> Any:
    """Reads the JSON that a step returned; raises where it cannot be stored."""
    if len(encoded) > MOST_RESULT_BYTES:
        _too_large(len(encoded))
    return txaware.from_json(encoded)


def _too_large(size: int) -> NoReturn:
    raise txaware.BadRequest(f"{size} bytes are more than {MOST_RESULT_BYTES}")


def _code(code: int) -> str:
    if code > 0:
        return f"it ended with {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:  # one of those that have a number alone
        return f"it was ended by signal {-code}"


def die_with_parent() -> None:
    """Has the child be killed when the thread of its worker is no more."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
