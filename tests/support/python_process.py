"""Starts a Python program as a process of its own, without its second of imports.

A process that has imported what they all import forks one for each program, which has
the arguments, directory, environment, files and end of one that was started as usual,
and can be killed as one. `--long` starts each as usual, and so does `subprocess` where
a test is about how a program begins.
"""

import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.support.forking import UNBUFFERED, WORD, Forker, Program

AS_USUAL = "TXAWARE_TESTS_START_AS_USUAL"
# With any other option it is started as usual, and with any other variable that Python
# reads as it starts.
OPTIONS = {"cwd", "env", "stdin", "stdout", "stderr", "text"}
VARIABLES = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", UNBUFFERED}


def pytest_configure(config: pytest.Config) -> None:
    """Has a long run start all its processes as users do."""
    if config.option.long:
        os.environ[AS_USUAL] = "1"


def completed(
    command: Sequence[str | Path],
    *,
    timeout: float,
    stdin: str | bytes | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Runs a program to its end, as `subprocess.run` does, and takes what it prints."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    if stdin is not None:
        options["stdin"] = subprocess.PIPE
    with PythonProcess(command, **options) as process:
        try:
            out, error = process.communicate(stdin, timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(command, process.returncode, out, error)


class PythonProcess(subprocess.Popen[Any]):
    """What `subprocess.Popen` makes of a Python program, forked where that can be."""

    def __init__(self, command: Sequence[str | Path], **options: Any) -> None:
        words = [str(each) for each in command]
        env = options.get("env") or os.environ
        is_forked = not options.keys() - OPTIONS and can_be_forked(env)
        self._program = Program.of(words, env) if is_forked else None
        self._end = -1  # whence it is read how a process ended that was forked
        super().__init__(words, **options)

    def _execute_child(self, args: object, *rest: Any) -> None:
        if self._program is None:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        directory = os.path.abspath(rest[4] or os.curdir)
        pipes = rest[9:15]
        given = (pipes[0], pipes[3], pipes[5])
        files = [number if one == -1 else one for number, one in enumerate(given)]
        self._end, ended = os.pipe()
        program = attrs.evolve(self._program, directory=directory)
        self.pid = fork(program, [*files, ended])
        os.close(ended)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, *args: Any, **options: Any) -> Any:
        if self._program is None:
            return super()._internal_poll(*args, **options)  # type: ignore[misc]
        lock = self._waitpid_lock  # type: ignore[attr-defined]
        if self.returncode is None and lock.acquire(blocking=False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid and self.returncode is None:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                lock.release()
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._program is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc, no-any-return]
        if self.returncode is not None:
            return 0, 0
        waiting = select.poll()  # `select` knows no files above 1,023
        waiting.register(self._end, select.POLLIN)
        if not waiting.poll(0 if wait_flags & os.WNOHANG else None):
            return 0, 0
        status = os.read(self._end, WORD)
        os.close(self._end)
        assert status, "the process that forks has ended"
        return self.pid, int.from_bytes(status)


def can_be_forked(environment: Mapping[str, str]) -> bool:
    """Tells whether a program of this run that has these variables may be forked."""
    read = {name for name in environment if name.startswith("PYTHON")} - VARIABLES
    return not read and AS_USUAL not in os.environ


def fork(program: Program, files: Sequence[int]) -> int:
    """Starts a program with standard files and one more, for how it ends."""
    return _forker(os.getpid()).fork(program, files)


@cache
def _forker(_of_process: int) -> Forker:
    return Forker()
