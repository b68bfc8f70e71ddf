"""`txaware copy`: all data to another store."""

import attrs
import click

from txaware.cli.progress import rows_bar
from txaware.cli.session import Session, pass_session
from txaware.cli.show import counted, echo_json, note, time_text
from txaware.messaging.store_copy import copy as copy_store
from txaware.service.transfer.copying import Copied


@click.command()
@click.argument("source")
@click.argument("target")
@click.option(
    "--coordinator",
    metavar="ADDRESS",
    help="Who decided what committed at SOURCE; by default as before the verb, or the "
    "embedded one.",
)
@click.option(
    "--target-coordinator",
    metavar="ADDRESS",
    help="Who will decide at TARGET; by default the embedded one.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@pass_session
def copy(
    session: Session,
    source: str,
    target: str,
    *,
    coordinator: str | None,
    target_coordinator: str | None,
    as_json: bool,
) -> None:
    """Copy all data from SOURCE to TARGET: leveldb:PATH or hbase://HOST:PORT/PREFIX.

    Ids, generations and the positions of groups stay as they are, so that readers go
    on where they were. Nobody else may have either of them open. TARGET is empty, or
    does not exist; a copy that was interrupted goes on with the same command. At its
    end TARGET is read back and compared by a digest.

    Rows of transactions in progress are left out, and the transactions are named. A
    coordinator elsewhere, such as a Tephra, must already see all that was committed at
    SOURCE.

    \b
    Example:
      txaware copy leveldb:./data leveldb:/mnt/larger/data
      txaware copy leveldb:./data hbase://127.0.0.1:9090/orders
    """
    with rows_bar() as progress:
        copied = copy_store(
            source,
            target,
            coordinator=coordinator or session.coordinator,
            target_coordinator=target_coordinator,
            settings=session.settings,
            progress=progress,
        )
    if as_json:
        echo_json({"source": source, "target": target, **attrs.asdict(copied)})
    else:
        _echo(copied, target)


def _echo(copied: Copied, target: str) -> None:
    click.echo(
        f"{target}: {counted(copied.rows, 'row')}, as of {time_text(copied.as_of_ms)}, "
        f"digest {copied.digest}"
    )
    if copied.was_complete:
        note("it was complete already, and was not read again")
    if copied.left_out_rows:
        of = ", ".join(map(str, copied.undecided)) or "-"
        note(
            f"{counted(copied.left_out_rows, 'row')} left out, newer than that or of "
            f"transactions in progress: {of}"
        )
