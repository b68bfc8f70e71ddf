"""`txaware bench`: figures of this machine, each beside its limit."""

import shutil
import sys
import tempfile
from pathlib import Path

import click

from txaware.bench.embedded import FIGURES, LETTERS, figures
from txaware.bench.measure import Figure
from txaware.bench.trial import MANY_MESSAGES, Trial

METHOD = """Measures the embedded mode against what LevelDB and the disk allow.

Every figure is one line and one JSON object: its value, the limit it is compared with,
the median of their ratio over the rounds, the least and the greatest, and the bound. A
figure and its limit are measured in turns, so that a noisy moment meets both.

Exit code 1 means that a bound was missed; a --quick run, which measures too little to
say so, always ends with 0.
"""


def _help() -> str:
    """The help of `embedded`: how each figure is measured."""
    parts = [METHOD]
    parts += [f"{figure.letter}) {figure.method}" for figure in FIGURES]
    return "\n\n".join(parts)


def _letters(_: object, __: object, text: str) -> str:
    letters = text.replace(",", "").replace(" ", "")
    wrong = set(letters) - set(LETTERS)
    if wrong or not letters:
        raise click.BadParameter(f"figures are {', '.join(LETTERS)}, not {text!r}")
    return letters


@click.group()
def bench() -> None:
    """Measures this machine: every figure beside its limit, in one run."""


@bench.command(help=_help())
@click.option("--quick", is_flag=True, help="Measure little, in less than a minute.")
@click.option(
    "--only",
    default=LETTERS,
    callback=_letters,
    metavar="a,b,...",
    help="Measure these figures only.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Measure on the disk of this directory; the default is the current one.",
)
@click.option(
    "--messages",
    type=click.IntRange(1000),
    help=f"How many messages g and h open; the default is {MANY_MESSAGES:,}.",
)
@click.option("--json", "only_json", is_flag=True, help="Print the JSON objects only.")
def embedded(
    *, quick: bool, only: str, directory: Path, messages: int | None, only_json: bool
) -> None:
    """Measures the embedded mode; the help is made of what is measured."""
    directory.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="txaware-bench-", dir=directory))
    try:
        kept = [
            _show(figure, only_json=only_json)
            for figure in figures(_trial(place, messages, quick=quick), only)
        ]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if not (quick or all(kept)):
        raise SystemExit(1)


def _trial(place: Path, messages: int | None, *, quick: bool) -> Trial:
    if quick:
        return Trial(
            directory=place,
            rounds=3,
            for_s=0.2,
            scale=0.04,
            messages=messages or 100_000,
            tell=_tell,
        )
    return Trial(directory=place, messages=messages or MANY_MESSAGES, tell=_tell)


def _tell(what: str) -> None:
    """Shows on a terminal what is going on; figures alone go to standard output."""
    if sys.stderr.isatty():
        click.echo(f"{what} ...", err=True)


def _show(figure: Figure, *, only_json: bool) -> bool:
    if not only_json:
        click.echo(figure.line())
    click.echo(figure.record())
    return figure.is_kept
