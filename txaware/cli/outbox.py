"""`txaware outbox`: carries messages over from databases of users."""

import click

from txaware.cli.session import Session, pass_session
from txaware.cli.show import counted
from txaware.cli.stop import stopped_by_signal
from txaware.cli.values import interval
from txaware.participants.databases import open_outbox
from txaware.participants.outbox_relay import OutboxRelay


@click.group(short_help="Carry messages over from a database's outbox.")
def outbox() -> None:
    """Carry messages over from the outbox of a database.

    \b
    Example:
      txaware outbox relay shop.db
    """


@outbox.command()
@click.argument("database")
@click.option("--every", type=interval, help="Go on until Ctrl-C, this often: 1s.")
@pass_session
def relay(session: Session, *, database: str, every: float | None) -> None:
    """Carry over what waits in a DATABASE, each message once and in order.

    DATABASE is a file of SQLite, or the address of a PostgreSQL (postgresql://...).
    A program with a participant does this by itself, in the background; both may work
    on one outbox.

    \b
    Example:
      txaware outbox relay shop.db
      txaware outbox relay postgresql://shop@localhost/shop --every 1s
    """
    with session.open() as messaging, stopped_by_signal() as stop:
        work = OutboxRelay(messaging, open_outbox(database))
        try:
            while True:
                count = work.carry_over()
                if count or every is None:
                    click.echo(f"carried over {counted(count, 'message')}")
                if every is None or stop.wait(every):
                    return
        finally:
            work.close()
