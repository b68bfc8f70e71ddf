"""`txaware check`: verifies a data directory, and changes nothing in it."""

from pathlib import Path

import click

from coordinator.directory_lock import DirectoryInUse
from txaware.cli.bar import rows_bar
from txaware.cli.session import Session, pass_session
from txaware.cli.show import counted, echo_fields, echo_json
from txaware.elsewhere import is_http
from txaware.errors import BadRequest
from txaware.http.server_file import read_server_file
from txaware.messaging import connect
from txaware.service.check_report import Report
from txaware.service.check_scan import Progress
from txaware.service.checking import check_directory


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@pass_session
def check(session: Session, as_json: bool) -> None:
    """Verify everything in a data directory, and change nothing.

    Every key and value is read, with checksums, on a copy beside the directory that
    takes no space for what does not change. What is served is checked by its server,
    while it is in use; nobody else may have the directory open. It ends with 1 where
    something is wrong, and says at which key.

    It also tells which transaction ids the data still needs: rows of invalid
    transactions that are not marked yet. `txaware janitor` marks them; only then may
    the coordinator forget the ids.

    \b
    Example:
      txaware check
      txaware --url leveldb:./backup check --json
      txaware --url http://127.0.0.1:11015 check
    """
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
    directory = _directory(session)
    try:
        return check_directory(directory, session.settings, progress=progress)
    except DirectoryInUse:
        owner = read_server_file(directory)
        if owner is None:
            raise
    settings = session.settings
    with connect(owner.url, token=owner.token, settings=settings) as messaging:
        return messaging.check(progress)


def _directory(session: Session) -> Path:
    scheme, _, path = session.url.partition(":")
    if scheme != "leveldb" or not path:
        raise BadRequest(
            f"{session.url} cannot be checked; a directory or a server can: --url "
            f"leveldb:PATH, or http://HOST:PORT"
        )
    session.require_data()
    return Path(path)


def _echo(report: Report) -> None:
    echo_fields([(name, f"{count:,}") for name, count in sorted(report.counts.items())])
    for topic, pointer in report.needed.items():
        click.echo(f"topic {topic} needs transaction {pointer} to be remembered")
    for problem in report.problems:
        click.echo(str(problem))
    left = report.problem_count - len(report.problems)
    if left:
        click.echo(f"... and {left:,} more")
    click.echo("clean" if report.is_clean else counted(report.problem_count, "problem"))
