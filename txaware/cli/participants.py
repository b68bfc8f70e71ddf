"""`txaware participant`: ends what a crash left in databases and files of users."""

import click

from txaware.cli.session import Session, pass_session
from txaware.cli.show import counted
from txaware.participants import databases


@click.group(
    "participant", short_help="End what a crash left in a database or in files."
)
def participants() -> None:
    """End what a crash left in a database or in files.

    \b
    Example:
      txaware participant recover postgresql://shop@localhost/shop
      txaware participant recover ./invoices
    """


@participants.command()
@click.argument("place")
@click.option(
    "--skip",
    is_flag=True,
    help="Give up the files that cannot be put in place, and those of transactions "
    "whose outcome nobody knows.",
)
@pass_session
def recover(session: Session, *, place: str, skip: bool) -> None:
    """End what is left in a PLACE as its transactions ended.

    PLACE is the address of a PostgreSQL (postgresql://...) or a MySQL (mysql://...), or
    a directory that participants.files has opened. Programs do this by themselves at
    their first use; what is still open then is waiting for its end.

    With --skip, what cannot be done in files is given up. What was to be written is not
    lost: the file that the answer names says which files beside it that is.

    \b
    Example:
      txaware participant recover postgresql://shop@localhost/shop
      txaware participant recover ./invoices --skip
    """
    with session.open() as messaging:
        if skip:
            for put_by in databases.skip(messaging, place):
                click.echo(f"skipped: what was to be done is in {put_by}")
        still_open = databases.recover(messaging, place)
    click.echo(f"{counted(len(still_open), 'transaction')} still open")
