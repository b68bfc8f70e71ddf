"""Tests that fork a process with threads, of which Python warns from 3.12 on."""

import subprocess
import sys

import pytest

_FILTER = "ignore:This process:DeprecationWarning"

forks_with_threads = pytest.mark.filterwarnings(_FILTER)


def printed_by_forking(program: str) -> tuple[str, str]:
    """Runs a program that forks; returns what it and its child print."""
    ended = subprocess.run(
        [sys.executable, "-W", _FILTER, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ended.stdout, ended.stderr
