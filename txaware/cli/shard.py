"""`txaware shard`: lists the shards of a store, adds more, and moves one."""

import attrs
import click

from txaware.cli.session import Session, pass_session
from txaware.cli.show import echo_columns, echo_json
from txaware.cli.values import json_option


@click.group("shard", short_help="List the shards of a store, add more, or move one.")
def shards() -> None:
    """List the shards of a store, add more, or move one to another server.

    The first shard is the store itself. Partitions of topics lie in any of them: in
    each one on a disk and, with several servers, in a process of its own.

    \b
    Example:
      txaware shard list
      txaware shard add 2
      txaware topic create clicks --partitions 12 --shards 1,2
    """


@shards.command("list")
@json_option
@pass_session
def list_(session: Session, *, as_json: bool) -> None:
    """List shards, with the partitions in each and its size on disk.

    \b
    Example:
      txaware shard list
    """
    with session.open() as messaging:
        found = messaging.shards()
    if as_json:
        for one in found:
            echo_json(attrs.asdict(one))
        return
    echo_columns(
        ("SHARD", "PARTITIONS", "BYTES", "STATUS"),
        [
            (
                one.number,
                one.partitions,
                "-" if one.size_bytes is None else one.size_bytes,
                one.status,
            )
            for one in found
        ],
        empty="no shards",
    )


@shards.command()
@click.argument("shard", type=click.IntRange(1))
@click.argument("server")
@pass_session
def give(session: Session, *, shard: int, server: str) -> None:
    """Have SHARD go to SERVER, an id or an address of /v1/servers.

    Servers of a store of several shards in HBase share them evenly; this moves one by
    hand, and it stays there while that server is there. Requests for it wait meanwhile.

    \b
    Example:
      txaware --url http://one:11015 shard give 3 http://two:11015
    """
    with session.open() as messaging:
        messaging.give_shard(shard, server)
    click.echo(f"shard {shard} is at {server}")


@shards.command()
@click.argument("count", type=click.IntRange(1))
@json_option
@pass_session
def add(session: Session, *, count: int, as_json: bool) -> None:
    """Make COUNT shards more; none is ever taken away.

    Topics that are made from then on are spread over them, too, and so are partitions
    that a topic gets. What is there stays where it is. The first further shard makes
    the data one that earlier versions refuse.

    \b
    Example:
      txaware shard add 2
    """
    with session.open(create=True) as messaging:
        made = messaging.add_shards(count)
    if as_json:
        echo_json({"shards": made})
        return
    what = "shard" if len(made) == 1 else "shards"
    click.echo(f"made {what} {', '.join(map(str, made))}")
