"""A directory that only its user may enter, with files that only its user may read."""

import logging
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

_OTHERS = 0o077
# The names in a data directory. A directory that has others (`leveldb:.` in a project)
# is not for data alone: its mode stays as it is, and only our files are tightened.
_OURS = re.compile(
    r"LOCK|rows|shards|journal(\.new)?|SERVER(\.\d+)?|\.restore-.*|lost\+found"
)


def make_private(directory: Path) -> None:
    """Makes a data directory with mode 0700, or tightens it and its files.

    Files and directories of other users stay as they are.
    """
    make_directory(directory, mode=0o700)
    status = directory.stat()
    with os.scandir(directory) as found:
        entries = list(found)
    ours = [entry for entry in entries if _OURS.fullmatch(entry.name)]
    if stat.S_IMODE(status.st_mode) & _OTHERS and len(ours) == len(entries):
        _tighten_directory(directory, status, tells=bool(entries))
    for entry in ours:
        # A SERVER that others could write leads nobody, and must not look as if it did.
        if entry.is_file(follow_symlinks=False) and not entry.name.startswith("SERVER"):
            _tighten(entry.path, entry.stat(follow_symlinks=False))


def make_all_private(directory: Path) -> None:
    """Makes or tightens a directory whose files are all ours, as LevelDB's are.

    LevelDB makes files with the mode that the umask of the whole process gives. So the
    directory keeps others out at all times, and files are tightened at each opening.
    """
    make_directory(directory, mode=0o700)
    status = directory.stat()
    if stat.S_IMODE(status.st_mode) & _OTHERS:
        could_be_entered = bool(directory.parent.stat().st_mode & _OTHERS)
        _tighten_directory(directory, status, tells=could_be_entered)
    tighten_files(directory)


def tighten_files(directory: Path) -> None:
    """Closes the files of a directory to other users; skips files that are gone."""
    try:
        names = os.listdir(directory)  # of which an interrupt leaves nothing open
    except FileNotFoundError:
        return
    for name in names:
        path = f"{directory}/{name}"
        with suppress(FileNotFoundError):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                _tighten(path, status)


def _tighten_directory(directory: Path, status: os.stat_result, *, tells: bool) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if not _tighten(str(directory), status) or not tells:
        return
    log.warning(
        "%s had the mode %04o, so that other users of this machine may have read what "
        "is in it; it is for its own user only now (0700)",
        directory,
        mode,
    )


def _tighten(path: str, status: os.stat_result) -> bool:
    """Closes a path to other users; tells whether that changed anything."""
    mode = stat.S_IMODE(status.st_mode)
    if not mode & _OTHERS:
        return False
    if status.st_uid != os.geteuid():
        log.warning("%s is open to others, and not ours to change", path)
        return False
    try:
        os.chmod(path, mode & ~_OTHERS & 0o777)
    except PermissionError as error:
        log.warning("%s stays open to others: %s", path, error.strerror)
        return False
    return True


def sync_directory(directory: Path) -> None:
    """Returns when the names of all that is in a directory are on disk."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(directory: Path, *, mode: int) -> None:
    """Makes a directory where there is none, and those above it; all are on disk."""
    missing = [one for one in (directory, *directory.parents) if not one.exists()]
    directory.mkdir(mode=mode, parents=True, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)
