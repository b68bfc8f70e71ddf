"""A bar for verbs that go through all rows."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from txaware.cli.show import counted
from txaware.model.reports import Progress

STEPS = 1000
CLEAR_LINE = "\r\x1b[K"


@contextmanager
def rows_bar() -> Iterator[Progress | None]:
    """Shows a bar on standard error, if that is a terminal and progress is told.

    A server does not tell progress: there is no bar then.
    """
    with later_bar(length=STEPS) as bar:
        if bar is None:
            yield None
            return

        def progress(rows: int, part: float | None) -> None:
            bar.move(counted(rows, "row"), to=int((part or 0) * STEPS))

        yield progress
        bar.end()


class LaterBar:
    """A bar that shows with its first move."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._bar: Any = None

    def move(self, label: str, *, to: int, length: int | None = None) -> None:
        """Moves the bar on, never back."""
        if self._bar is None:
            self._bar = click.progressbar(length=self._length, file=sys.stderr)
            self._bar.__enter__()
        self._bar.label = label
        self._bar.length = length or self._length
        self._bar.update(max(to - self._bar.pos, 0))

    def end(self) -> None:
        """Shows that all is done."""
        if self._bar is not None:
            self._bar.update(self._bar.length - self._bar.pos)

    def close(self) -> None:
        """Leaves the line of the bar."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)


@contextmanager
def later_bar(*, length: int) -> Iterator[LaterBar | None]:
    """Returns a bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    bar = LaterBar(length)
    handlers = logging.getLogger("txaware").handlers
    for handler in handlers:
        handler.addFilter(_clear_line)
    try:
        yield bar
    finally:
        for handler in handlers:
            handler.removeFilter(_clear_line)
        bar.close()


def _clear_line(_: logging.LogRecord) -> bool:
    """Has a line of the log begin where the bar is; its next move shows it again."""
    sys.stderr.write(CLEAR_LINE)
    return True
