"""`txaware transaction prepared`, `commit` and `rollback`: those that wait by name."""

import click

from txaware.cli.session import Session, pass_session
from txaware.cli.show import echo_columns, echo_json, time_text
from txaware.cli.values import json_option


@click.command()
@json_option
@pass_session
def prepared(session: Session, *, as_json: bool) -> None:
    """List the transactions that are prepared, and wait for `commit` or `rollback`.

    They never time out. Until they end, readers of their topics wait before them, and
    whoever changes the same keys conflicts. Over the network these are your own, and
    all for operators.

    \b
    Example:
      txaware transaction prepared --json
    """
    with session.open() as messaging:
        found = messaging.prepared()
    if as_json:
        for one in found:
            echo_json(one.fields())
        return
    echo_columns(
        ("NAME", "TRANSACTION", "SINCE", "PRINCIPAL"),
        [
            (one.name, one.transaction_id, time_text(one.since_ms), one.principal)
            for one in found
        ],
        empty="no transaction is prepared",
    )


@click.command()
@click.argument("name")
@pass_session
def commit(session: Session, *, name: str) -> None:
    """Commit a prepared transaction by its name; all that it wrote becomes visible.

    \b
    Example:
      txaware transaction commit order-7
    """
    with session.open() as messaging:
        messaging.commit_prepared(name)
    click.echo(f"committed {name}")


@click.command()
@click.argument("name")
@pass_session
def rollback(session: Session, *, name: str) -> None:
    """Roll a prepared transaction back by its name: nobody ever sees what it wrote.

    \b
    Example:
      txaware transaction rollback order-7
    """
    with session.open() as messaging:
        messaging.rollback_prepared(name)
    click.echo(f"rolled back {name}")
