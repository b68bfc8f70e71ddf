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

from txaware.bench import embedded as embedded_figures
from txaware.bench import http as http_figures
from txaware.bench import producers as producer_figures
from txaware.bench.measure import Figure
from txaware.bench.trial import Measured, Trial

F = TypeVar("F", bound=Callable[..., Any])

# The shortest time that wrk can measure is one second.
HTTP_FOR_S, HTTP_QUICK_S = 2.0, 1.0

METHOD = """Measures the embedded mode against SQLite, and what LevelDB allows.

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


PRODUCERS_METHOD = """Measures producers against plain publishes, and many of them.

Every figure is shown as by `txaware bench embedded`. From a checkout of txaware,
python -m tests.benchmarks producers measures them beside Kafka.
"""

MOVED = (
    "it is measured from a checkout of txaware, with python -m tests.benchmarks {name}"
)


def help_text(method: str, figures: Sequence[Measured], *, example: str = "") -> str:
    """Returns a help text that says how each figure is measured."""
    parts = [method, *(f"{one.letter}) {one.method}" for one in figures)]
    if example:
        parts.append(f"\b\nExample:\n  {example}")
    return "\n\n".join(parts)


def bench_options(letters: str) -> Callable[[F], F]:
    """Adds the options that all benchmarks take."""

    def checked(_: object, __: object, text: str) -> str:
        found = text.replace(",", "").replace(" ", "")
        if letters == embedded_figures.LETTERS and set(found) & set("ghi"):
            raise click.BadParameter(
                f"g, h and i: {MOVED.format(name='large')} or memory"
            )
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


def _large_moved(_: object, __: object, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(MOVED.format(name="large"))


@click.group()
def bench() -> None:
    """Measures this machine: every figure beside its limit, in one run.

    \b
    Example:
      txaware bench embedded --quick
      txaware bench http --only a,b
    """


@bench.command(
    help=help_text(
        METHOD,
        embedded_figures.FIGURES,
        example="txaware bench embedded --quick --only a,b",
    )
)
@bench_options(embedded_figures.LETTERS)
@click.option("--messages", hidden=True, callback=_large_moved, expose_value=False)
def embedded(*, quick: bool, **options: Any) -> None:
    """Measures the embedded mode; the help is made of what is measured."""
    changes = {"rounds": 3, "for_s": 0.2, "scale": 0.04} if quick else {}
    show_figures(embedded_figures.figures, changes, quick=quick, **options)


@bench.command(
    help=help_text(
        HTTP_METHOD,
        http_figures.FIGURES,
        example="txaware bench http --json > figures.json",
    )
)
@bench_options(http_figures.LETTERS)
def http(*, quick: bool, **options: Any) -> None:
    """Measures a server; the help is made of what is measured."""
    changes: dict[str, Any] = {"for_s": HTTP_FOR_S}
    if quick:
        changes = {"rounds": 2, "for_s": HTTP_QUICK_S, "scale": 0.04}
    show_figures(http_figures.figures, changes, quick=quick, **options)


@bench.command(
    help=help_text(
        PRODUCERS_METHOD,
        producer_figures.FIGURES,
        example="txaware bench producers --directory /mnt/disk",
    )
)
@bench_options(producer_figures.LETTERS)
def producers(*, quick: bool, **options: Any) -> None:
    """Measures producers; the help is made of what is measured."""
    changes = {"rounds": 3, "for_s": 0.2, "scale": 0.1} if quick else {}
    show_figures(producer_figures.figures, changes, quick=quick, **options)


@bench.command(
    "hbase",
    hidden=True,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1)
def moved_hbase(arguments: tuple[str, ...]) -> None:
    """Names the command that measures a store in HBase."""
    raise click.UsageError(MOVED.format(name="hbase"))


@bench.command(
    "spark",
    hidden=True,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1)
def moved_spark(arguments: tuple[str, ...]) -> None:
    """Names the command that measures Spark."""
    raise click.UsageError(MOVED.format(name="spark"))


def show_figures(
    figures: Callable[[Trial, str], Iterable[Figure]],
    changes: dict[str, Any],
    *,
    quick: bool,
    only: str,
    directory: Path,
    only_json: bool,
) -> None:
    """Measures in a trial with these changes, and shows it; see `end_with`."""
    with bench_trial(directory) as trial:
        trial = attrs.evolve(trial, **changes)
        kept = show_all(figures(trial, only), only_json=only_json)
    end_with(kept, quick=quick)


@contextmanager
def bench_trial(directory: Path) -> Iterator[Trial]:
    """Yields a trial in a new directory, which is removed at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="txaware-bench-", dir=directory.resolve()))
    try:
        yield Trial(directory=place, tell=_tell)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def show_all(figures: Iterable[Figure], *, only_json: bool) -> bool:
    """Shows figures as they come; tells whether all bounds are kept."""
    kept = [_show(figure, only_json=only_json) for figure in figures]
    return all(kept)


def end_with(kept: bool, *, quick: bool) -> None:
    """Ends with 1 if a bound was missed, and enough was measured to say so."""
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
