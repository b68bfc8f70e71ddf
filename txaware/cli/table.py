"""`txaware table`: tables, and their rows as they are committed now."""

import sys

import click

from txaware.cli.session import Session, pass_session
from txaware.cli.show import echo_columns, echo_json, note, payload_text
from txaware.cli.values import full_name, json_option, namespace_option
from txaware.errors import TxAwareError
from txaware.model.messages import text_or_base64
from txaware.model.topics import TableName

name_argument = click.argument("name", metavar="TABLE")
key_argument = click.argument("key")


class NoRow(TxAwareError):
    """The table has no row of that key."""


@click.group()
def table() -> None:
    """Look at tables and change their rows, each call in a transaction of its own.

    Keys and values are text in UTF-8.

    \b
    Example:
      txaware table put accounts ann 5
      txaware table scan accounts --json
    """


@table.command("list")
@namespace_option
@json_option
@pass_session
def list_(session: Session, *, namespace: str, as_json: bool) -> None:
    """List the tables of a namespace that have rows.

    \b
    Example:
      txaware table list --namespace audit
    """
    with session.open() as messaging:
        names = messaging.tables(namespace)
    if as_json:
        for name in names:
            echo_json({"table": full_name(name, namespace)})
        return
    rows = [(full_name(name, namespace),) for name in names]
    echo_columns(("TABLE",), rows, empty="no tables")


@table.command()
@name_argument
@key_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--raw", is_flag=True, help="The value alone, byte for byte.")
@pass_session
def get(session: Session, *, name: str, key: str, as_json: bool, raw: bool) -> None:
    """Print the value of a key; ends with 1 if there is none.

    \b
    Example:
      txaware table get accounts ann
    """
    if as_json and raw:
        raise click.UsageError("either --json or --raw")
    with session.open() as messaging:
        value = messaging.table(name).get(key.encode())
    if value is None:
        raise NoRow(f"table {name} has no row {key!r}")
    if as_json:
        echo_json({"key": key, "value": text_or_base64(value)})
    elif raw:
        sys.stdout.buffer.write(value)
    else:
        click.echo(payload_text(value))


@table.command()
@name_argument
@key_argument
@click.argument("value")
@pass_session
def put(session: Session, *, name: str, key: str, value: str) -> None:
    """Set the value of a key; VALUE - reads it from standard input, byte for byte.

    \b
    Example:
      txaware table put accounts ann 5
      txaware table put files logo.png - < logo.png
    """
    data = sys.stdin.buffer.read() if value == "-" else value.encode()
    TableName.parse(name)  # nothing is made for a wrong one
    with session.open(create=True) as messaging:
        messaging.table(name).put(key.encode(), data)
    click.echo(f"{payload_text(key.encode())} is set in {name}")


@table.command()
@name_argument
@click.option("--prefix", default="", help="Only keys that begin so.")
@click.option("--start", help="From this key on.")
@click.option("--stop", help="Before this key.")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="At most so many rows.")
@json_option
@pass_session
def scan(
    session: Session,
    *,
    name: str,
    prefix: str,
    start: str | None,
    stop: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Print rows in the order of keys, of one moment.

    In JSON a key or a value is a string where it is UTF-8, else {"base64": "..."}.

    \b
    Example:
      txaware table scan accounts --prefix a --limit 10
    """
    count = 0
    with session.open() as messaging:
        for key, value in messaging.table(name).scan(
            prefix.encode(),
            start=None if start is None else start.encode(),
            stop=None if stop is None else stop.encode(),
            limit=limit,
        ):
            count += 1
            if as_json:
                echo_json({"key": text_or_base64(key), "value": text_or_base64(value)})
            else:
                click.echo(f"{payload_text(key)}  {payload_text(value)}")
    if not count and not as_json:
        note("no rows")


@table.command()
@name_argument
@key_argument
@pass_session
def delete(session: Session, *, name: str, key: str) -> None:
    """Delete a row; one that is not there stays so.

    \b
    Example:
      txaware table delete accounts ann
    """
    with session.open() as messaging:
        messaging.table(name).delete(key.encode())
    click.echo(f"{payload_text(key.encode())} is not in {name}")
