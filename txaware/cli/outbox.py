"""`txaware outbox`: carries messages over from databases, and what is set aside."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from txaware.cli.session import Session, pass_session
from txaware.cli.show import (
    counted,
    echo_columns,
    echo_json,
    labels_json,
    labels_text,
    note,
    payload_text,
)
from txaware.cli.stop import TICK_S, Stop, stopped_by_signal
from txaware.cli.values import interval, is_sure, json_option, limit_option, yes_option
from txaware.errors import (
    TransactionOutcomeUnknown,
    TransactionRefused,
    TxAwareError,
    Unavailable,
)
from txaware.model.messages import text_or_base64
from txaware.participants.background_work import Pauses
from txaware.participants.database_outbox import DatabaseOutbox
from txaware.participants.databases import open_noted_items, open_outbox
from txaware.participants.inbox_cleaner import InboxCleaner
from txaware.participants.outbox_relay import OutboxRelay
from txaware.participants.outbox_row import OutboxRows, SetAside

# A server or a database that is away comes back.
MAY_PASS = (Unavailable, TransactionRefused, TransactionOutcomeUnknown)

database_argument = click.argument("database")
topic_argument = click.argument("topic", metavar="TOPIC")


def queue_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the option that says what a name is of."""
    return click.option(
        "--queue/--topic",
        "is_queue",
        default=None,
        help="Which of both has that name, where both are set aside.",
    )(function)


@click.group(short_help="Carry messages over from a database's outbox.")
def outbox() -> None:
    """Carry messages and items over from the outbox of a DATABASE.

    DATABASE is a file of SQLite, or the address of a PostgreSQL (postgresql://...) or
    of a MySQL (mysql://USER@HOST/DATABASE). What cannot be carried over, as its topic
    or queue is not there, is set aside there.

    \b
    Example:
      txaware outbox relay shop.db
      txaware outbox list shop.db
    """


@outbox.command()
@database_argument
@click.option("--every", type=interval, help="Go on until Ctrl-C, this often: 1s.")
@pass_session
def relay(session: Session, *, database: str, every: float | None) -> None:
    """Carry over what waits in a DATABASE, each message once and in order.

    A program with a participant does this by itself, in the background; both may work
    on one outbox. Notes of popped items that have ended are removed, too.

    With --every it is woken at once by what is written, looks so often in any case, and
    goes on while the server or the database is away, with a try each 5 s at least.

    \b
    Example:
      txaware outbox relay shop.db
      txaware outbox relay postgresql://shop@localhost/shop --every 1s
    """
    with (
        session.open() as messaging,
        stopped_by_signal() as stop,
        closing(OutboxRelay(messaging, open_outbox(database))) as work,
        closing(InboxCleaner(messaging, open_noted_items(database))) as cleaner,
    ):
        pauses = Pauses()
        while not stop.requested:
            try:
                count = work.carry_over()
                cleaner.clean()
                pauses.reset()
                if count or every is None:
                    click.echo(f"carried over {counted(count, 'message')}")
                if every is None:
                    return
                _wait(work.rows, every, stop)
            except MAY_PASS as error:
                if every is None:
                    raise
                pause_s = pauses.next_s()
                note(f"{_backlog(work.rows)}; again in {pause_s:g} s: {error}")
                stop.wait(pause_s)


def _wait(rows: OutboxRows, every_s: float, stop: Stop) -> None:
    """Waits so long, or until rows were written, or it is asked to stop."""
    until_s = time.monotonic() + every_s
    while not stop.requested and (left_s := until_s - time.monotonic()) > 0:
        if rows.wait(min(left_s, TICK_S)):
            return


def _backlog(rows: OutboxRows) -> str:
    """Says how much waits, and for how long; as far as the database tells."""
    found = DatabaseOutbox(rows)
    try:
        count, since = found.waiting(), found.waiting_since()
    except TxAwareError:
        return "the database is away"
    what = f"{counted(count, 'message')} waiting"
    if since is None:
        return what
    age_s = max(0.0, (datetime.now(UTC) - since).total_seconds())
    return f"{what}, the oldest for {age_s:.1f} s"


