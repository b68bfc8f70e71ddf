"""All figures of a server, in the order of their letters."""

from collections.abc import Collection, Iterator

from txaware.bench.http_frames import FRAMES
from txaware.bench.http_memory import MEMORY
from txaware.bench.http_reading import READING
from txaware.bench.http_waiting import WAITING
from txaware.bench.http_writing import WRITING
from txaware.bench.measure import Figure
from txaware.bench.trial import Measured, Trial, measured

FIGURES: list[Measured] = [*WRITING, *READING, *WAITING, *MEMORY, *FRAMES]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other."""
    return measured(FIGURES, trial, letters)
