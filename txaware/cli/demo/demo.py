"""`txaware demo`: the promises of this project, done and checked before your eyes.

Each step is a function that reads like a program of your own. It really does what it
prints. If anything is not as promised, the demo ends with exit code 1.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

import click

from txaware.cli.demo.bank import TRANSFERS, Accounts, Last
from txaware.cli.failures import Failure
from txaware.cli.show import counted
from txaware.consume import Consumer
from txaware.errors import ParticipantFailed
from txaware.messaging import Messaging, connect
from txaware.model.interfaces import COMMITTED
from txaware.model.reports import Peeked
from txaware.model.settings import Settings

REPORTS = "reports"
LINES = [b"line %02d of the yearly report" % number for number in range(60)]


@click.command(short_help="See it work, in seconds: commits, rollbacks, a crash.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the data here, to look at it afterwards; it has to be empty.",
)
def demo(directory: Path | None) -> None:
    """See it work: a transfer, a rollback, a spill, two groups, a crash.

    It takes a few seconds, and leaves nothing behind without --directory.

    \b
    Example:
      txaware demo
      txaware demo --directory ./demo && txaware --url leveldb:./demo/data topic list
    """
    if directory is not None and directory.exists() and any(directory.iterdir()):
        raise click.UsageError(f"{directory} is not empty")
    began_s = time.monotonic()
    place = nullcontext(str(directory)) if directory else tempfile.TemporaryDirectory()
    with place as name:
        path = Path(name)
        path.mkdir(parents=True, exist_ok=True)
        click.echo(f"Everything below happens now, in {path}")
        before_the_crash(path)
        crash(path)
        after_the_crash(path)
    took_s = time.monotonic() - began_s
    click.echo(f"\nAll of it was as promised, in {took_s:.1f} s.")
    click.echo(f"The program behind it: {__file__}")


def before_the_crash(path: Path) -> None:
    """Runs the steps of the program's first life."""
    accounts = Accounts(path / "accounts")
    with connect(f"leveldb:{path / 'data'}", settings=Settings()) as messaging:
        messaging.create_topic(TRANSFERS)
        messaging.create_topic(REPORTS)
        transfer(messaging, accounts)
        rollback(messaging, accounts)
        spill(messaging)
        consumers(messaging)


def transfer(messaging: Messaging, accounts: Accounts) -> None:
    """Shows two balances and a message that change at one moment, or not at all."""
    heading(1, "A transfer and its message commit together")
    with messaging.transaction(accounts):
        accounts.open_account("ann", 100)
        accounts.open_account("bob", 0)
    say("before", balances(messaging, accounts), "ann 100, bob 0")

    publisher = messaging.publisher(TRANSFERS)
    with messaging.transaction(accounts):
        accounts.move(5, "ann", "bob")
        publisher.publish(b"ann paid bob 5")
        say("others see", seen_outside(messaging, TRANSFERS), "no messages")
    say("committed", balances(messaging, accounts), "ann 95, bob 5")
    say("a consumer sees", seen(messaging), "ann paid bob 5")


def rollback(messaging: Messaging, accounts: Accounts) -> None:
    """Shows a program that raises, then a commit that is refused at the last moment."""
    heading(2, "A rollback leaves nothing behind")
    publisher = messaging.publisher(TRANSFERS)
    try:
        with messaging.transaction(accounts):
            publisher.publish(b"ann paid bob 1000")
            accounts.move(1000, "ann", "bob")
    except ValueError as error:
        say("the program raises", str(error), "ann has no 1000")
    try:
        with messaging.transaction(accounts) as tx:
            accounts.move(7, "ann", "bob")
            publisher.publish(b"ann paid bob 7")
            tx.join(Last())  # says no when balances and message are written already
    except ParticipantFailed:
        *_, row = messaging.peek(TRANSFERS)
        say("refused at its commit", described(row), "ann paid bob 7: rolled back")
    say("afterwards", balances(messaging, accounts), "ann 95, bob 5")
    say("a consumer sees", seen(messaging), "ann paid bob 5")


def spill(messaging: Messaging) -> None:
    """Publishes more messages than the program buffers: they are stored early."""
    heading(3, "A large transaction spills, and keeps its order")
    publisher = messaging.publisher(REPORTS, buffer_limit_bytes=500)
    with messaging.transaction():
        publisher.publish_all(LINES)
        stored = messaging.inspect(REPORTS).stored
        say("before the commit", f"{stored} of 60 stored", "55 of 60 stored")
        say("others see", seen_outside(messaging, REPORTS), "no messages")
    report = messaging.inspect(REPORTS)
    rows = f"{counted(report.references, 'reference')} to {report.stored} payloads"
    say("the topic holds", rows, f"1 reference to {len(LINES)} payloads")
    polled = [message.payload for message in messaging.consumer(REPORTS).poll(1000)]
    in_order = "in order" if polled == LINES else "out of order"
    say(
        "a consumer sees",
        f"{len(polled)} messages, {in_order}",
        f"{len(LINES)} messages, in order",
    )