@outbox.command("list")
@database_argument
@json_option
def list_(*, database: str, as_json: bool) -> None:
    """List the topics and queues for which messages are set aside, and why.

    \b
    Example:
      txaware outbox list shop.db
    """
    with _looked_at(database) as found:
        entries, backlog = found.set_aside(), _backlog(found.rows)
    if as_json:
        for one in entries:
            echo_json(_entry_json(one))
        return
    rows = [
        (
            "queue" if one.is_queue else "topic",
            *(one.topic, one.count, _since(one), payload_text(one.reason.encode())),
        )
        for one in entries
    ]
    header = ("KIND", "NAME", "COUNT", "SINCE", "REASON")
    echo_columns(header, rows, empty="nothing is set aside")
    note(backlog)


@outbox.command()
@database_argument
@topic_argument
@queue_option
@limit_option("messages", 100)
@json_option
def show(
    *, database: str, topic: str, is_queue: bool | None, limit: int, as_json: bool
) -> None:
    """Show what is set aside for a TOPIC or a queue, in its order.

    \b
    Example:
      txaware outbox show shop.db orders --limit 10
    """
    with _looked_at(database) as found:
        messages = found.messages(topic, queue=is_queue, limit=limit)
    for one in messages:
        if as_json:
            labels = labels_json(one)
            payload = text_or_base64(one.payload)
            echo_json({"payload": payload, **labels, "reason": one.reason})
        else:
            labels_shown = labels_text(one)
            click.echo(
                " ".join(filter(None, [labels_shown, payload_text(one.payload)]))
            )


@outbox.command()
@database_argument
@topic_argument
@queue_option
@pass_session
def retry(
    session: Session, *, database: str, topic: str, is_queue: bool | None
) -> None:
    """Carry over, in order, what is set aside for a TOPIC or a queue.

    \b
    Example:
      txaware topic create orders
      txaware outbox retry shop.db orders
    """
    with _carrying(session, database) as found:
        count = found.retry(topic, queue=is_queue)
    click.echo(f"carried over {counted(count, 'message')} to {topic}")


@outbox.command()
@database_argument
@topic_argument
@click.option("--to", "target", required=True, metavar="TOPIC", help="Where it goes.")
@queue_option
@pass_session
def send(
    session: Session, *, database: str, topic: str, target: str, is_queue: bool | None
) -> None:
    """Carry over what is set aside for a TOPIC to another one; of a queue to a queue.

    \b
    Example:
      txaware outbox send shop.db orders --to orders-2
    """
    with _carrying(session, database) as found:
        count = found.send(topic, to=target, queue=is_queue)
    click.echo(f"carried over {counted(count, 'message')} to {target}")


@outbox.command()
@database_argument
@topic_argument
@queue_option
@yes_option
def discard(*, database: str, topic: str, is_queue: bool | None, yes: bool) -> None:
    """Remove what is set aside for a TOPIC or a queue, for good.

    Asks first, on a terminal; elsewhere --yes has to be said.

    \b
    Example:
      txaware outbox discard shop.db orders --yes
    """
    with _looked_at(database) as found:
        count = found.entry(topic, queue=is_queue).count
        what = f"{counted(count, 'message')} for {topic}"
        if not yes and not sys.stdin.isatty():
            raise click.UsageError(f"this removes {what} for good: say --yes")
        if is_sure(f"Remove {what}, which nobody gets then?", yes=yes):
            count = found.discard(topic, queue=is_queue)
            click.echo(f"removed {counted(count, 'message')} for {topic}")


@contextmanager
def _looked_at(database: str) -> Iterator[DatabaseOutbox]:
    """Opens the outbox of a database; no messages go anywhere."""
    rows = open_outbox(database)
    try:
        yield DatabaseOutbox(rows)
    finally:
        rows.close()


@contextmanager
def _carrying(session: Session, database: str) -> Iterator[DatabaseOutbox]:
    """Opens the outbox of a database, and a relay of it."""
    with session.open() as messaging:
        work = OutboxRelay(messaging, open_outbox(database))
        try:
            yield DatabaseOutbox(work.rows, work)
        finally:
            work.close()


def _since(one: SetAside) -> str:
    return one.since.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _entry_json(one: SetAside) -> dict[str, object]:
    kind = "queue" if one.is_queue else "topic"
    return {
        kind: one.topic,
        "count": one.count,
        "since": _since(one),
        "reason": one.reason,
    }
