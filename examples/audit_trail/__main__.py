"""The command line: `python -m examples.audit_trail --help`."""

import signal
import threading
from datetime import datetime

import click

import txaware
from examples.audit_trail.datasets import Datasets
from examples.audit_trail.readers import READERS, made_from, touched

url_option = click.option(
    "--url",
    envvar="TXAWARE_URL",
    default="leveldb:./audit-data",
    show_default=True,
    help="Where the topic and the tables are: leveldb:DIR, memory:, http://HOST:PORT.",
)
reader_argument = click.argument("name", type=click.Choice([*READERS]))


@click.group()
@url_option
@click.pass_context
def audit(context: click.Context, url: str) -> None:
    """Who touched which data set, and what came from it."""
    messaging = context.with_resource(txaware.connect(url))
    Datasets(messaging)  # makes the topic
    context.obj = messaging


@audit.command()
@click.argument("name")
@click.option("--who", required=True, help="Who runs it.")
@click.option("--read", "reads", multiple=True, help="A data set that it reads.")
@click.option("--write", "writes", multiple=True, help="A data set that it makes.")
@click.pass_obj
def run(
    messaging: txaware.Messaging,
    name: str,
    who: str,
    reads: tuple[str, ...],
    writes: tuple[str, ...],
) -> None:
    """Do the run NAME: it reads data sets, and makes new versions of others."""
    with Datasets(messaging).run(who, name) as work:
        for dataset in reads:
            work.read(dataset)
        made = [f"{dataset}@{work.write(dataset)}" for dataset in writes]
    click.echo(f"{name}: {', '.join(made) or 'nothing was written'}")


@audit.command()
@click.option("--once", is_flag=True, help="End when all that is there was read.")
@click.pass_obj
def follow(messaging: txaware.Messaging, once: bool) -> None:
    """Run the three readers until Ctrl-C, or once."""
    if once:
        for name, reader in READERS.items():
            click.echo(f"{name}: {reader.catch_up(messaging)} accesses")
        return
    loops = [reader.loop(messaging) for reader in READERS.values()]
    threads = [threading.Thread(target=loop.run) for loop in loops]
    for thread in threads:
        thread.start()
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    for loop, thread in zip(loops, threads, strict=True):
        loop.close()
        thread.join()


@audit.command()
@click.argument("dataset")
@click.pass_obj
def who(messaging: txaware.Messaging, dataset: str) -> None:
    """Print who touched a data set, and when."""
    for line in touched(messaging, dataset):
        name = f"{line['dataset']}@{line['version']}"
        click.echo(
            f"{line['at']}  {line['what']:5}  {name}  {line['who']}, {line['run']}"
        )


@audit.command("from")
@click.argument("dataset")
@click.pass_obj
def from_(messaging: txaware.Messaging, dataset: str) -> None:
    """Print what came from a data set, or from one version of it (crm@3)."""
    for made, by in made_from(messaging, dataset).items():
        click.echo(f"{made}  {by}")


@audit.command()
@click.pass_obj
def usage(messaging: txaware.Messaging) -> None:
    """Print how often each data set was read and written."""
    for key, row in READERS["usage"].table(messaging).items():
        by = ", ".join(f"{who} {count}" for who, count in sorted(row["by"].items()))
        click.echo(f"{key.decode()}  read {row['read']}, written {row['write']}: {by}")


@audit.command()
@reader_argument
@click.option("--since", required=True, help="A time with its zone, in ISO.")
@click.pass_obj
def replay(messaging: txaware.Messaging, name: str, since: str) -> None:
    """Have a reader forget its rows, and read again from a time on."""
    at = datetime.fromisoformat(since).astimezone()
    reader = READERS[name]
    reader.replay(messaging, int(at.timestamp() * 1000))
    click.echo(f"{name}: {reader.catch_up(messaging)} accesses since {since}")


if __name__ == "__main__":
    audit()
