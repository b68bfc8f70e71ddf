"""`txaware publish`: arguments, lines and files become messages, byte for byte."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import click

from txaware.cli.session import Session, pass_session
from txaware.cli.show import counted, echo_json, note
from txaware.cli.values import duration
from txaware.errors import TxAwareError
from txaware.messaging import Messaging
from txaware.model.message_fields import tagged_fields
from txaware.model.messages import Outgoing
from txaware.model.requests import Payload

READ_BYTES = 1 << 20


class _Publish(click.Command):
    """The command, with an option for each declared field of messages with a tag."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [
            *super().get_params(ctx),
            *(
                click.Option(
                    [f"--{field.name.replace('_', '-')}"],
                    help=f"The field {field.name} of every message of this call.",
                )
                for field in tagged_fields()
            ),
        ]


@click.command(cls=_Publish, short_help="Publish arguments, lines or files.")
@click.argument("topic")
@click.argument("messages", metavar="[MESSAGE]...", nargs=-1)
@click.option(
    "--file",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    multiple=True,
    help="A whole file as one message (- for standard input). May be repeated.",
)
@click.option(
    "--null", is_flag=True, help="What is read ends with NUL bytes, not with lines."
)
@click.option(
    "--key", help="The key of every message of this call; by default they have none."
)
@click.option(
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    help="A header of every message of this call. May be repeated.",
)
@click.option(
    "--transaction", is_flag=True, help="All in one transaction: all of it, or nothing."
)
@click.option(
    "--timeout", type=duration, help="How long the transaction may take.  [30s]"
)
@click.option("--json", "as_json", is_flag=True, help="Answer with a JSON object.")
@pass_session
def publish(
    session: Session,
    /,
    *,
    topic: str,
    messages: tuple[str, ...],
    files: tuple[Path, ...],
    null: bool,
    key: str | None,
    headers: tuple[str, ...],
    transaction: bool,
    timeout: float | None,
    as_json: bool,
    **more: str | None,
) -> None:
    """Publish messages: the arguments, or the lines of standard input.

    Standard input is read where no message is given, or in place of a `-`: every line
    is a message, without its end, and is published as it comes. Bytes stay as they
    are. When it returns, everything is on disk.

    \b
    Example:
      txaware publish orders 'ann paid 5' 'bob paid 7'
      tail -f access.log | txaware publish access
      txaware publish orders 'ann paid 5' --key ann --header source=till-3
      txaware publish photos --file cat.jpg --file dog.jpg
      find . -print0 | txaware publish files --null --transaction
    """
    if timeout is not None and not transaction:
        raise click.UsageError("--timeout needs --transaction")
    batches = batches_of(messages, files, b"\0" if null else b"\n")
    with session.open() as messaging:
        messaging.topic(topic)
        sent = SentBatches(messaging, topic, labelled(key, headers, more))
        if transaction:
            pointer: int | None = sent.in_one_transaction(batches, timeout)
        else:
            sent.directly(batches)
            pointer = None
    if as_json:
        answer = {"topic": topic, "messages": sent.messages, "bytes": sent.bytes}
        echo_json(answer | {"transaction": pointer})
        return
    where = f" in transaction {pointer}" if pointer else ""
    click.echo(f"published {counted(sent.messages, 'message')} to {topic}{where}")


class SentBatches:
    """Publishes batches of messages, and counts them."""

    def __init__(
        self, messaging: Messaging, topic: str, labelled: Callable[[bytes], Payload]
    ) -> None:
        self._messaging = messaging
        self._labelled = labelled
        self._topic = topic
        self.messages = 0
        self.bytes = 0

    def directly(self, batches: Iterable[list[bytes]]) -> None:
        """Publishes each batch at once, in one piece."""
        publisher = self._messaging.direct_publisher(self._topic)
        try:
            for batch in batches:
                publisher.publish_all(map(self._labelled, batch))
                self._count(batch)
        except (KeyboardInterrupt, TxAwareError):
            if self.messages:
                note(f"at least {counted(self.messages, 'message')} published before")
            raise

    def in_one_transaction(
        self, batches: Iterable[list[bytes]], timeout_s: float | None
    ) -> int:
        """Publishes all of them, or none; returns the transaction's id."""
        with self._messaging.transaction(timeout_s=timeout_s) as context:
            publisher = self._messaging.publisher(self._topic)
            for batch in batches:
                publisher.publish_all(map(self._labelled, batch))
                self._count(batch)
        return context.transaction.transaction_id

    def _count(self, batch: list[bytes]) -> None:
        self.messages += len(batch)
        self.bytes += sum(map(len, batch))


def labelled(
    key: str | None, headers: Sequence[str], more: Mapping[str, str | None]
) -> Callable[[bytes], Payload]:
    """Returns what gives a payload the key, headers and fields of the command line."""
    named: dict[str, bytes] = {}
    for header in headers:
        name, given, value = header.partition("=")
        if not given or not name:
            raise click.UsageError(f"a header is NAME=VALUE, not {header!r}")
        if name in named:
            raise click.UsageError(f"header {name} is there twice")
        named[name] = os.fsencode(value)
    fields = {
        name: os.fsencode(value) for name, value in more.items() if value is not None
    }
    if key is None and not named and not fields:
        return bytes
    label = None if key is None else os.fsencode(key)
    return lambda payload: Outgoing(payload, label, named, more=fields)


def batches_of(
    messages: tuple[str, ...], files: tuple[Path, ...], end: bytes
) -> Iterator[list[bytes]]:
    """Yields messages in the order of the command line: arguments, then files."""
    if not messages and not files:
        messages = ("-",)
    given: list[bytes] = []
    for message in messages:
        if message == "-":
            yield from filter(None, (given,))
            given = []
            yield from pieces(_stdin(), end)
        else:
            given.append(os.fsencode(message))
    yield from filter(None, (given,))
    for path in files:
        yield [_stdin().read() if str(path) == "-" else path.read_bytes()]


def pieces(stream: BinaryIO, end: bytes) -> Iterator[list[bytes]]:
    """Yields what has come by now, cut at `end`, until the stream ends."""
    rest: list[bytes] = []
    while chunk := stream.read1(READ_BYTES):  # type: ignore[attr-defined]
        *whole, last = chunk.split(end)
        if whole:
            whole[0] = b"".join([*rest, whole[0]])
            rest = []
            yield whole
        rest.append(last)
    if last := b"".join(rest):
        yield [last]


def _stdin() -> BinaryIO:
    if sys.stdin.isatty():
        note("reading from the terminal; Ctrl-D ends it")
    return sys.stdin.buffer
