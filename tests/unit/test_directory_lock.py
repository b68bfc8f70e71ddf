"""One directory, one owner: within a process and between processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.directory_lock import DirectoryLock
from coordinator.errors import Unavailable

HOLD = """
import sys
from pathlib import Path
from coordinator.directory_lock import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_holder_is_refused_and_told_the_first_ones_pid(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    with pytest.raises(Unavailable, match=f"in use by process {os.getpid()}"):
        DirectoryLock(tmp_path)
    lock.release()
    DirectoryLock(tmp_path).release()


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(Unavailable, match=f"in use by process {holder.pid}"):
                DirectoryLock(tmp_path)
        finally:
            holder.kill()
    DirectoryLock(tmp_path).release()


def test_releasing_twice_does_nothing(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.release()
    lock.release()
