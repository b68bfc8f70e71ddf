"""`txaware hbase create-tables`: makes tables, and tells what is wrong with others."""

import click

from txaware.cli.session import Session, pass_session
from txaware.local_hbase import HBaseAdmin
from txaware.store.hbase import schema
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.cells import FAMILY
from txaware.store.hbase.connections import Connections


@click.command("create-tables")
@click.argument("url", metavar="hbase://HOST:PORT/PREFIX")
@click.option(
    "--zookeeper",
    metavar="HOST:PORT",
    help="Make them of sixteen regions each, by HBase's own Admin; it needs Java.",
)
@click.option(
    "--compression",
    type=click.Choice(schema.COMPRESSIONS, case_sensitive=False),
    default=schema.COMPRESSION,
    show_default=True,
    help="Of their files. GZ is Java's own; others have to be set up in HBase.",
)
@pass_session
def create_tables(
    session: Session, url: str, *, zookeeper: str | None, compression: str
) -> None:
    """Make the tables of a store that are missing.

    Tables that are there are not changed; what is different about them is said, a line
    each, and the exit code is 1 then.

    \b
    Example:
      txaware hbase create-tables hbase://127.0.0.1:9090/txaware \\
          --zookeeper 127.0.0.1:2181
    """
    settings = session.settings
    connections = Connections(
        HBaseAddress.parse(url),
        timeout_s=settings.hbase_timeout_s,
        patience_s=settings.hbase_patience_s,
    )
    try:
        for name in _made(connections, zookeeper, compression):
            click.echo(f"{name} is made")
        wrong = schema.differences(connections, compression=compression)
        unsplit = schema.unsplit_tables(connections)
    finally:
        connections.close()
    if zookeeper is not None:
        wrong += [f"{name}: its buckets share regions" for name in unsplit]
    for sentence in wrong:
        click.echo(sentence)
    if unsplit and zookeeper is None:
        click.echo(
            f"{' and '.join(unsplit)} begin with one region, which HBase splits as "
            f"they grow; with --zookeeper they are made of sixteen"
        )
    if wrong:
        raise SystemExit(1)
    click.echo("all tables are as they should be")


def _made(
    connections: Connections, zookeeper: str | None, compression: str
) -> list[str]:
    if zookeeper is None:
        return schema.create_tables(connections, compression=compression)
    kinds = schema.missing_tables(connections)
    if not kinds:
        return []
    made = []
    with HBaseAdmin(zookeeper) as admin:
        for kind in kinds:
            name = connections.address.table(kind).decode("ascii")
            family = schema.family_of(kind, compression)
            admin.create_table(
                name,
                family=FAMILY,
                versions=family.versions,
                bloom_filter=family.bloom_filter,
                compression=family.compression,
                split_keys=schema.split_keys(kind),
            )
            made.append(name)
    return made
