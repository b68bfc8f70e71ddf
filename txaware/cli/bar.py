"""A bar for verbs that go through all rows."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from txaware.cli.show import counted
from txaware.service.check_scan import Progress

STEPS = 1000


@contextmanager
def rows_bar() -> Iterator[Progress | None]:
    """A bar on standard error, where that is a terminal."""
    err = sys.stderr
    if not err.isatty():
        yield None
        return
    with click.progressbar(length=STEPS, label="rows", file=err) as bar:

        def progress(rows: int, part: float | None) -> None:
            bar.label = counted(rows, "row")
            bar.update(max(int((part or 0) * STEPS) - bar.pos, 0))

        yield progress
        bar.update(STEPS - bar.pos)
