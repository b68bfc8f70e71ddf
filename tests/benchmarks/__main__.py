"""Benchmarks beside `txaware bench`: commits, producers, HBase, Spark, pages, memory.

python -m tests.benchmarks commit|before|producers|sender|hbase|spark|queue --help
python -m tests.benchmarks web|large|memory|scheduler|page|cluster|groups --help
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import attrs
import click

from coordinator.errors import install_with
from tests.benchmarks import before as before_figures
from tests.benchmarks import (
    chosen_sync,
    client_transactions,
    commit_path,
    wrk_transactions,
)
from tests.benchmarks import cluster as cluster_figures
from tests.benchmarks import groups as group_figures
from tests.benchmarks import hbase as hbase_figures
from tests.benchmarks import large as large_figures
from tests.benchmarks import memory as memory_figures
from tests.benchmarks import page as page_figures
from tests.benchmarks import producers as producer_figures
from tests.benchmarks import queue as queue_figures
from tests.benchmarks import scheduler as scheduler_figures
from tests.benchmarks import sender as sender_figures
from tests.benchmarks import spark as spark_figures
from tests.benchmarks import web as web_figures
from txaware.bench.embedded import LETTERS as EMBEDDED
from txaware.bench.http import LETTERS as HTTP
from txaware.bench.trial import MANY_MESSAGES
from txaware.cli.bench import (
    bench_options,
    bench_trial,
    end_with,
    help_text,
    show_all,
    show_figures,
)
from txaware.cli.failures import Commands

SPARK_METHOD = f"""Measures PySpark with two tasks at once, and a server beside it.

All of them share this machine. Needs Java 17, and {install_with("spark")}. Every
figure is shown as by `txaware bench embedded`.
"""

HBASE_METHOD = f"""Measures a store in HBase against what happybase does by itself.

Nothing is read from the cache of this process. By default it starts an HBase of its
own, which needs Java 17, and {install_with("hbase")}; all of it shares this
machine. Every figure is shown as by `txaware bench embedded`.
"""

PRODUCERS_METHOD = f"""Measures producers, most of it beside a Kafka on this machine.

Kafka 3.9 runs twice: it syncs each request to the disk, or leaves that to the system as
it does by default. All take turns in one run. Needs Java, confluent-kafka from pip, and
{install_with("tephra")}. Every figure is shown as by `txaware bench embedded`.
"""

SENDER_METHOD = f"""Measures the sender and partitions: all of their floors.

a and i need git, and the history of this checkout; b needs Java, confluent-kafka from
pip, and {install_with("tephra")}; h needs {install_with("zstd")}. Each side has the
same machine, so that with much else on it the processor time tells more than the rate.
Every figure is shown as by `txaware bench embedded`.
"""

QUEUE_METHOD = """Measures work queues beside others on this machine.

Needs PostgreSQL and Redis from Debian's packages, and from pip psycopg[binary], redis,
persist-queue and pgmq, which brings its SQL. Every figure is shown as by `txaware bench
embedded`.
"""

LARGE_METHOD = """Measures a directory with millions of messages.

Every figure is shown as by `txaware bench embedded`.
"""

WEB_METHOD = f"""Measures an endpoint of a web shop with an event beside one without.

Needs wrk and PostgreSQL from Debian's packages, and {install_with("dev")}. Every figure
is shown as by `txaware bench embedded`.
"""

MEMORY_METHOD = """Measures the memory of a very large transaction.

Every figure is shown as by `txaware bench embedded`.
"""

SCHEDULER_METHOD = f"""Measures the scheduler of the examples.

Needs Chromium and its driver from Debian's packages, and {install_with("dev")}.
Every figure is shown as by `txaware bench embedded`.
"""

PAGE_METHOD = f"""Measures the page of a server that has thousands of names.

Needs Chromium and its driver from Debian's packages, and {install_with("dev")}.
Every figure is shown as by `txaware bench embedded`.
"""

GROUPS_METHOD = """Measures members of groups: all of their floors.

