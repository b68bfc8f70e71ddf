"""Figures beside their limits, printed as they come."""

import attrs

from txaware.bench import measure
from txaware.bench.measure import (
    fdatasyncs_per_second,
    in_turns,
    per_second,
    per_second_of_threads,
)

__all__ = [
    "Figure",
    "fdatasyncs_per_second",
    "in_turns",
    "per_second",
    "per_second_of_threads",
]


@attrs.frozen
class Figure(measure.Figure):
    """A figure whose bound is given with the report."""

    def report(
        self, *, at_least: float | None = None, at_most: float | None = None
    ) -> bool:
        """Prints one line and one JSON object; whether the bound is kept."""
        figure = attrs.evolve(self, at_least=at_least, at_most=at_most)
        print(f"\n{figure.line()}\n{figure.record()}")
        return figure.is_kept
