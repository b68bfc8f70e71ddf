"""The command line: `python -m examples.metadata_search --help`."""

import signal
import threading

import attrs
import click

import txaware
from examples.metadata_search.entities import Entities, Entity
from examples.metadata_search.search import SearchIndex

PAUSE_S = 0.2
SAMPLES = (
    Entity("orders", "Orders", "what customers ordered, by day", "sales daily"),
    Entity("revenue", "Revenue", "money by day, made of orders", "sales finance"),
    Entity("people", "People", "who works here, and since when", "hr"),
)


@attrs.frozen
class Opened:
    """What the commands work on."""

    messaging: txaware.Messaging
    database: str
    index: SearchIndex


@click.group()
@click.option(
    "--url",
    envvar="TXAWARE_URL",
    default="leveldb:./search-data",
    show_default=True,
    help="Where the topic is: leveldb:DIR, memory:, http://HOST:PORT.",
)
@click.option(
    "--database",
    envvar="SEARCH_DATABASE",
    default="entities.db",
    show_default=True,
    help="The rows: a file of SQLite, or postgresql://...",
)
@click.option(
    "--index",
    envvar="SEARCH_INDEX",
    default="search.db",
    show_default=True,
    help="The file of the index.",
)
@click.pass_context
def search_(context: click.Context, url: str, database: str, index: str) -> None:
    """Rows of an application, and a full-text index in step with them."""
    messaging = context.with_resource(txaware.connect(url))
    context.obj = Opened(messaging, database, SearchIndex(messaging, index))


@search_.command()
@click.argument("id_", metavar="ID")
@click.argument("name")
@click.argument("description", default="")
@click.option("--tags", default="", help="Words that it is also found by.")
@click.pass_obj
def put(opened: Opened, id_: str, name: str, description: str, tags: str) -> None:
    """Write an entity, or what it is now."""
    with Entities(opened.messaging, opened.database) as entities:
        entities.put(Entity(id_, name, description, tags))
        entities.relay()


@search_.command()
@click.argument("id_", metavar="ID")
@click.pass_obj
def remove(opened: Opened, id_: str) -> None:
    """Remove an entity."""
    with Entities(opened.messaging, opened.database) as entities:
        entities.remove(id_)
        entities.relay()


@search_.command()
@click.option("--once", is_flag=True, help="End when all that is there was taken in.")
@click.pass_obj
def follow(opened: Opened, once: bool) -> None:
    """Keep the index in step until Ctrl-C, or bring it up to date once."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    count = opened.index.catch_up()
    while not once and not ended.wait(PAUSE_S):
        count += opened.index.catch_up()
    click.echo(f"{count} changes")


@search_.command()
@click.pass_obj
def rebuild(opened: Opened) -> None:
    """Build the index anew from the topic, while all else goes on."""
    click.echo(f"built anew of {opened.index.rebuild()} changes")


@search_.command()
@click.argument("words", nargs=-1, required=True)
@click.pass_obj
def find(opened: Opened, words: tuple[str, ...]) -> None:
    """Print the entities that have all of these words; `ord*` is a beginning."""
    for hit in opened.index.search(" ".join(words)):
        click.echo(f"{hit.id}: {hit.name}: {hit.text}")


@search_.command()
@click.pass_obj
def demo(opened: Opened) -> None:
    """Write some entities, find them, and build the index anew."""
    with Entities(opened.messaging, opened.database) as entities:
        for entity in SAMPLES:
            entities.put(entity)
        entities.remove("people")
        entities.relay()
    click.echo(f"{opened.index.catch_up()} changes")
    for hit in opened.index.search("sales ord*"):
        click.echo(f"{hit.id}: {hit.name}: {hit.text}")
    click.echo(f"built anew of {opened.index.rebuild()} changes")
    click.echo(", ".join(opened.index.ids()))


if __name__ == "__main__":
    search_()
