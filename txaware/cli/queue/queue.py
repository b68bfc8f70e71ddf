"""`txaware queue`: work queues on the command line."""

import sys
from collections.abc import Callable
from datetime import datetime
from types import MappingProxyType
from typing import Any, cast

import attrs
import click

from txaware.cli.failures import Aliased
from txaware.cli.publish import batches_of, labelled
from txaware.cli.queue.queue_stats import stats, watch
from txaware.cli.session import Session, pass_session
from txaware.cli.show import (
    counted,
    duration_text,
    echo_columns,
    echo_json,
    labels_json,
    labels_text,
    note,
    payload_text,
    time_text,
)
from txaware.cli.values import (
    duration,
    exist_ok_option,
    full_name,
    is_sure,
    json_option,
    limit_option,
    moment,
    namespace_option,
    yes_option,
)
from txaware.model.messages import text_or_base64
from txaware.model.queues import (
    ITEM_STATES,
    MAX_POP_WIDTH,
    MAX_PUSHES,
    ORDERS,
    ItemState,
    QueueDescriptor,
    QueueItem,
    Waiting,
)
from txaware.queue import Job

Command = Callable[..., Any]

name_argument = click.argument("name", metavar="QUEUE")
_REMOVED = {"max-deliveries": "max_deliveries", "dead-letters": "dead_letter_queue"}


class _Queue(Aliased):
    """The verbs of queues, one of which was `drop` in earlier versions."""

    aliases = MappingProxyType({"drop": "delete"})


@click.group(
    cls=_Queue, short_help="Create, fill, empty, watch and repair work queues."
)
def queue() -> None:
    """Work queues: items that are each done by one of many workers.

    Workers run with txaware worker, or as programs of yours.

    \b
    Example:
      txaware queue create mail --max-deliveries 5
      txaware queue push mail 'to ann' 'to bob'
      txaware queue watch mail
    """


queue.add_command(stats)
queue.add_command(watch)


def _setting_options(*, shows_defaults: bool) -> Callable[[Command], Command]:
    """Gives a command the options that name settings of a queue."""

    def usual(default: object) -> str:
        return f"  [{default}]" if shows_defaults else ""

    options = [
        click.option(
            "--lease",
            "lease_s",
            type=duration,
            help=f"After this time without a commit a job comes again.{usual('30s')}",
        ),
        click.option(
            "--max-deliveries",
            type=click.IntRange(min=1),
            help=f"After so many an item goes to the dead letters.{usual('never')}",
        ),
        click.option(
            "--dead-letters",
            "dead_letter_queue",
            metavar="QUEUE",
            help=f"The queue for dead letters.{usual('QUEUE-dead')}",
        ),
        click.option(
            "--max-pushes-per-pipe",
            type=click.IntRange(min=1),
            help=f"A pusher begins another pipe after so many items."
            f"{usual(MAX_PUSHES)}",
        ),
        click.option(
            "--max-push-time-of-pipe",
            "max_push_time_of_pipe_s",
            type=duration,
            help=f"A pusher begins another pipe after this time.{usual('10m')}",
        ),
        click.option(
            "--max-pop-width",
            type=click.IntRange(min=1),
            help=f"Pops take turns over so many pipes.{usual(MAX_POP_WIDTH)}",
        ),
    ]

    def decorated(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


@queue.command()
@name_argument
@_setting_options(shows_defaults=True)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    help="mostly: items of one pusher in order; strict: all of them; key: those of one "
    "key, one after the other.  [mostly]",
)
@exist_ok_option
@json_option
@pass_session
def create(
    session: Session, /, *, name: str, exist_ok: bool, as_json: bool, **options: Any
) -> None:
    """Create a queue, and the data directory where there is none.

    \b
    Example:
      txaware queue create mail --lease 5m --max-deliveries 5
      txaware queue create payments --order key --exist-ok
    """
    with session.open(create=True) as messaging:
        made = messaging.create_queue(name, exist_ok=exist_ok, **_said(options))
    _echo_settings(made, as_json=as_json)


