"""All figures of Spark, in the order of their letters; PySpark is loaded with them."""

from collections.abc import Collection, Iterator

from txaware.bench.measure import Figure
from txaware.bench.trial import Measured, Trial, measured


def _write(trial: Trial) -> list[Figure]:
    from txaware.bench.spark_jobs import write

    return write(trial)


def _read(trial: Trial) -> list[Figure]:
    from txaware.bench.spark_jobs import read

    return read(trial)


def _stream(trial: Trial) -> list[Figure]:
    from txaware.bench.spark_jobs import stream

    return stream(trial)


def _memory(trial: Trial) -> list[Figure]:
    from txaware.bench.spark_jobs import memory

    return memory(trial)


FIGURES = [
    Measured(
        "a",
        "Saves 1,000,000 rows of 100 bytes in one transaction. The limit: the same job "
        "with a sink that takes the same Arrow batches and keeps nothing.",
        _write,
    ),
    Measured(
        "b",
        "Reads them again, all columns. The limit: a source in Python that makes such "
        "rows up.",
        _read,
    ),
    Measured(
        "c",
        "Publishes 200,000 messages, 100 a request, while a stream reads them. The "
        "limit: how fast they were published, beside that stream. And how long a "
        "micro-batch takes.",
        _stream,
    ),
    Measured(
        "d",
        "The most that a Python worker has in memory while it saves, and reads, one "
        "partition of 1,000,000 rows. The limit: the same with a tenth of the rows.",
        _memory,
    ),
]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other."""
    return measured(FIGURES, trial, letters)
