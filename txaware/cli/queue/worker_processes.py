"""Processes of `txaware worker` and `run`: begun, replaced if they die, and ended."""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import attrs
import click

from txaware.auth.own_token import TOKEN
from txaware.cli.failures import Failure
from txaware.cli.stop import Stop
from txaware.errors import Unavailable

log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

# The exit codes after which another process would end in the same way.
HOPELESS = (1, 2)
# A process that ended is replaced at once, and after this time if it was as young.
PAUSE_S = 5.0


@attrs.define(eq=False)
class Child:
    """A process that works, and when it began."""

    process: "subprocess.Popen[bytes]"
    began_s: float

    def end(self) -> None:
        """Has it finish its jobs and end."""
        if self.process.stdin is not None:
            self.process.stdin.close()


def processes_option(what_they_do: str) -> Callable[[F], F]:
    """Returns the option for how many there are; its help says what they do."""
    return click.option(
        "--processes",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help=f"Processes that {what_they_do}; one that dies is replaced.",
    )


def stop_with_stdin(stop: Stop) -> None:
    """Asks to stop at the end of standard input: the parent closed it, or died."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        stop.requested = True

    threading.Thread(target=wait, daemon=True).start()


class WorkerProcesses:
    """The processes that do the work; a child ends when its standard input does.

    So they also end where this process is killed.
    """

    def __init__(
        self, url: str, token: str | None, arguments: list[str], coordinator: str | None
    ) -> None:
        self._command = [sys.executable, "-m", "txaware", "--url", url]
        if coordinator is not None:
            self._command += ["--coordinator", coordinator]
        self._command += [*arguments, "--child"]
        self._env = {**os.environ, **({} if token is None else {TOKEN: token})}
        self._children: list[Child] = []
        self._missing: list[float] = []

    @contextmanager
    def working(self, count: int) -> Iterator[None]:
        """Surrounds the work; at its end, jobs that were begun are finished."""
        try:
            for _ in range(count):
                self._begin()
            yield
            self._end()
        finally:
            for child in self._children:  # only where this was interrupted
                child.process.kill()
                child.end()
                child.process.wait()

    def look_after(self) -> None:
        """Replaces processes that ended; raises where others would end as they did."""
        now_s = time.monotonic()
        for child in list(self._children):
            code = child.process.poll()
            if code is None:
                continue
            self._children.remove(child)
            child.end()
            if code in HOPELESS:
                raise Failure(f"a process ended with {code}")
            log.warning("process %d ended with %d", child.process.pid, code)
            is_young = now_s - child.began_s < PAUSE_S
            self._missing.append(now_s + PAUSE_S if is_young else now_s)
        due = [begin_s for begin_s in self._missing if begin_s <= now_s]
        for begin_s in due:
            self._missing.remove(begin_s)
            self._begin()

    def drop_ended(self) -> None:
        """Forgets processes that ended; others begin when something has changed."""
        for child in list(self._children):
            code = child.process.poll()
            if code is not None:
                self._children.remove(child)
                child.end()
                log.warning("process %d ended with %d", child.process.pid, code)

    def _begin(self) -> None:
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                env=self._env,
                process_group=0,  # Ctrl-C is for this process, which tells them
            )
        except OSError as error:
            raise Unavailable(f"no process begins: {error}") from error
        self._children.append(Child(process, time.monotonic()))

    def _end(self) -> None:
        for child in self._children:
            child.end()
        for child in self._children:
            child.process.wait()
        self._children.clear()