@queue.command()
@name_argument
@_setting_options(shows_defaults=False)
@click.option(
    "--remove",
    "removed",
    type=click.Choice(["max-deliveries", "dead-letters"]),
    multiple=True,
    help="A setting to take away. May be repeated.",
)
@json_option
@pass_session
def update(
    session: Session,
    /,
    *,
    name: str,
    removed: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Change settings of a queue; what is not named stays, and so does the order.

    \b
    Example:
      txaware queue update mail --lease 10m
      txaware queue update mail --remove max-deliveries
    """
    named: Any = dict.fromkeys(_REMOVED[one] for one in removed) | _said(options)
    if not named:
        raise click.UsageError("nothing to change; see txaware queue update --help")
    with session.open() as messaging:
        changed = messaging.update_queue(name, **named)
    _echo_settings(changed, as_json=as_json)


def _said(options: dict[str, Any]) -> dict[str, Any]:
    return {option: value for option, value in options.items() if value is not None}


def _echo_settings(made: QueueDescriptor, *, as_json: bool) -> None:
    if as_json:
        echo_json(attrs.asdict(made))
    else:
        click.echo(f"queue {made.name}: {_settings_text(made)}")


def _settings_text(made: QueueDescriptor) -> str:
    parts = [f"lease {duration_text(made.lease_s)}", f"order {made.order}"]
    if made.max_deliveries is not None:
        parts.append(f"after delivery {made.max_deliveries} to {made.dead_letters}")
    if made.is_paused:
        parts.append("paused")
    return ", ".join(parts)


@queue.command("list")
@namespace_option
@json_option
@pass_session
def list_(session: Session, *, namespace: str, as_json: bool) -> None:
    """List the queues of a namespace, and how they stand.

    \b
    Example:
      txaware queue list
    """
    with session.open() as messaging:
        names = [full_name(one, namespace) for one in messaging.queues(namespace)]
        found = [(messaging.queue(name), name) for name in names]
        rows = [(name, one.stats(), one.descriptor) for one, name in found]
    if as_json:
        for name, now, made in rows:
            figures = {
                "depth": now.depth,
                "in_work": now.in_work,
                "oldest_age_s": now.oldest_age_s,
            }
            echo_json({**attrs.asdict(made), **figures, "name": name})
        return
    header = ("QUEUE", "WAITING", "IN WORK", "OLDEST", "SETTINGS")
    cells = [
        (
            name,
            now.depth,
            now.in_work,
            duration_text(now.oldest_age_s) if now.depth else "-",
            _settings_text(made),
        )
        for name, now, made in rows
    ]
    echo_columns(header, cells, empty=f"no queues in namespace {namespace}")


@queue.command()
@name_argument
@click.argument("items", metavar="[ITEM]...", nargs=-1)
@click.option("--key", help="The key of every item of this call.")
@click.option(
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    help="A header of every item of this call. May be repeated.",
)
@click.option(
    "--delay", "delay_s", type=duration, default="0", help="They wait so long: 90, 15m."
)
@click.option("--at", type=moment, help="They wait until then: 2026-12-24T18:00+01:00.")
@click.option(
    "--priority",
    type=click.IntRange(0, 9),
    default=0,
    show_default=True,
    help="Higher ones are popped first.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer with a JSON object.")
@pass_session
def push(
    session: Session,
    *,
    name: str,
    items: tuple[str, ...],
    key: str | None,
    headers: tuple[str, ...],
    delay_s: float,
    at: datetime | None,
    priority: int,
    as_json: bool,
) -> None:
    """Push items: the arguments, or the lines of standard input.

    Standard input is read where no item is given, or in place of a `-`: every line is
    an item, and is pushed as it comes.

    \b
    Example:
      txaware queue push mail 'to ann' 'to bob'
      txaware queue push mail 'to cid' --delay 15m --key cid
      txaware queue push mail 'to eve' --at 2030-12-24T18:00+01:00
      cat addresses | txaware queue push mail
    """
    label, count = labelled(key, headers, {}), 0
    with session.open() as messaging, messaging.queue(name).pusher() as pusher:
        for batch in batches_of(items, (), b"\n"):
            pusher.push_all(
                map(label, batch), delay_s=delay_s, at=at, priority=priority
            )
            count += len(batch)
    if as_json:
        echo_json({"queue": name, "pushed": count})
    else:
        click.echo(f"pushed {counted(count, 'item')} to {name}")


@queue.command()
@name_argument
@limit_option("items", 1)
@click.option(
    "--wait", "wait_s", type=duration, default="0", help="Wait for the first."
)
@click.option("--raw", is_flag=True, help="The payloads alone, each with a line's end.")
@json_option
@pass_session
def pop(
    session: Session, *, name: str, limit: int, wait_s: float, raw: bool, as_json: bool
) -> None:
    """Take items off a queue and print them; each is committed once it is printed.

    \b
    Example:
      txaware queue pop mail
      txaware queue pop mail --limit 100 --raw
      txaware queue pop mail --wait 1m --json
    """
    if as_json and raw:
        raise click.UsageError("either --json or --raw")
    count = 0
    with session.open() as messaging:
        while count < limit:
            job = messaging.queue(name).pop(wait_s if not count else 0)
            if job is None:
                break
            with job:
                _echo_item(job, as_json=as_json, raw=raw)
                sys.stdout.flush()
            count += 1
        is_paused = not count and messaging.queue(name).descriptor.is_paused
    if not count:
        note(f"{name} is paused" if is_paused else f"nothing to pop from {name}")


@queue.command()
@name_argument
@click.option(
    "--state",
    type=click.Choice([state.replace("_", "-") for state in ITEM_STATES]),
    default="waiting",
    show_default=True,
    help="How they stand.",
)
@limit_option("items", 10)
@json_option
@pass_session
def peek(session: Session, *, name: str, state: str, limit: int, as_json: bool) -> None:
    """Print items that wait and are due, the oldest first; they stay.

    Or those in work with who has them, the delayed ones with their time, and the dead
    ones, which wait in the dead-letter queue, with what they died of.

    \b
    Example:
      txaware queue peek mail --limit 5
      txaware queue peek mail --state dead
    """
    wanted = cast(ItemState, state.replace("-", "_"))
    with session.open() as messaging:
        found = messaging.queue(name).browse(wanted, limit)
    for item in found:
        _echo_found(item, as_json=as_json)
    if not found:
        note(_NONE[wanted].format(name))


_NONE: dict[ItemState, str] = {
    "waiting": "nothing waits in {}",
    "in_work": "nothing of {} is in work",
    "delayed": "nothing in {} is delayed",
    "dead": "no dead letter of {} waits",
}


def _echo_found(item: QueueItem, *, as_json: bool) -> None:
    more: dict[str, object] = {
        "popper": item.popper,
        "since": item.since_ms and time_text(item.since_ms),
        "until": item.until_ms and time_text(item.until_ms),
        "transaction": item.transaction,
        "due": item.due_ms and time_text(item.due_ms),
        "error": item.error,
        "traceback": item.traceback,
    }
    details = {name: value for name, value in more.items() if value}
    if as_json:
        echo_json(_item_json(item) | details)
        return
    _echo_item(item, as_json=False)
    for name, value in details.items():
        lines = [payload_text(line.encode()) for line in str(value).splitlines()]
        click.echo(f"    {name}: {lines[0]}")
        for line in lines[1:]:
            click.echo(f"    {line}")


def _item_json(item: Job | Waiting) -> dict[str, object]:
    return {
        "id": item.id,
        "pushed_at": time_text(round(item.pushed_at.timestamp() * 1000)),
        "deliveries": item.deliveries,
        "payload": text_or_base64(item.payload),
        **labels_json(item),
    }


def _echo_item(item: Job | Waiting, *, as_json: bool, raw: bool = False) -> None:
    if raw:
        sys.stdout.buffer.write(item.payload + b"\n")
        return
    if as_json:
        echo_json(_item_json(item))
        return
    pushed_ms = round(item.pushed_at.timestamp() * 1000)
    labels = labels_text(item)
    again = f"(delivery {item.deliveries})" if item.deliveries > 1 else ""
    parts = [time_text(pushed_ms), labels, payload_text(item.payload), again]
    click.echo("  ".join(filter(None, parts)))


@queue.command()
@name_argument
@pass_session
def pause(session: Session, *, name: str) -> None:
    """Have pops get nothing until resume; pushes go on, and so do jobs in work.

    \b
    Example:
      txaware queue pause mail
    """
    with session.open() as messaging:
        messaging.queue(name).pause()
    click.echo(f"queue {name} is paused")


@queue.command()
@name_argument
@pass_session
def resume(session: Session, *, name: str) -> None:
    """Let pops go on.

    \b
    Example:
      txaware queue resume mail
    """
    with session.open() as messaging:
        messaging.queue(name).resume()
    click.echo(f"queue {name} goes on")


@queue.command()
@name_argument
@click.option("--limit", "-n", type=click.IntRange(min=1), help="At most so many.")
@pass_session
def redrive(session: Session, *, name: str, limit: int | None) -> None:
    """Send dead letters back to the queue that they came from.

    QUEUE is that queue, or the one that has the letters and none of its own; peek shows
    why they died. Where it fails midway, the next one goes on.

    \b
    Example:
      txaware queue peek mail-dead
      txaware queue redrive mail --limit 10
    """
    with session.open() as messaging:
        moved = messaging.queue(name).redrive(limit)
    click.echo(f"{counted(moved, 'dead letter')} went back")


@queue.command()
@name_argument
@yes_option
@pass_session
def truncate(session: Session, *, name: str, yes: bool) -> None:
    """Remove all items, also those in work, and set all counts to zero.

    Asks first, on a terminal.

    \b
    Example:
      txaware queue truncate mail --yes
    """
    with session.open() as messaging:
        found = messaging.queue(name)
        if is_sure(f"Remove {_all_of(found.stats().depth)} of {name}?", yes=yes):
            found.truncate()
            click.echo(f"queue {name} is empty")


@queue.command()
@name_argument
@yes_option
@pass_session
def delete(session: Session, *, name: str, yes: bool) -> None:
    """Delete a queue, with all that waits in it. Asks first, on a terminal.

    \b
    Example:
      txaware queue delete mail --yes
    """
    with session.open() as messaging:
        depth = messaging.queue(name).stats().depth
        if is_sure(f"Delete queue {name} with {_all_of(depth)}?", yes=yes):
            messaging.delete_queue(name)
            click.echo(f"deleted queue {name}")


def _all_of(depth: int) -> str:
    return f"{counted(depth, 'item')} that wait" if depth != 1 else "1 item that waits"
