"""`txaware poll`: prints messages, from a place or for a group, once or for ever."""

import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import BinaryIO

import attrs
import click

from coordinator.transaction_status import NEVER
from txaware.cli.session import Session, pass_session
from txaware.cli.show import labels_text, message_json, note, payload_text, time_text
from txaware.cli.stop import TICK_S, Stop, stopped_by_signal
from txaware.cli.transactions.transaction_view import known
from txaware.cli.values import place
from txaware.consume import Consumer
from txaware.errors import NotAuthorized, Unavailable
from txaware.messaging import Messaging
from txaware.model.interfaces import COMMITTED, UNCOMMITTED, Isolation
from txaware.model.messages import BlockedBy, Message, MessageId, Page
from txaware.model.start_places import StartAt

PAGE_MESSAGES = 1000
LOOK_AGAIN_S = 5.0


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "start",
    type=place,
    help="Where to begin: first (the default), last, next, an id, a time in ms or "
    "ISO (UTC where it names no zone). With --group, where the group has no position.",
)
@click.option(
    "--after",
    type=place,
    metavar="ID",
    help="Begin after this id, as --json printed it.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on until Ctrl-C or SIGTERM.")
@click.option(
    "--limit", "-n", type=click.IntRange(min=1), help="End after so many messages."
)
@click.option(
    "--group",
    help="Go on where this group stands, and move it: each page and its position "
    "commit together, after the page was printed.",
)
@click.option(
    "--isolation",
    type=click.Choice([COMMITTED, UNCOMMITTED]),
    default=COMMITTED,
    show_default=True,
    help="`uncommitted` shows every row: open, invalid, rolled back.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a message.")
@click.option("--raw", is_flag=True, help="Payloads only, byte for byte, a line each.")
@click.option("--null", is_flag=True, help="With --raw: a NUL byte after each.")
@pass_session
def poll(
    session: Session,
    *,
    topic: str,
    start: StartAt | None,
    after: StartAt | None,
    follow: bool,
    limit: int | None,
    group: str | None,
    isolation: Isolation,
    as_json: bool,
    raw: bool,
    null: bool,
) -> None:
    """Print the messages of a topic, oldest first.

    By default their time and payload, in which what cannot be printed is escaped, and
    between them the [key] and {header: value} of a message that has them. It stops
    before the first message of an open transaction, and says so. In JSON a payload is
    a string where it is UTF-8, else {"base64": "..."}. While it follows the data of a
    directory, nobody else can use that: start `txaware serve` first, which leads both
    there.

    \b
    Example:
      txaware poll orders --from 2026-01-31T12:00:00Z --json
      txaware poll orders --group billing --limit 100
      txaware poll files --raw --null | xargs -0 ls
      txaware poll orders --follow --from next
    """
    if group is not None and isolation != COMMITTED:
        raise click.UsageError("a group reads what is committed; leave --isolation out")
    if as_json and raw:
        raise click.UsageError("either --json or --raw")
    if null and not raw:
        raise click.UsageError("--null needs --raw")
    if after is not None and (start is not None or not isinstance(after, MessageId)):
        raise click.UsageError("--after takes an id, and no --from beside it")
    form = _json_line if as_json else _raw(null) if raw else _text_line
    with session.open() as messaging, stopped_by_signal() as stop:
        messaging.topic(topic)
        consumer = messaging.consumer(
            topic,
            group=group,
            start=after or start,
            inclusive=after is None,
            isolation=isolation,
        )
        printing = Printing(
            consumer,
            form,
            sys.stdout.buffer,
            messaging.transaction if group is not None else nullcontext,
            partial(_why_blocked, messaging),
        )
        printing.run(stop, limit=limit, follow=follow)
    if not printing.printed and not follow and not (as_json or raw):
        note("no messages")


Form = Callable[[Message], bytes]


@attrs.define
class Printing:
    """A loop that polls and prints page by page; `block` opens a context for each."""

    _consumer: Consumer
    _form: Form
    _out: BinaryIO
    _block: Callable[[], AbstractContextManager[object]]
    _why: Callable[[int], str]
    printed: int = 0
    _blocked_by: BlockedBy | None = None

    def run(self, stop: Stop, *, limit: int | None, follow: bool) -> None:
        """Runs until the end, the limit or a signal; goes beyond the end to follow."""
        while not stop.requested:
            left = PAGE_MESSAGES if limit is None else limit - self.printed
            if not left:
                return
            if self._one_page(min(left, PAGE_MESSAGES)):
                continue
            self._tell_blocked()
            if not follow:
                return
            self._wait(stop)

    def _wait(self, stop: Stop) -> None:
        """Waits for a message, not for long: the next poll also finds what blocks."""
        until_s = time.monotonic() + LOOK_AGAIN_S
        while not stop.requested and time.monotonic() < until_s:
            if self._consumer.wait(TICK_S):
                return

    def _one_page(self, limit: int) -> bool:
        """Tells whether the poll moved on; prints the page before the commit."""
        with self._block():
            before = self._consumer.position
            page = self._consumer.poll(limit)
            self._print(page)
            return bool(page) or self._consumer.position != before

    def _print(self, page: Page) -> None:
        self._out.write(b"".join(map(self._form, page)))
        self._out.flush()
        self.printed += len(page)

    def _tell_blocked(self) -> None:
        blocked_by, previous = self._consumer.blocked_by, self._blocked_by
        self._blocked_by = blocked_by
        if blocked_by is not None and blocked_by != previous:
            note(
                f"stopped at a message of {time_text(blocked_by.since_ms)}, whose "
                f"transaction {blocked_by.pointer} {self._why(blocked_by.pointer)}"
            )


def _why_blocked(messaging: Messaging, pointer: int) -> str:
    try:
        state = known(messaging, pointer).state
    except (NotAuthorized, Unavailable):
        return "is not decided"
    if state != NEVER:
        return "is still open"
    return (
        f"was never given out here: readers wait until the message expires, or until "
        f"`txaware transaction abort {pointer}` rolls it back"
    )


def _text_line(message: Message) -> bytes:
    time = time_text(message.id.publish_time_ms)
    shown = (
        time,
        labels_text(message),
        payload_text(message.payload),
    )
    return ("  ".join(filter(None, shown[:2])) + f"  {shown[2]}\n").encode()


def _json_line(message: Message) -> bytes:
    return json.dumps(message_json(message), ensure_ascii=False).encode() + b"\n"


def _raw(null: bool) -> Form:
    end = b"\0" if null else b"\n"
    return lambda message: message.payload + end
