"""`txaware topic`: create, list, update and delete topics, and look into them."""

import json
from collections.abc import Sequence
from typing import Any

import attrs
import click

from txaware.cli.session import Session, pass_session
from txaware.cli.show import (
    NOTHING,
    duration_text,
    echo_columns,
    echo_fields,
    echo_json,
    labels_json,
    labels_text,
    payload_text,
    size_text,
    time_text,
)
from txaware.cli.values import (
    duration,
    exist_ok_option,
    full_name,
    imported,
    is_sure,
    json_option,
    limit_option,
    namespace_option,
    offsets_at,
    pair,
    place,
    properties_text,
    topic_json,
    yes_option,
)
from txaware.messaging import Messaging
from txaware.model.event_type import EventType
from txaware.model.messages import BlockedBy, text_or_base64
from txaware.model.partitions import shown_partitions
from txaware.model.reports import Peeked, TopicReport
from txaware.model.requests import Start
from txaware.model.search import MOST_FOUND
from txaware.model.start_places import StartAt
from txaware.model.topics import Topic


@click.command()
@click.argument("name")
@namespace_option
@json_option
@pass_session
def show(session: Session, *, name: str, namespace: str, as_json: bool) -> None:
    """Show a topic, how much is in it, and who keeps its readers waiting.

    It counts every row, which takes a while in a large topic.

    \b
    Example:
      txaware topic show orders
    """
    full = full_name(name, namespace)
    with session.open() as messaging:
        found = messaging.topic(full)
        if found.partitions > 1 and full == str(found.topic):
            _show_partitions(messaging, found, as_json=as_json)
            return
        report = messaging.inspect(full)
    if as_json:
        echo_json(topic_json(found) | _report_json(report))
    else:
        echo_fields([*_topic_fields(found), *_report_fields(report)])


def _show_partitions(messaging: Messaging, found: Topic, *, as_json: bool) -> None:
    stable = messaging.offsets(str(found.topic), at="stable")
    reports = [
        (number, messaging.inspect(name))
        for number, (name, _) in enumerate(shown_partitions(found))
    ]
    if as_json:
        parts = [
            _report_json(report)
            | {
                "partition": number,
                "stable": stable[number] and str(stable[number]),
                "per_s": _per_s(report),
            }
            for number, report in reports
        ]
        echo_json(topic_json(found) | {"partitions": parts})
        return
    echo_fields(_topic_fields(found))
    header = ("PARTITION", "MESSAGES", "SIZE", "PER S", "FIRST", "LAST", "LAST STABLE")
    rows = [
        (
            number,
            f"{report.messages:,}",
            size_text(report.bytes),
            NOTHING if (rate := _per_s(report)) is None else f"{rate:,.1f}",
            report.bounds.first or NOTHING,
            report.bounds.last or NOTHING,
            stable[number] or NOTHING,
        )
        for number, report in reports
    ]
    echo_columns(header, rows, empty="no partitions")


def _per_s(report: TopicReport) -> float | None:
    """Returns how many messages came in a second, from the oldest to the newest."""
    if report.oldest_ms is None or report.newest_ms is None:
        return None
    took_ms = report.newest_ms - report.oldest_ms
    return round(report.messages * 1000 / took_ms, 3) if took_ms else None


def _report_json(report: TopicReport) -> dict[str, object]:
    counts = ("messages", "references", "stored", "bytes", "rolled_back")
    bounds = report.bounds
    return {key: getattr(report, key) for key in counts} | {
        "oldest": report.oldest_ms and time_text(report.oldest_ms),
        "newest": report.newest_ms and time_text(report.newest_ms),
        "in_progress": list(report.in_progress),
        "blocked_by": report.blocked_by and attrs.asdict(report.blocked_by),
        "first": bounds.first and str(bounds.first),
        "last": bounds.last and str(bounds.last),
        "next": str(bounds.next),
    }


def _topic_fields(topic: Topic) -> list[tuple[str, object]]:
    return [
        ("topic", topic.topic),
        ("generation", topic.generation),
        ("time to live", duration_text(topic.ttl_s)),
        ("properties", properties_text(topic)),
    ]


def _report_fields(report: TopicReport) -> list[tuple[str, object]]:
    return [
        ("messages", f"{report.messages:,}"),
        ("references", f"{report.references:,} (to {report.stored:,} stored)"),
        ("rolled back", f"{report.rolled_back:,}"),
        ("size", size_text(report.bytes)),
        ("oldest", time_text(report.oldest_ms)),
        ("newest", time_text(report.newest_ms)),
        ("first id", report.bounds.first or NOTHING),
        ("last id", report.bounds.last or NOTHING),
        ("in progress", ", ".join(map(str, report.in_progress)) or NOTHING),
        ("blocked by", _blocked(report.blocked_by)),
    ]


