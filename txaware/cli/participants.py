"""`txaware participants`: ends what a crash left prepared in databases of users."""

import click

from txaware.cli.session import Session, pass_session
from txaware.cli.show import counted
from txaware.participants.databases import recover as recover_in


@click.group(short_help="End what a crash left prepared in a PostgreSQL.")
def participants() -> None:
    """End what a crash left prepared in a PostgreSQL.

    \b
    Example:
      txaware participants recover postgresql://shop@localhost/shop
    """


@participants.command()
@click.argument("database")
@pass_session
def recover(session: Session, *, database: str) -> None:
    """End what is prepared in a DATABASE as its transactions ended.

    DATABASE is the address of a PostgreSQL (postgresql://...). Programs do this by
    themselves at their first use; what is still open then is waiting for its end.

    \b
    Example:
      txaware participants recover postgresql://shop@localhost/shop
    """
    with session.open() as messaging:
        still_open = recover_in(messaging, database)
    click.echo(f"{counted(len(still_open), 'transaction')} still open")
