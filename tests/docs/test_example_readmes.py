"""The README of each example: short, and its first block of shell runs as it stands."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forked_commands import forked_commands

ROOT = Path(__file__).parents[2]
READMES = sorted((ROOT / "examples").glob("*/README.md"))
SHELL = re.compile(
    r"^```(?:sh|shell|bash|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
MOST_LINES = 100
# What the last line of a block says, where it says how it went.
LAST = {"workflow_scheduler": '"state": "succeeded"'}
# A block ends within 30 s of a machine at rest, which this one is not while other tests
# run: the time that passes bounds only a block that hangs. What it costs is bounded by
# the processor's time, as no block waits for anything but its own programs.
MOST_PROCESSOR_S, TIMEOUT_S = 30, 240


def name_of(path: Path) -> str:
    return path.parent.name


@pytest.mark.parametrize("readme", READMES, ids=name_of)
def test_its_first_block_ends_by_itself(readme: Path, tmp_path: Path) -> None:
    text = readme.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    block = SHELL.search(text)
    assert block is not None
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    before, busy_s = changed(), processor_s()
    with forked_commands(tmp_path / "commands", environment) as environment:
        ran = subprocess.run(
            # With SIGTERM an example ends what it has begun.
            ["timeout", str(TIMEOUT_S), "bash", "-euo", "pipefail", "-c", block[1]],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert LAST.get(name_of(readme), "") in ran.stdout.rstrip().rpartition("\n")[2]
    assert processor_s() - busy_s <= MOST_PROCESSOR_S
    assert changed() == before


def processor_s() -> float:
    """Returns the processor time of all processes that were started here and ended.

    What is forked for the short run does not count.
    """
    of = resource.getrusage(resource.RUSAGE_CHILDREN)
    return of.ru_utime + of.ru_stime


def changed() -> str:
    """Returns what git says of the files here."""
    status = ["git", "status", "--porcelain"]
    return subprocess.run(
        status, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
