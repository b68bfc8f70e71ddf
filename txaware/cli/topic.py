"""`txaware topic`: create, list, show, update, delete topics, and look into them."""

import sys

import attrs
import click

from txaware.cli.session import Session, pass_session
from txaware.cli.show import (
    NOTHING,
    duration_text,
    echo_columns,
    echo_fields,
    echo_json,
    payload_json,
    payload_text,
    size_text,
    time_text,
)
from txaware.cli.values import Duration, KeyValue, Place, Start
from txaware.interfaces import MessagingService
from txaware.messages import BlockedBy, MessageId
from txaware.topics import DEFAULT_NAMESPACE, Topic, TopicName

namespace_option = click.option(
    "--namespace",
    help="The namespace of names without one; as `namespace:name`.",
    default=DEFAULT_NAMESPACE,
    show_default=True,
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line."
)
ttl_option = click.option(
    "--ttl",
    type=Duration(),
    help="How long messages live: seconds, or 15m, 12h, 7d.",
)
property_option = click.option(
    "--property",
    "properties",
    type=KeyValue(),
    multiple=True,
    metavar="NAME=VALUE",
    help="A property of your own; `publishing` is any, transactional or plain, and "
    "says what the topic accepts. May be repeated.",
)


@click.group()
def topic() -> None:
    """Create, list, show, update, delete topics; peek at their rows.

    \b
    Example:
      txaware topic create orders --ttl 7d --property owner=shop
      txaware topic show orders
    """


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@ttl_option
@property_option
@namespace_option
@json_option
@pass_session
def create(
    session: Session,
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
def list_(session: Session, namespace: str, as_json: bool) -> None:
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
        (one.topic, duration_text(one.ttl_s), one.generation, _properties(one))
        for one in topics
    ]
    echo_columns(("TOPIC", "TTL", "GENERATION", "PROPERTIES"), rows)


@topic.command()
@click.argument("name")
@namespace_option
@json_option
@pass_session
def show(session: Session, name: str, namespace: str, as_json: bool) -> None:
    """Show a topic, how much is in it, and who keeps its readers waiting.

    It counts every row, which takes a while in a large topic.

    \b
    Example:
      txaware topic show orders
    """
    with session.open() as messaging:
        found = messaging.topic(full_name(name, namespace))
        report = messaging.inspect(full_name(name, namespace))
    bounds = report.bounds
    if as_json:
        counts = ("messages", "references", "stored", "bytes", "rolled_back")
        echo_json(
            topic_json(found)
            | {key: getattr(report, key) for key in counts}
            | {
                "oldest": report.oldest_ms and time_text(report.oldest_ms),
                "newest": report.newest_ms and time_text(report.newest_ms),
                "in_progress": list(report.in_progress),
                "blocked_by": report.blocked_by and attrs.asdict(report.blocked_by),
                "first": bounds.first and str(bounds.first),
                "last": bounds.last and str(bounds.last),
                "next": str(bounds.next),
            }
        )
        return
    echo_fields(
        [
            ("topic", found.topic),
            ("generation", found.generation),
            ("time to live", duration_text(found.ttl_s)),
            ("properties", _properties(found)),
            ("messages", f"{report.messages:,}"),
            ("references", f"{report.references:,} (to {report.stored:,} stored)"),
            ("rolled back", f"{report.rolled_back:,}"),
            ("size", size_text(report.bytes)),
            ("oldest", time_text(report.oldest_ms)),
            ("newest", time_text(report.newest_ms)),
            ("first id", bounds.first or NOTHING),
            ("last id", bounds.last or NOTHING),
            ("in progress", ", ".join(map(str, report.in_progress)) or NOTHING),
            ("blocked by", _blocked(report.blocked_by)),
        ]
    )


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
        found = messaging.topic(full_name(name, namespace))
        kept = {k: v for k, v in found.properties.items() if k not in removed}
        updated = messaging.update_topic(
            full_name(name, namespace),
            ttl_s=found.ttl_s if ttl is None else _ttl(ttl),
            properties=kept | dict(properties),
        )
        _echo_done("updated", updated, as_json=as_json)


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@namespace_option
@pass_session
def delete(
    session: Session, names: tuple[str, ...], yes: bool, namespace: str
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


@topic.command()
@click.argument("name")
@click.option(
    "--from",
    "start",
    type=Place(),
    default="first",
    help="Where to begin: an id, a time, first, last or next.",
)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@namespace_option
@json_option
@pass_session
def peek(
    session: Session, name: str, start: Start, limit: int, namespace: str, as_json: bool
) -> None:
    """Look at rows as they stand, whatever became of their transactions.

    Consumes nothing. A reference stands for what its transaction stored ahead.

    \b
    Example:
      txaware topic peek orders --from last
    """
    with session.open() as messaging:
        full = full_name(name, namespace)
        rows = messaging.peek(full, start=_start(messaging, full, start), limit=limit)
    if as_json:
        for row in rows:
            echo_json(
                {
                    "id": str(row.id),
                    "time": time_text(row.id.publish_time_ms),
                    "state": row.state,
                    "transaction": row.pointer,
                    "bytes": row.size_bytes,
                    "payload": row.payload and payload_json(row.payload),
                }
            )
        return
    echo_columns(
        ("TIME", "STATE", "TRANSACTION", "BYTES", "PAYLOAD"),
        [
            (
                time_text(row.id.publish_time_ms),
                row.state,
                row.pointer or NOTHING,
                row.size_bytes,
                "(a reference)" if row.payload is None else payload_text(row.payload),
            )
            for row in rows
        ],
    )


def full_name(name: str, namespace: str) -> str:
    """With its namespace, where it names none."""
    return name if ":" in name else str(TopicName(name, namespace))


def topic_json(topic: Topic) -> dict[str, object]:
    """A topic as `--json` prints it."""
    return {
        "topic": str(topic.topic),
        "generation": topic.generation,
        "ttl_s": topic.ttl_s,
        "properties": dict(topic.properties),
    }


def _ttl(ttl: float | None) -> int | str | None:
    """The service checks it, and says what is wrong with half a second."""
    return ttl if ttl is None or isinstance(ttl, int) else str(ttl)


def _start(messaging: MessagingService, topic: str, start: Start) -> MessageId | int | None:
    if not isinstance(start, str):
        return start
    bounds = messaging.bounds(topic)
    return {"first": None, "last": bounds.last, "next": bounds.next}[start]


def _properties(topic: Topic) -> str:
    pairs = sorted(topic.properties.items())
    return ", ".join(f"{key}={value}" for key, value in pairs) or NOTHING


def _blocked(blocked_by: BlockedBy | None) -> str:
    if blocked_by is None:
        return NOTHING
    return (
        f"transaction {blocked_by.pointer}, by a message of "
        f"{time_text(blocked_by.since_ms)}"
    )


def _echo_done(done: str, topic: Topic, *, as_json: bool) -> None:
    if as_json:
        echo_json(topic_json(topic))
    else:
        click.echo(f"{done} topic {topic.topic}, ttl {duration_text(topic.ttl_s)}")
