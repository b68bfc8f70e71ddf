"""Names in directories that a power cut cannot take away.

A sync of a file says nothing about its name, or that of a directory above it. Those are
on disk when the directory that has them was synced.
"""

import os
from pathlib import Path


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
