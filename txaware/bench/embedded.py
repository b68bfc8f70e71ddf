"""All figures of the embedded mode, in the order of their letters."""

from collections.abc import Collection, Iterator

from txaware.bench.commits import COMMITS, RECEIVE
from txaware.bench.measure import Figure
from txaware.bench.reading import READING
from txaware.bench.trial import Measured, Trial, measured

FIGURES: list[Measured] = [*COMMITS, *READING, *RECEIVE]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other."""
    return measured(FIGURES, trial, letters)
