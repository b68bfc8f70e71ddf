"""`txaware janitor`: removes what nobody can read any more, once or every so often."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import click

from coordinator.errors import install_with
from txaware.cli.progress import later_bar
from txaware.cli.session import Session, pass_session
from txaware.cli.show import counted, echo_fields, echo_json, note
from txaware.cli.stop import stopped_by_signal
from txaware.cli.values import interval
from txaware.errors import MissingExtra, Unavailable

Progress = Callable[[str, int, int], None]
# Returns a `CleanUp`.
CleaningUp = Callable[[], Any]
NOUNS = {
    "expired_messages": "expired messages",
    "expired_payloads": "expired payloads",
    "old_generation_rows": "rows of deleted topics",
    "superseded_messages": "messages that newer ones replace",
    "marked_rows": "rows marked as never committed",
    "positions": "positions nobody needs",
    "forgotten": "invalid transactions forgotten",
}
MASTER = "local[*]"


@click.command(short_help="Remove what nobody can read any more.")
@click.option("--once", is_flag=True, help="Clean up once and end; the default.")
@click.option(
    "--every", type=interval, help="Go on until Ctrl-C or SIGTERM, this often: 1h."
)
@click.option("--spark", is_flag=True, help="As a Spark job, in pieces of topics.")
@click.option("--master", help=f"The Spark to use with --spark: {MASTER}.")
@click.option(
    "--pieces",
    type=click.IntRange(min=1),
    help="With --spark, into how many pieces each topic is cut: 4.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a run.")
@pass_session
def janitor(
    session: Session,
    *,
    once: bool,
    every: float | None,
    spark: bool,
    master: str | None,
    pieces: int | None,
    as_json: bool,
) -> None:
    """Remove expired messages, deleted topics, and what never committed.

    The space goes back to the disk. The data's own coordinator then forgets invalid
    transactions of more than a day ago whose rows are all marked. It keeps those that a
    participant with rows of its own may need, and the output names that participant.
    The output also has the least transaction id that the data still needs.
    See `txaware transaction prune`.

    With --spark the data has to be served: executors do pieces of the work there.

    \b
    Example:
      txaware janitor
      txaware janitor --every 1h
      txaware janitor --spark --master 'local[2]'
    """
    if once and every is not None:
        raise click.UsageError("either --once or --every")
    if not spark and (master or pieces):
        raise click.UsageError("--master and --pieces are for --spark")
    cleaning_up = _by_spark(session, master, pieces) if spark else _here(session)
    with cleaning_up as clean_up, stopped_by_signal() as stop:
        while True:
            _echo(attrs.asdict(clean_up()), as_json=as_json)
            if every is None or stop.wait(every):
                return


@contextmanager
def _here(session: Session) -> Iterator[CleaningUp]:
    """Cleans up in this process, or at the server."""
    with session.open(janitor_interval_s=0) as messaging:

        def clean_up() -> Any:
            with _progress() as on_progress:
                return messaging.clean_up(on_progress=on_progress)

        yield clean_up


@contextmanager
def _by_spark(
    session: Session, master: str | None, pieces: int | None
) -> Iterator[CleaningUp]:
    """Cleans up as Spark jobs; ends the session unless it was there before."""
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        from txaware.spark.addresses import StoreAddress
        from txaware.spark.janitor import PIECES, clean_up_with_spark
    except ImportError as error:
        raise MissingExtra(
            f"--spark needs PySpark and PyArrow: {install_with('spark')}"
        ) from error
    session.require_data()
    StoreAddress(session.url).resolved()  # nobody waits for Spark to hear what is wrong
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    found = SparkSession.getActiveSession()
    builder = SparkSession.builder.appName("txaware janitor").master(master or MASTER)
    progress = str(sys.stderr.isatty()).lower()
    builder = builder.config("spark.ui.showConsoleProgress", progress)
    try:
        spark = found or builder.getOrCreate()
    except Exception as error:
        raise Unavailable(f"Spark did not start: {_first_line(error)}") from error

    def clean_up() -> Any:
        try:
            return clean_up_with_spark(spark, session.url, pieces=pieces or PIECES)
        except PySparkException as error:
            raise Unavailable(f"the Spark job failed: {_first_line(error)}") from error

    try:
        yield clean_up
    finally:
        if found is None:
            spark.stop()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _echo(cleaned: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        echo_json(cleaned)
        return
    fields = [(name, f"{cleaned[key]:,}") for key, name in NOUNS.items()]
    least = cleaned["least_needed"]
    echo_fields([*fields, ("least transaction needed", least or "none")])
    if cleaned["held_back"] is not None:
        note(f"of the old invalid transactions {cleaned['held_back']}")


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """Shows a bar on standard error, if a terminal, while this process cleans up."""
    with later_bar(length=1) as bar:
        if bar is None:
            yield None
            return

        def on_progress(topic: str, done: int, all_topics: int) -> None:
            label = f"{counted(all_topics, 'topic')}, {topic}"
            bar.move(label, to=done, length=max(all_topics, 1))

        yield on_progress
