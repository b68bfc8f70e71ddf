"""The example of a package with a participant of its own passes its own tests."""

import os
import subprocess
import sys

from tests.support.example_runs import EXAMPLES


def test_its_tests_pass_as_they_are_run_there() -> None:
    place = EXAMPLES / "own_participant"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, "-c", str(place / "pyproject.toml"), "--rootdir", str(place)],
        cwd=place,
        env={
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PYTEST")
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "passed" in ran.stdout