@click.command()
@click.argument("name")
@click.option(
    "--from",
    "start",
    type=place,
    default="first",
    help="Where to begin: an id, a time, first, last or next.",
)
@limit_option("rows", 20)
@namespace_option
@json_option
@pass_session
def peek(
    session: Session,
    *,
    name: str,
    start: StartAt,
    limit: int,
    namespace: str,
    as_json: bool,
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
    _echo_rows(rows, as_json=as_json, empty="no rows")


def _echo_rows(rows: Sequence[Peeked], *, as_json: bool, empty: str) -> None:
    if as_json:
        for row in rows:
            echo_json(_row_json(row))
        return
    header = ("TIME", "STATE", "TRANSACTION", "BYTES", "PAYLOAD")
    echo_columns(header, [_row(row) for row in rows], empty=empty)


@click.command()
@click.argument("name")
@click.option("--key", help="The whole key.")
@click.option(
    "--header",
    metavar="NAME[=VALUE]",
    help="A header that it has, with any value or with this one.",
)
@click.option("--text", help="A part of its payload, in capitals or not.")
@click.option(
    "--from", "start", type=place, default="first", help="Where to begin, as in peek."
)
@click.option("--until", type=place, help="It was published before this time.")
@limit_option("rows", 20)
@namespace_option
@json_option
@pass_session
def search(
    session: Session,
    *,
    name: str,
    key: str | None,
    header: str | None,
    text: str | None,
    start: StartAt,
    until: StartAt,
    limit: int,
    namespace: str,
    as_json: bool,
) -> None:
    """Look for messages by key, header, text and time; consumes nothing.

    It reads the topic from --from on until it has found as many as --limit says, or is
    at the end.

    \b
    Example:
      txaware topic search orders --key ann --text refund --from 2026-01-31
      txaware topic search orders --header source='till 3' --limit 5 --json
    """
    if until is not None and (isinstance(until, bool) or not isinstance(until, int)):
        raise click.UsageError("--until takes a time")
    named, is_given, value = (None, "", "") if header is None else header.partition("=")
    found: list[Peeked] = []
    with session.open() as messaging:
        full = full_name(name, namespace)
        place_now = _start(messaging, full, start)
        while len(found) < limit:
            page = messaging.search(
                full,
                start=place_now,
                until=until,
                key=None if key is None else key.encode(),
                header=named,
                header_value=value.encode() if is_given else None,
                text=text,
                limit=min(limit - len(found), MOST_FOUND),
            )
            found += page.rows
            if page.next is None:
                break
            place_now = page.next
    _echo_rows(found, as_json=as_json, empty="no row fits")


def _row_json(row: Peeked) -> dict[str, object]:
    return {
        "id": str(row.id),
        "time": time_text(row.id.publish_time_ms),
        "state": row.state,
        "transaction": row.pointer,
        "bytes": row.size_bytes,
        "payload": None if row.payload is None else text_or_base64(row.payload),
        **labels_json(row),
    }


def _row(row: Peeked) -> tuple[object, ...]:
    return (
        time_text(row.id.publish_time_ms),
        row.state,
        row.pointer or NOTHING,
        row.size_bytes,
        "(a reference)" if row.payload is None else _shown(row),
    )


def _shown(row: Peeked) -> str:
    labels = labels_text(row)
    return (
        f"{labels} {payload_text(row.payload or b'')}"
        if labels
        else payload_text(row.payload or b"")
    )


def _start(messaging: Messaging, topic: str, start: StartAt) -> Start:
    if not isinstance(start, str):
        return start
    bounds = messaging.bounds(topic)
    return {"first": None, "last": bounds.last, "next": bounds.next}[start]


def _blocked(blocked_by: BlockedBy | None) -> str:
    if blocked_by is None:
        return NOTHING
    return (
        f"transaction {blocked_by.pointer}, by a message of "
        f"{time_text(blocked_by.since_ms)}"
    )


@click.command()
@click.argument("name")
@click.option(
    "--at",
    type=offsets_at,
    default="last",
    help="Which place: first, last, stable (up to which all is decided), or a time.",
)
@namespace_option
@json_option
@pass_session
def offsets(
    session: Session, *, name: str, at: Any, namespace: str, as_json: bool
) -> None:
    """Tell an id in each partition of a topic.

    \b
    Example:
      txaware topic offsets orders --at stable
      txaware topic offsets orders --at 2026-01-31T12:00:00Z
    """
    with session.open() as messaging:
        found = messaging.offsets(full_name(name, namespace), at=at)
    if as_json:
        echo_json(
            {str(n): None if one is None else str(one) for n, one in found.items()}
        )
        return
    rows = [
        (
            number,
            one or NOTHING,
            NOTHING if one is None else time_text(one.publish_time_ms),
        )
        for number, one in found.items()
    ]
    echo_columns(("PARTITION", "ID", "TIME"), rows, empty="no partitions")


ttl_option = click.option(
    "--ttl",
    type=duration,
    help="How long messages live: seconds, or 15m, 12h, 7d.",
)
compact_option = click.option(
    "--compact/--no-compact",
    "compact",
    default=None,
    help="Keep the newest message of each key beyond the time to live, and have "
    "clean-ups remove the others.",
)
partitions_option = click.option(
    "--partitions",
    type=int,
    help="How many partitions, each with an order of its own; they are only added.",
)
shards_option = click.option(
    "--shards",
    metavar="N,...",
    help="The shards over which the partitions are spread, as 1,2; all by default.",
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


@click.group(short_help="Create, list, show, update, delete topics; peek; schema.")
def topic() -> None:
    """Create, list, show, update, delete topics; peek; describe events.

    \b
    Example:
      txaware topic create orders --ttl 7d --property owner=shop
      txaware topic show orders
    """


topic.add_command(show)
topic.add_command(peek)
topic.add_command(offsets)
topic.add_command(search)


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@ttl_option
@compact_option
@partitions_option
@shards_option
@property_option
@exist_ok_option
@namespace_option
@json_option
@pass_session
def create(
    session: Session,
    *,
    names: tuple[str, ...],
    ttl: int | None,
    compact: bool | None,
    partitions: int | None,
    shards: str | None,
    properties: tuple[tuple[str, str], ...],
    exist_ok: bool,
    namespace: str,
    as_json: bool,
) -> None:
    """Create topics, and the data directory where there is none.

    A topic that was deleted begins anew, as its next generation.

    \b
    Example:
      txaware topic create orders payments --ttl 7d
      txaware topic create orders --exist-ok
      txaware topic create audit --property publishing=transactional
      txaware topic create config --compact
      txaware topic create clicks --partitions 12
    """
    with session.open(create=True) as messaging:
        for name in names:
            created = messaging.create_topic(
                full_name(name, namespace),
                ttl_s=ttl,
                properties=dict(properties),
                compact=compact,
                partitions=partitions,
                shards=shards,
                exist_ok=exist_ok,
            )
            done = "there is" if exist_ok else "created"
            _echo_done(done, created, as_json=as_json)


@topic.command("list")
@click.option(
    "--sizes",
    "with_sizes",
    is_flag=True,
    help="About how many bytes the store has of each; what came last may be missing.",
)
@namespace_option
@json_option
@pass_session
def list_(session: Session, *, with_sizes: bool, namespace: str, as_json: bool) -> None:
    """List the topics of a namespace.

    \b
    Example:
      txaware topic list
      txaware topic list --sizes
      txaware topic list --namespace shop --json
    """
    with session.open() as messaging:
        names = messaging.topics(namespace)
        topics = [messaging.topic(full_name(name, namespace)) for name in names]
        sizes = messaging.topic_sizes(namespace) if with_sizes else {}
    if as_json:
        for one in topics:
            size = {"bytes": sizes.get(one.name)} if with_sizes else {}
            echo_json(topic_json(one) | size)
        return
    header = ["TOPIC", "TTL", "GENERATION", "PROPERTIES"]
    rows = [
        [one.topic, duration_text(one.ttl_s), one.generation, properties_text(one)]
        for one in topics
    ]
    if with_sizes:
        header.insert(1, "SIZE")
        for one, row in zip(topics, rows, strict=True):
            known = one.name in sizes  # it may be deleted meanwhile
            row.insert(1, size_text(sizes[one.name]) if known else NOTHING)
    echo_columns(header, rows, empty=f"no topics in namespace {namespace}")


@topic.command()
@click.argument("name")
@ttl_option
@compact_option
@partitions_option
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
    ttl: int | None,
    compact: bool | None,
    partitions: int | None,
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
      txaware topic update clicks --partitions 24
    """
    if ttl is compact is partitions is None and not properties and not removed:
        raise click.UsageError(
            "nothing to change; give --ttl, --compact, --partitions, --property or "
            "--remove"
        )
    with session.open() as messaging:
        updated = messaging.update_topic(
            full_name(name, namespace),
            ttl_s=ttl,
            properties=dict.fromkeys(removed) | dict(properties),
            compact=compact,
            partitions=partitions,
        )
        _echo_done("updated", updated, as_json=as_json)


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@yes_option
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
    with session.open() as messaging:
        for name in names:
            found = messaging.topic(full_name(name, namespace))
            if not is_sure(f"Delete {found.topic} and its messages?", yes=yes):
                continue
            messaging.delete_topic(full_name(name, namespace))
            click.echo(f"deleted topic {found.topic}")


@topic.command()
@click.argument("target", metavar="MODULE:NAME")
def schema(target: str) -> None:
    """Print the events of a topic as JSON Schema.

    NAME is the class of the events, or a handle that a program made of it by
    messaging.topic(..., type=...). MODULE is looked for in this directory, too.

    \b
    Example:
      txaware topic schema shop.events:OrderPlaced
    """
    found: Any = imported(target, what="name")
    event_type = getattr(found, "event_type", None) or EventType(found)
    click.echo(json.dumps(event_type.json_schema(), indent=2))


def _echo_done(done: str, topic: Topic, *, as_json: bool) -> None:
    if as_json:
        echo_json(topic_json(topic))
    else:
        click.echo(f"{done} topic {topic.topic}, ttl {duration_text(topic.ttl_s)}")
