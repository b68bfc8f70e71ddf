"""The code of a version before, which is taken from the history of this checkout."""

import io
import subprocess
import tarfile
from pathlib import Path

from txaware.errors import Unavailable

CHECKOUT = Path(__file__).parents[3]


def unpack_before(came: str, place: Path) -> None:
    """Unpacks the version in which a file was not there yet."""
    added = ["log", "--diff-filter=A", "--format=%H", "--reverse", "--", came]
    commits = _git(*added).decode().split()
    if not commits:
        raise Unavailable(f"{CHECKOUT} has no history from before {came}")
    code = _git("archive", f"{commits[0]}^", "txaware", "coordinator")
    with tarfile.open(fileobj=io.BytesIO(code)) as archive:
        archive.extractall(place, filter="data")


def _git(*arguments: str) -> bytes:
    command = ["git", "-C", str(CHECKOUT), *arguments]
    run = subprocess.run(command, capture_output=True, check=False)
    if run.returncode:
        said = run.stderr.decode(errors="replace").strip()
        raise Unavailable(f"git does not know a version before: {said}")
    return run.stdout
