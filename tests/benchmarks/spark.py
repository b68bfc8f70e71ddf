"""All figures of Spark, in the order of their letters; PySpark is loaded with them."""

from collections.abc import Collection, Iterator
from functools import partial
from types import ModuleType

from coordinator.errors import install_with
from txaware.bench.measure import Figure
from txaware.bench.trial import Measured, Trial, measured
from txaware.errors import MissingExtra


def _jobs() -> ModuleType:
    """Imports the measures, which need PySpark; the command line does not."""
    try:
        from tests.benchmarks import spark_jobs
    except ImportError as error:
        raise MissingExtra(
            f"this benchmark needs PySpark and PyArrow: {install_with('spark')}"
        ) from error
    return spark_jobs


def _figures(trial: Trial, name: str) -> list[Figure]:
    found: list[Figure] = getattr(_jobs(), name)(trial)
    return found


FIGURES = [
    Measured(
        "a",
        "Saves 1,000,000 rows of 100 bytes in one transaction. The limit: the same job "
        "with a sink that takes the same Arrow batches and keeps nothing. The server "
        "is at rest before each: LevelDB sorts what came for some seconds more.",
        partial(_figures, name="write"),
    ),
    Measured(
        "b",
        "Reads them again, all columns. The limit: a source in Python that makes such "
        "rows up.",
        partial(_figures, name="read"),
    ),
    Measured(
        "c",
        "Publishes 200,000 messages, 100 a request, while a stream reads them. The "
        "limit: how fast they were published, beside that stream. And how long a "
        "micro-batch takes.",
        partial(_figures, name="stream"),
    ),
    Measured(
        "d",
        "The most that a Python worker has in memory while it saves, and reads, one "
        "partition of 1,000,000 rows. The limit: the same with a tenth of the rows.",
        partial(_figures, name="memory"),
    ),
]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other."""
    return measured(FIGURES, trial, letters)
