"""`txaware check`: verifies a data directory, and changes nothing in it."""

from collections.abc import Collection
from contextlib import ExitStack, closing
from pathlib import Path

import attrs
import click

from coordinator.directory_lock import DirectoryInUse
from txaware.cli.progress import rows_bar
from txaware.cli.session import Session, address_of, pass_session
from txaware.cli.show import counted, echo_fields, echo_json
from txaware.errors import BadRequest
from txaware.messaging import Messaging
from txaware.messaging.named_coordinator import named_coordinator
from txaware.messaging.parts import Reach, is_http
from txaware.model.clock import system_clock_ms
from txaware.model.reports import Progress, Report
from txaware.server.server_file import read_server_file
from txaware.service.check.checking import check_directory, check_table
from txaware.service.coordinator_kind import ANY_ADDRESS
from txaware.shards.shard_place import ShardsInHBase
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.key_check import KeyCheck

UNKNOWN = (
    "which transactions the data still needs is not known, since its coordinator is "
    "elsewhere and was not asked: name it with --coordinator {}"
)


@click.command()
@click.option(
    "--data",
    metavar="DIR|URL",
    help="What to check: a directory, or an address as of --url, which is the default.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@pass_session
def check(session: Session, *, data: str | None, as_json: bool) -> None:
    """Verify everything in a store, and change nothing.

    Of a directory every key and value is read, with checksums, on a copy beside it that
    takes no space for what does not change. What is served is checked by its server,
    while it is in use; nobody else may have the directory open. HBase is read beside
    whoever owns the store. It ends with 1 where something is wrong, and says at which
    key; with 3 where it could not be checked, as HBase is away.

    It also tells which transaction ids the data still needs: for each topic, the least
    of rows of invalid transactions that are not marked yet. `txaware janitor` marks
    them; only then may the coordinator forget the ids. Where the coordinator is
    elsewhere, it is asked which are invalid: name it with --coordinator. Without it
    nobody knows, and `needed` is null.

    \b
    Example:
      txaware check
      txaware --url leveldb:./backup check --json
      txaware --url http://127.0.0.1:11015 check
      txaware --coordinator tephra://127.0.0.1:15165 check --data hbase://...
    """
    if data is not None:
        session = attrs.evolve(session, url=address_of(data))
    with rows_bar() as progress:
        report = _report(session, progress)
    if as_json:
        echo_json(report.as_dict())
    else:
        _echo(report)
    if not report.is_clean:
        raise SystemExit(1)


def _report(session: Session, progress: Progress | None) -> Report:
    if session.given is not None or is_http(session.url):
        with session.open() as messaging:
            return messaging.check(progress)
    invalid = _invalid(session)
    if session.url.startswith("hbase:"):
        return _in_hbase(session, progress, invalid)
    directory = _directory(session)
    try:
        return check_directory(
            directory, session.settings, progress=progress, invalid=invalid
        )
    except DirectoryInUse:
        owner = read_server_file(directory)
        if owner is None:
            raise
    # A client is not light.
    from txaware.messaging.remote_parts import open_remote

    reach = Reach(owner.url, owner.token, owner.certificate)
    parts = open_remote(
        reach, None, session.settings, system_clock_ms, coordinator_token=None
    )
    with Messaging(parts) as messaging:
        return messaging.check(progress)


def _in_hbase(
    session: Session, progress: Progress | None, invalid: Collection[int] | None
) -> Report:
    settings = session.settings
    connections = HBaseConnections(
        HBaseAddress.parse(session.url),
        timeout_s=settings.hbase_timeout_s,
        patience_s=settings.hbase_patience_s,
    )
    place = ShardsInHBase(connections, settings)
    with ExitStack() as opened:
        opened.callback(connections.close)

        def beside(number: int) -> KeyCheck:
            shard = opened.enter_context(closing(place.connections(number)))
            return KeyCheck(shard)

        return check_table(
            KeyCheck(connections), progress=progress, invalid=invalid, beside=beside
        )


def _invalid(session: Session) -> Collection[int] | None:
    """Returns the ids that the named coordinator calls invalid; None without one."""
    if session.coordinator in (None, "embedded"):
        return None
    coordinator = named_coordinator(session.coordinator, session.settings, token=None)
    try:
        return coordinator.snapshot().invalids
    finally:
        coordinator.close()


def _directory(session: Session) -> Path:
    scheme, _, path = session.url.partition(":")
    if scheme != "leveldb" or not path:
        raise BadRequest(
            f"{session.url} cannot be checked; a directory, HBase or a server can: "
            f"--url leveldb:PATH, hbase://HOST:PORT/PREFIX or http://HOST:PORT"
        )
    session.require_data()
    return Path(path)


def _echo(report: Report) -> None:
    if report.counts:  # nothing was counted of a store that cannot be read at all
        echo_fields(
            [(name, f"{count:,}") for name, count in sorted(report.counts.items())]
        )
    if report.needed is None:
        click.echo(UNKNOWN.format(report.coordinator or ANY_ADDRESS))
    for name, pointer in (report.needed or {}).items():
        what = name if " " in name else f"topic {name}"  # or a keeper, or rows
        click.echo(f"{what} needs transaction {pointer} to be remembered")
    for problem in report.problems:
        click.echo(str(problem))
    left = report.problem_count - len(report.problems)
    if left:
        click.echo(f"... and {left:,} more")
    click.echo("clean" if report.is_clean else counted(report.problem_count, "problem"))
