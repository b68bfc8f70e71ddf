"""`txaware topic`: create, list, update and delete topics, and look into them."""

import sys

import click

from txaware.cli.session import Session, pass_session
from txaware.cli.show import duration_text, echo_columns, echo_json
from txaware.cli.topic_look import peek, show
from txaware.cli.topic_options import (
    full_name,
    json_option,
    namespace_option,
    properties_text,
    topic_json,
)
from txaware.cli.values import duration, pair
from txaware.topics import Topic

ttl_option = click.option(
    "--ttl",
    type=duration,
    help="How long messages live: seconds, or 15m, 12h, 7d.",
)
property_option = click.option(
    "--property",
    "properties",
    type=pair,
    multiple=True,
    metavar="NAME=VALUE",
    help="A property of your own; `publishing` is any, transactional or plain, and "
    "says what the topic accepts. May be repeated.",
)


@click.group(short_help="Create, list, show, update, delete topics; peek.")
def topic() -> None:
    """Create, list, show, update, delete topics; peek at their rows.

    \b
    Example:
      txaware topic create orders --ttl 7d --property owner=shop
      txaware topic show orders
    """


topic.add_command(show)
topic.add_command(peek)


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@ttl_option
@property_option
@namespace_option
@json_option
@pass_session
def create(
    session: Session,
    *,
    names: tuple[str, ...],
    ttl: float | None,
    properties: tuple[tuple[str, str], ...],
    namespace: str,
    as_json: bool,
) -> None:
    """Create topics, and the data directory where there is none.

    A topic that was deleted begins anew, as its next generation.

    \b
    Example:
      txaware topic create orders payments --ttl 7d
      txaware topic create audit --property publishing=transactional
    """
    with session.open(create=True) as messaging:
        for name in names:
            created = messaging.create_topic(
                full_name(name, namespace), ttl_s=_ttl(ttl), properties=dict(properties)
            )
            _echo_done("created", created, as_json=as_json)


@topic.command("list")
@namespace_option
@json_option
@pass_session
def list_(session: Session, *, namespace: str, as_json: bool) -> None:
    """List the topics of a namespace.

    \b
    Example:
      txaware topic list
      txaware topic list --namespace shop --json
    """
    with session.open() as messaging:
        names = messaging.topics(namespace)
        topics = [messaging.topic(full_name(name, namespace)) for name in names]
    if as_json:
        for one in topics:
            echo_json(topic_json(one))
        return
    rows = [
        (one.topic, duration_text(one.ttl_s), one.generation, properties_text(one))
        for one in topics
    ]
    header = ("TOPIC", "TTL", "GENERATION", "PROPERTIES")
    echo_columns(header, rows, empty=f"no topics in namespace {namespace}")


@topic.command()
@click.argument("name")
@ttl_option
@property_option
@click.option(
    "--remove",
    "removed",
    multiple=True,
    metavar="NAME",
    help="A property to take away. May be repeated.",
)
@namespace_option
@json_option
@pass_session
def update(
    session: Session,
    *,
    name: str,
    ttl: float | None,
    properties: tuple[tuple[str, str], ...],
    removed: tuple[str, ...],
    namespace: str,
    as_json: bool,
) -> None:
    """Change the time to live or properties; what is not named stays.

    \b
    Example:
      txaware topic update orders --ttl 30d --property owner=billing
      txaware topic update orders --remove owner
    """
    if ttl is None and not properties and not removed:
        raise click.UsageError("nothing to change; give --ttl, --property or --remove")
    with session.open() as messaging:
        updated = messaging.update_topic(
            full_name(name, namespace),
            ttl_s=_ttl(ttl),
            properties=dict.fromkeys(removed) | dict(properties),
        )
        _echo_done("updated", updated, as_json=as_json)


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@namespace_option
@pass_session
def delete(
    session: Session, *, names: tuple[str, ...], yes: bool, namespace: str
) -> None:
    """Delete topics, with all their messages. Asks first, on a terminal.

    \b
    Example:
      txaware topic delete orders --yes
    """
    asks = not yes and sys.stdin.isatty()
    with session.open() as messaging:
        for name in names:
            found = messaging.topic(full_name(name, namespace))
            if asks and not click.confirm(f"Delete {found.topic} and its messages?"):
                continue
            messaging.delete_topic(full_name(name, namespace))
            click.echo(f"deleted topic {found.topic}")


def _ttl(ttl: float | None) -> int | str | None:
    """The service checks it, and says what is wrong with half a second."""
    return ttl if ttl is None or isinstance(ttl, int) else str(ttl)


def _echo_done(done: str, topic: Topic, *, as_json: bool) -> None:
    if as_json:
        echo_json(topic_json(topic))
    else:
        click.echo(f"{done} topic {topic.topic}, ttl {duration_text(topic.ttl_s)}")
