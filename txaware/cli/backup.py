"""`txaware backup` and `restore`: a copy of everything in one file, and back."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import attrs
import click

from coordinator.private_directory import sync_directory
from txaware.cli.progress import rows_bar
from txaware.cli.session import Session, pass_session
from txaware.cli.show import counted, echo_json, size_text, time_text
from txaware.errors import BadRequest, Unavailable
from txaware.service.transfer.backup import Backup
from txaware.service.transfer.backup import restore as restore_to

STDIO = "-"


@click.command()
@click.argument("file")
@click.option("--overwrite", is_flag=True, help="Replace a file that is there already.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@pass_session
def backup(session: Session, file: str, *, overwrite: bool, as_json: bool) -> None:
    """Copy all data to one file, as it is at this moment, while it is in use.

    It has everything that was acknowledged before, and nothing of a transaction that is
    still open. FILE appears when it is complete and on disk. With - the bytes go to
    standard output; `txaware restore` finds out if some are missing.

    \b
    Example:
      txaware backup monday.backup
      txaware backup - | zstd > monday.backup.zst
    """
    with session.open(janitor_interval_s=0) as messaging:
        if file == STDIO:
            _check_no_terminal()
            with rows_bar() as progress:
                done = messaging.backup(sys.stdout.buffer, progress=progress)
            sys.stdout.buffer.flush()
        else:
            with (
                _new_file(Path(file), overwrite=overwrite) as part,
                rows_bar() as progress,
            ):
                done = messaging.backup(part, progress=progress)
    _echo(done, file, as_json=as_json, err=file == STDIO)


@click.command()
@click.argument("file")
@click.argument("target", metavar="[URL]", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@pass_session
def restore(session: Session, file: str, target: str | None, *, as_json: bool) -> None:
    """Make a data directory of a backup; URL is leveldb:PATH, or that of --url.

    The directory is empty, or does not exist yet. A backup that is damaged or cut off
    is refused as a whole and leaves nothing behind. What was published since the backup
    is not in it, so a consumer that keeps its position elsewhere may be ahead of a
    restored topic. Never go on with the original beside it.

    \b
    Example:
      txaware restore monday.backup leveldb:./new && txaware --url leveldb:./new check
      zstd -dc monday.backup.zst | txaware restore - leveldb:./new
    """
    directory = _directory(target or session.url)
    with _opened(file) as source, rows_bar() as progress:
        done = restore_to(source, directory, session.settings, progress=progress)
    _echo(done, str(directory), as_json=as_json)


def _echo(done: Backup, place: str, *, as_json: bool, err: bool = False) -> None:
    if as_json and not err:
        echo_json({"place": place, **attrs.asdict(done)})
        return
    click.echo(
        f"{place}: {counted(done.rows, 'row')}, {size_text(done.size_bytes)}, as of "
        f"{time_text(done.created_ms)}",
        err=err,
    )


def _directory(url: str) -> Path:
    scheme, _, path = url.partition(":")
    if scheme != "leveldb" or not path:
        raise BadRequest(f"a backup is restored to leveldb:PATH, not to {url!r}")
    return Path(path)


def _check_no_terminal() -> None:
    if sys.stdout.isatty():
        raise click.UsageError(
            "a backup is not for a terminal; name a file, or pipe it"
        )


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == STDIO:
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as source:
        yield source


@contextmanager
def _new_file(path: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Opens a new file, which gets its name only once all of it is on disk."""
    if path.exists() and not path.is_file():
        raise BadRequest(
            f"{path} is there, and no file that could be replaced; name another, or - "
            f"for standard output"
        )
    if path.exists() and not overwrite:
        raise BadRequest(f"{path} is there already; --overwrite replaces it")
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}-", delete=False
        ) as part:
            try:
                yield part  # type: ignore[misc]
                part.flush()
                os.fsync(part.fileno())
                os.replace(part.name, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(part.name)
                raise
        sync_directory(path.parent)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}") from error