def consumers(messaging: Messaging) -> None:
    """Shows two groups; each has one position, which moves with the commit."""
    heading(4, "Two groups, and two members of one of them")
    messaging.publisher(TRANSFERS).publish_all([b"cid paid bob 1", b"dan paid bob 2"])
    first = messaging.consumer(TRANSFERS, group="billing")
    second = messaging.consumer(TRANSFERS, group="billing")
    paid = ["ann paid bob 5", "cid paid bob 1", "dan paid bob 2"]
    say("billing, one member", got_by(messaging, first, limit=2), ", ".join(paid[:2]))
    say("billing, another one", got_by(messaging, second), paid[2])
    audit = messaging.consumer(TRANSFERS, group="audit")
    say("audit sees all", got_by(messaging, audit), ", ".join(paid))


def crash(path: Path) -> None:
    """Kills another process after it wrote everything but the commit record."""
    heading(5, "A crash in mid-commit: all is written but the commit record")
    child = [sys.executable, "-m", "txaware.cli.demo.child", str(path)]
    died = subprocess.run(child, check=False, capture_output=True, text=True)
    if died.returncode != -signal.SIGKILL:
        raise Failure(f"the child ended with {died.returncode}: {died.stderr.strip()}")
    say("a child pays 50", "killed by SIGKILL", "killed by SIGKILL")
    written = [balance for _, _, balance in Accounts(path / "accounts").rows()[-2:]]
    say("written in accounts", f"ann {written[0]}, bob {written[1]}", "ann 45, bob 55")


def after_the_crash(path: Path) -> None:
    """Starts the program again on the data that is there."""
    accounts = Accounts(path / "accounts")
    with connect(f"leveldb:{path / 'data'}", settings=Settings()) as messaging:
        *_, row = messaging.peek(TRANSFERS)
        say("written in the topic", described(row), "ann paid bob 50: invalid")
        heading(6, "The recovery: it never happened, and the program goes on")
        say("the balances are", balances(messaging, accounts), "ann 95, bob 5")
        audit = messaging.consumer(TRANSFERS, group="audit")
        say("audit goes on with", got_by(messaging, audit), "no messages")
        with messaging.transaction(accounts):
            accounts.move(5, "ann", "bob")
            messaging.publisher(TRANSFERS).publish(b"ann paid bob 5 again")
        say("a later transfer", balances(messaging, accounts), "ann 90, bob 10")
        say("audit goes on with", got_by(messaging, audit), "ann paid bob 5 again")


def heading(number: int, text: str) -> None:
    """Begins a step."""
    click.echo(f"\n{number}. {text}")


def say(what: str, found: str, promised: str) -> None:
    """Prints what was found, and raises if that is not as promised."""
    click.echo(f"   {what:<24}{found}")
    if found != promised:
        raise Failure(f"this is not as promised: {found!r} should be {promised!r}")


def balances(messaging: Messaging, accounts: Accounts) -> str:
    """Returns both balances in one snapshot."""
    with messaging.transaction(accounts):
        return ", ".join(f"{name} {accounts.balance(name)}" for name in ("ann", "bob"))


def seen_outside(messaging: Messaging, topic: str) -> str:
    """Returns what is committed by now, whatever transaction is open here."""
    return listed(m.payload for m in messaging.poll(topic, isolation=COMMITTED))


def got_by(messaging: Messaging, consumer: Consumer, *, limit: int = 100) -> str:
    """Returns what a member of a group gets; its position moves with the commit."""
    with messaging.transaction():
        return listed(m.payload for m in consumer.poll(limit))


def described(row: Peeked) -> str:
    """Describes a row as it is, whoever may see it."""
    return f"{(row.payload or b'').decode()}: {row.state}"


def listed(payloads: Iterable[bytes]) -> str:
    """Joins payloads on one line."""
    return ", ".join(payload.decode() for payload in payloads) or "no messages"


def seen(messaging: Messaging) -> str:
    """Returns all that a consumer gets from the first message on."""
    return listed(m.payload for m in messaging.consumer(TRANSFERS).poll())
