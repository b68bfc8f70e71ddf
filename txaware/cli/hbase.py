"""`txaware hbase`: an HBase to try things out on, and the care of its tables."""

from pathlib import Path

import click

from txaware.cli.failures import Failure
from txaware.cli.session import Session, pass_session
from txaware.cli.show import echo_columns, echo_fields, echo_json
from txaware.cli.stop import stopped_by_signal
from txaware.local_hbase import HBaseAdmin, LocalHBase
from txaware.local_hbase.readiness import HOST
from txaware.store.hbase import schema
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.cells import FAMILY
from txaware.store.hbase.connections import HBaseConnections


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

    Tables that are there are not changed. If they differ from what a store needs, each
    difference is printed on a line of its own, and the exit code is 1.

    \b
    Example:
      txaware hbase create-tables hbase://127.0.0.1:9090/txaware \\
          --zookeeper 127.0.0.1:2181
    """
    settings = session.settings
    connections = HBaseConnections(
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
    connections: HBaseConnections, zookeeper: str | None, compression: str
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


PREFIX = "txaware"
# The time until it is noticed that HBase has ended.
LOOK_S = 1.0
HEADER = ("TABLE", "BYTES BEFORE", "BYTES AFTER")


@click.group(short_help="Run an HBase here; look after the tables in one.")
def hbase() -> None:
    """Run an HBase on this machine to try things out, and look after tables in one.

    \b
    Example:
      txaware hbase run ./hbase
      txaware hbase create-tables hbase://127.0.0.1:9090/txaware
      txaware hbase compact --zookeeper 127.0.0.1:2181
    """


hbase.add_command(create_tables)


@hbase.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--heap-mb",
    type=click.IntRange(min=64),
    default=512,
    show_default=True,
    help="The most that each of its two processes keeps in Java's heap.",
)
@click.option(
    "--thrift-port",
    type=click.IntRange(1, 65_535),
    help="Where programs find it. By default a free one, and the same at the next run.",
)
@click.option(
    "--zookeeper-port",
    type=click.IntRange(1, 65_535),
    help="Where --zookeeper finds it. By default a free one, as above.",
)
def run(
    directory: Path,
    *,
    heap_mb: int,
    thrift_port: int | None,
    zookeeper_port: int | None,
) -> None:
    """Run a real HBase on DIRECTORY, until Ctrl-C or SIGTERM.

    For trying things out: one machine, 127.0.0.1 only, nobody is asked who they are,
    and a loss of power may cost the last writes. It needs Java 17; the first run
    fetches the jars, 61 MB. Once it can be used it says where. Without ports it is
    there at the next run too, unless another program has taken one by then.

    \b
    Example:
      txaware hbase run ./hbase
      txaware hbase run ./hbase --thrift-port 9090 --zookeeper-port 2181
    """
    chosen = LocalHBase(
        directory,
        heap_mb=heap_mb,
        thrift_port=thrift_port,
        zookeeper_port=zookeeper_port,
    )
    with stopped_by_signal() as stop, chosen as server:
        echo_fields(
            [
                ("address", f"hbase://{HOST}:{server.thrift_port}/{PREFIX}"),
                ("zookeeper", server.zookeeper),
            ]
        )
        while not stop.wait(LOOK_S):
            for process in (server.master, server.thrift):
                if not process.alive:
                    raise Failure(f"HBase has ended; {process.last_words()}")


@hbase.command()
@click.option(
    "--zookeeper",
    required=True,
    metavar="HOST:PORT",
    help="Where the cluster is found; more hosts with commas between.",
)
@click.option(
    "--prefix",
    default=PREFIX,
    show_default=True,
    help="Of all tables whose names begin so.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a table.")
def compact(zookeeper: str, *, prefix: str, as_json: bool) -> None:
    """Give the disk back what is deleted, expired or replaced: a major compaction.

    The tables can be used meanwhile. Sizes are in whole MiB, as region servers count
    them; a region with less counts as one. It needs Java, and no access to HDFS.

    \b
    Example:
      txaware hbase compact --zookeeper 127.0.0.1:2181
    """
    rows: list[tuple[str, int, int]] = []
    with HBaseAdmin(zookeeper) as admin:
        for table in admin.tables(prefix):
            admin.flush(table)
            before = admin.store_bytes(table)
            admin.major_compact(table)
            rows.append((table, before, admin.store_bytes(table)))
            if as_json:
                echo_json(
                    dict(zip(("table", "before", "after"), rows[-1], strict=True))
                )
    if not as_json:
        echo_columns(HEADER, rows, empty=f"no table's name begins with {prefix}")
