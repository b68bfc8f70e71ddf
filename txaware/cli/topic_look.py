"""`txaware topic show` and `peek`: look into a topic, and consume nothing."""

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
from txaware.cli.topic_options import (
    full_name,
    json_option,
    namespace_option,
    properties_text,
    topic_json,
)
from txaware.cli.values import place
from txaware.consume.start_places import StartAt
from txaware.messages import BlockedBy, MessageId
from txaware.messaging import Messaging
from txaware.service.monitor.inspection import Peeked, TopicReport
from txaware.topics import Topic


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
    with session.open() as messaging:
        found = messaging.topic(full_name(name, namespace))
        report = messaging.inspect(full_name(name, namespace))
    if as_json:
        echo_json(topic_json(found) | _report_json(report))
    else:
        echo_fields([*_topic_fields(found), *_report_fields(report)])


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
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
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
    if as_json:
        for row in rows:
            echo_json(_row_json(row))
        return
    header = ("TIME", "STATE", "TRANSACTION", "BYTES", "PAYLOAD")
    echo_columns(header, [_row(row) for row in rows], empty="no rows")


def _row_json(row: Peeked) -> dict[str, object]:
    return {
        "id": str(row.id),
        "time": time_text(row.id.publish_time_ms),
        "state": row.state,
        "transaction": row.pointer,
        "bytes": row.size_bytes,
        "payload": None if row.payload is None else payload_json(row.payload),
    }


def _row(row: Peeked) -> tuple[object, ...]:
    return (
        time_text(row.id.publish_time_ms),
        row.state,
        row.pointer or NOTHING,
        row.size_bytes,
        "(a reference)" if row.payload is None else payload_text(row.payload),
    )


def _start(messaging: Messaging, topic: str, start: StartAt) -> MessageId | int | None:
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
