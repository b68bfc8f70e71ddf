"""`txaware bench`: figures of this machine, each beside its limit."""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click

from coordinator.errors import install_with
from txaware.bench import embedded as embedded_figures
from txaware.bench import hbase as hbase_figures
from txaware.bench import http as http_figures
from txaware.bench import spark as spark_figures
from txaware.bench.measure import Figure
from txaware.bench.trial import MANY_MESSAGES, Measured, Trial

F = TypeVar("F", bound=Callable[..., Any])

# The shortest time that wrk can measure is one second.
HTTP_FOR_S, HTTP_QUICK_S = 2.0, 1.0
HBASE_FOR_S = 2.0

METHOD = """Measures the embedded mode against what LevelDB and the disk allow.

Every figure is one line and one JSON object: its value, the limit it is compared with,
the median of their ratio over the rounds, the least and the greatest, and the bound. A
figure and its limit are measured in turns, so that a noisy moment meets both.

Exit code 1 means that a bound was missed; a --quick run, which measures too little to
say so, always ends with 0.
"""


HTTP_METHOD = """Measures a server against what it could answer at the most.

The server is a process of its own, and the load comes from another one: from wrk where
that is installed, else from a program of ours, which sends less. Every figure is shown
as by `txaware bench embedded`; "goal" is what CDAP's messaging service reaches, in
Java, on a machine of two processors.
"""


SPARK_METHOD = f"""Measures PySpark with two tasks at once, and a server beside it.

All of them share this machine. Needs Java 17, and {install_with("spark")}. Every
figure is shown as by `txaware bench embedded`.
"""


HBASE_METHOD = f"""Measures a store in HBase against what happybase does by itself.

Nothing is read from the cache of this process. By default it starts an HBase of its
own, which needs Java 17, and {install_with("hbase")}; all of it shares this
machine. Every figure is shown as by `txaware bench embedded`.
"""


def _help(method: str, figures: Sequence[Measured]) -> str:
    """Returns a help text that says how each figure is measured."""
    return "\n\n".join([method, *(f"{one.letter}) {one.method}" for one in figures)])


def _options(letters: str) -> Callable[[F], F]:
    """Adds the options that all benchmarks take."""

    def checked(_: object, __: object, text: str) -> str:
        found = text.replace(",", "").replace(" ", "")
        if set(found) - set(letters) or not found:
            raise click.BadParameter(f"figures are {', '.join(letters)}, not {text!r}")
        return found

    options = [
        click.option(
            "--quick", is_flag=True, help="Measure little, in less than a minute."
        ),
        click.option(
            "--only",
            default=letters,
            callback=checked,
            metavar="a,b,...",
            help="Measure these figures only.",
        ),
        click.option(
            "--directory",
            type=click.Path(path_type=Path, file_okay=False),
            default=Path(),
            help="Measure on the disk of this directory; the default is the current "
            "one.",
        ),
        click.option(
            "--json", "only_json", is_flag=True, help="Print the JSON objects only."
        ),
    ]

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


@click.group()
def bench() -> None:
    """Measures this machine: every figure beside its limit, in one run."""


@bench.command(help=_help(METHOD, embedded_figures.FIGURES))
@_options(embedded_figures.LETTERS)
@click.option(
    "--messages",
    type=click.IntRange(1000),
    help=f"How many messages g and h open; the default is {MANY_MESSAGES:,}.",
)
def embedded(
    *, quick: bool, only: str, directory: Path, messages: int | None, only_json: bool
) -> None:
    """Measures the embedded mode; the help is made of what is measured."""
    with _trial(directory) as trial:
        if quick:
            trial = attrs.evolve(
                trial, rounds=3, for_s=0.2, scale=0.04, messages=100_000
            )
        if messages is not None:
            trial = attrs.evolve(trial, messages=messages)
        kept = _show_all(embedded_figures.figures(trial, only), only_json=only_json)
    _end(kept, quick=quick)


@bench.command(help=_help(HTTP_METHOD, http_figures.FIGURES))
@_options(http_figures.LETTERS)
def http(*, quick: bool, only: str, directory: Path, only_json: bool) -> None:
    """Measures a server; the help is made of what is measured."""
    with _trial(directory) as trial:
        trial = attrs.evolve(trial, for_s=HTTP_FOR_S)
        if quick:
            trial = attrs.evolve(trial, rounds=2, for_s=HTTP_QUICK_S, scale=0.04)
        kept = _show_all(http_figures.figures(trial, only), only_json=only_json)
    _end(kept, quick=quick)


@bench.command(help=_help(SPARK_METHOD, spark_figures.FIGURES))
@_options(spark_figures.LETTERS)
def spark(*, quick: bool, only: str, directory: Path, only_json: bool) -> None:
    """Measures Spark; the help is made of what is measured."""
    with _trial(directory) as trial:
        if quick:
            trial = attrs.evolve(trial, rounds=2, scale=0.04)
        kept = _show_all(spark_figures.figures(trial, only), only_json=only_json)
    _end(kept, quick=quick)


@bench.command(help=_help(HBASE_METHOD, hbase_figures.FIGURES))
@_options(hbase_figures.LETTERS)
@click.option(
    "--url",
    metavar="hbase://HOST:PORT/PREFIX",
    help="Measure this HBase, in tables of new names that begin with PREFIX, and that "
    "are removed in the end.",
)
def hbase(
    *, quick: bool, only: str, directory: Path, url: str | None, only_json: bool
) -> None:
    """Measures a store in HBase; the help is made of what is measured."""
    with _trial(directory) as trial:
        trial = attrs.evolve(trial, hbase=url, for_s=HBASE_FOR_S)
        if quick:
            trial = attrs.evolve(trial, rounds=3, for_s=0.5, scale=0.1)
        kept = _show_all(hbase_figures.figures(trial, only), only_json=only_json)
    _end(kept, quick=quick)


@contextmanager
def _trial(directory: Path) -> Iterator[Trial]:
    directory.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="txaware-bench-", dir=directory))
    try:
        yield Trial(directory=place, tell=_tell)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _show_all(figures: Iterable[Figure], *, only_json: bool) -> bool:
    kept = [_show(figure, only_json=only_json) for figure in figures]
    return all(kept)


def _end(kept: bool, *, quick: bool) -> None:
    if not (quick or kept):
        raise SystemExit(1)


def _tell(what: str) -> None:
    """Shows on a terminal what is going on; figures alone go to standard output."""
    if sys.stderr.isatty():
        click.echo(f"{what} ...", err=True)


def _show(figure: Figure, *, only_json: bool) -> bool:
    if not only_json:
        click.echo(figure.line())
    click.echo(figure.record())
    return figure.is_kept
