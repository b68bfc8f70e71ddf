"""Figures beside their limits, printed as they come."""

import shutil
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import attrs

from txaware.bench import measure
from txaware.bench.measure import (
    fdatasyncs_per_second,
    in_turns,
    per_second,
    per_second_of_threads,
)
from txaware.errors import MissingExtra

__all__ = [
    "Figure",
    "are_kept",
    "fdatasyncs_per_second",
    "in_turns",
    "peer",
    "per_second",
    "per_second_of_threads",
    "program",
]


def peer(module: str, *, package: str) -> Any:
    """Imports the client of a peer, or names the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"this benchmark needs {package}: pip install '{package}'"
        ) from error


def program(name: str, *, package: str) -> str:
    """Finds the program of a peer, or names the command that installs it."""
    found = shutil.which(name)
    if found is None:
        raise MissingExtra(f"this benchmark needs {name}: apt-get install {package}")
    return found


@attrs.frozen
class Figure(measure.Figure):
    """A figure whose bound is given with the report."""

    def report(
        self, *, at_least: float | None = None, at_most: float | None = None
    ) -> bool:
        """Prints one line and one JSON object; whether the bound is kept."""
        return are_kept([attrs.evolve(self, at_least=at_least, at_most=at_most)])


def are_kept(figures: Iterable[measure.Figure]) -> bool:
    """Prints one line and one JSON object for each; whether all bounds are kept."""
    found = []
    for figure in figures:
        print(f"\n{figure.line()}\n{figure.record()}")
        found.append(figure.is_kept)
    return all(found)