They, their server and this command share the machine: with much else on it nothing
settles in time. Every figure is shown as by `txaware bench embedded`.
"""

CLUSTER_METHOD = """Measures two processes of one store beside one process.

They and their clients share this machine, so that the processor time of both for each
message stands beside each ratio. Without --long it takes a minute or two, and a bound
that is missed tells nothing. Every figure is shown as by `txaware bench embedded`.
"""


@click.group(cls=Commands)
def benchmarks() -> None:
    """Measures commits, producers, HBase, Spark, queues, pages, rows, processes."""


def _measure(
    name: str,
    method: str,
    measured: ModuleType,
    *,
    usual: Mapping[str, Any] = MappingProxyType({}),
    less: Mapping[str, Any],
) -> None:
    """Adds the command of a module; with --quick it measures `less` than usual."""

    @benchmarks.command(name, help=help_text(method, measured.FIGURES))
    @bench_options(measured.LETTERS)
    def show(*, quick: bool, **options: Any) -> None:
        changes = {**usual, **(less if quick else {})}
        show_figures(measured.figures, changes, quick=quick, **options)


_measure("spark", SPARK_METHOD, spark_figures, less={"rounds": 2, "scale": 0.04})
_measure(
    "producers",
    PRODUCERS_METHOD,
    producer_figures,
    less={"rounds": 3, "for_s": 0.5, "scale": 0.1},
)
_measure(
    "sender",
    SENDER_METHOD,
    sender_figures,
    less={"rounds": 2, "for_s": 0.5, "scale": 0.1},
)
_measure(
    "queue",
    QUEUE_METHOD,
    queue_figures,
    less={"rounds": 3, "for_s": 0.3, "scale": 0.02},
)
_measure("web", WEB_METHOD, web_figures, less={"rounds": 2, "for_s": 0.3})
_measure("memory", MEMORY_METHOD, memory_figures, less={"scale": 0.04})
_measure(
    "scheduler",
    SCHEDULER_METHOD,
    scheduler_figures,
    usual={"for_s": 10.0},
    less={"rounds": 2, "for_s": 3.0, "scale": 0.1},
)
_measure("page", PAGE_METHOD, page_figures, less={"rounds": 2})
_measure(
    "groups",
    GROUPS_METHOD,
    group_figures,
    usual={"rounds": group_figures.ROUNDS},
    less={"rounds": 1, "scale": 0.2},
)


@benchmarks.command(help=help_text(HBASE_METHOD, hbase_figures.FIGURES))
@bench_options(hbase_figures.LETTERS)
@click.option(
    "--url",
    metavar="hbase://HOST:PORT/PREFIX",
    help="Measure this HBase, in tables of new names that begin with PREFIX, and that "
    "are removed in the end.",
)
def hbase(*, quick: bool, url: str | None, **options: Any) -> None:
    """Measures a store in HBase; the help is made of what is measured."""
    changes: dict[str, Any] = {"hbase": url, "for_s": 2.0}
    if quick:
        changes |= {"rounds": 3, "for_s": 0.5, "scale": 0.1}
    show_figures(hbase_figures.figures, changes, quick=quick, **options)


@benchmarks.command(help=help_text(LARGE_METHOD, large_figures.FIGURES))
@bench_options(large_figures.LETTERS)
@click.option(
    "--messages",
    type=click.IntRange(1000),
    help=f"How many messages g and h open; the default is {MANY_MESSAGES:,}.",
)
def large(*, quick: bool, messages: int | None, **options: Any) -> None:
    """Measures much data; the help is made of what is measured."""
    changes: dict[str, Any] = {}
    if quick:
        changes = {"rounds": 3, "for_s": 0.2, "scale": 0.04, "messages": 100_000}
    if messages is not None:
        changes["messages"] = messages
    show_figures(large_figures.figures, changes, quick=quick, **options)


@benchmarks.command(help=help_text(CLUSTER_METHOD, cluster_figures.FIGURES))
@bench_options(cluster_figures.LETTERS)
@click.option("--long", is_flag=True, help="Measure for five minutes.")
def cluster(
    *, quick: bool, long: bool, only: str, directory: Path, only_json: bool
) -> None:
    """Measures several processes; the help is made of what is measured."""
    with bench_trial(directory) as trial:
        trial = attrs.evolve(trial, rounds=3, for_s=1.0, scale=0.2)
        if quick:
            trial = attrs.evolve(trial, rounds=1)
        if long:
            trial = attrs.evolve(trial, rounds=7, for_s=4.0, scale=1.0)
        kept = show_all(cluster_figures.figures(trial, only), only_json=only_json)
    end_with(kept, quick=not long)


@benchmarks.command()
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Measure on the disk of this directory; the default is the current one.",
)
@click.option("--transactions", default=2000, help="Take the median of so many.")
def commit(*, directory: Path, transactions: int) -> None:
    """Shows where the time goes: of a transaction, and until a reader has it.

    The first table has the steps of a transaction of one message in one thread. The
    second has the time from its begin until a waiting poll has returned. Each moment
    counts for one step. Measuring takes about a tenth of the time by itself.
    """
    with bench_trial(directory) as trial:
        for steps in (commit_path.commit_steps, commit_path.reader_steps):
            for step in steps(trial, transactions=transactions):
                click.echo(step.line())
            click.echo()


@benchmarks.command()
@click.option(
    "--sync-us",
    type=click.IntRange(1, 999_999),
    default=100,
    help="Let each sync take so many microseconds; the default is 100.",
)
@click.option("--only", metavar="a,b,...", default="a,b,f", help="As of embedded.")
@click.option("--quick", is_flag=True, help="Measure little.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/dev/shm"),
    help="Measure in this directory; the default is one in memory, /dev/shm.",
)
def sync(*, sync_us: int, only: str, quick: bool, directory: Path) -> None:
    """Runs `txaware bench embedded` on a disk whose sync takes a chosen time.

    Needs a C compiler. SQLite has the same disk.
    """
    asked = ["--only", only, "--directory", str(directory), *["--quick"] * quick]
    command = [sys.executable, "-m", "txaware", "bench", "embedded", *asked]
    with chosen_sync.syncs_take(sync_us) as environment:
        raise SystemExit(subprocess.run(command, env=environment).returncode)


@benchmarks.command()
@click.argument(
    "checkout", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@click.argument("kind", type=click.Choice(["embedded", "http", "wrk", "client"]))
@click.option("--only", metavar="a,b,...", help="Measure these figures only.")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    help="So many turns; the default is 5.",
)
@click.option("--quick", is_flag=True, help="Measure little in each turn.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Measure on the disk of this directory; the default is the current one.",
)
def before(
    *,
    checkout: Path,
    kind: str,
    only: str | None,
    rounds: int,
    quick: bool,
    directory: Path,
) -> None:
    """Measures what an older CHECKOUT did beside this one, in turns.

    KIND is a benchmark of `txaware bench`, which both have, or transactions of one
    message: wrk has them over HTTP/1.1, and client by our client as it connects by
    itself, 8 threads of a process and 8 processes. An older checkout is made by
    `git worktree add --detach DIRECTORY COMMIT`.

    Each figure is shown when its turns are over. All of http take 40 minutes, and 7
    with --quick.
    """
    known = {"embedded": EMBEDDED, "http": HTTP}.get(kind, "")
    letters = known if only is None else only.replace(",", "").replace(" ", "")
    if set(letters) - set(known):
        raise click.BadParameter(f"figures are {', '.join(known)}, not {only!r}")
    with bench_trial(directory) as trial:
        trial = attrs.evolve(trial, rounds=rounds, for_s=1.0 if quick else 8.0)
        if kind == "wrk":
            figures = wrk_transactions.figures(trial, checkout)
        elif kind == "client":
            figures = client_transactions.figures(trial, checkout)
        else:
            figures = before_figures.figures(
                trial, checkout, kind, letters, quick=quick
            )
        show_all(figures, only_json=False)


if __name__ == "__main__":
    benchmarks(prog_name="python -m tests.benchmarks")
