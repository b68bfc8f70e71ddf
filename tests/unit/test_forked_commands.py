"""What a shell runs in the short run is as what it runs for a user."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.forked_commands import forked_commands
from tests.support.python_process import AS_USUAL

ENDS_S = 120
Shell = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture(params=["forked", "as usual"])
def shell(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Shell:
    monkeypatch.delenv(AS_USUAL, raising=False)
    if request.param == "as usual":
        monkeypatch.setenv(AS_USUAL, "1")

    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    def run(text: str) -> "subprocess.CompletedProcess[str]":
        with forked_commands(
            tmp_path / "commands", {**os.environ, "PATH": path}
        ) as environment:
            return subprocess.run(
                ["bash", "-c", text],
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=ENDS_S,
            )

    return run


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("python -c 'import sys; print(sys.argv); sys.exit(3)' a; echo $?", "3"),
        ("echo hi | python -c 'print(input())'", "hi"),
        ("cd / && SAID=so python -c 'import os; print(os.getcwd(), end=\"\")'", "/"),
        ("SAID=so python -c 'import os; print(os.environ[\"SAID\"])'", "so"),
        ("python -c 'import os; os.kill(os.getpid(), 9)'; echo $?", "137"),
        ("PYTHONHASHSEED=1 python -c 'print(hash(str()))'", "0"),
        ("txaware no-command; echo $?", "2"),
    ],
)
def test_a_command_has_its_words_place_files_and_end(
    shell: Shell, text: str, printed: str
) -> None:
    assert shell(text).stdout.splitlines()[-1] == printed


def test_a_command_behind_is_ended_by_its_number(shell: Shell) -> None:
    ran = shell(
        "python -c 'print(5, flush=True); import time; time.sleep(600)' > said &\n"
        "until grep -q 5 said; do sleep 0.1; done; kill $!; wait $!; echo $?"
    )
    assert ran.stdout == "143\n"


def test_in_the_short_run_it_is_forked_and_in_the_long_one_it_is_not(
    shell: Shell, request: pytest.FixtureRequest
) -> None:
    """One that is forked is no child of the shell."""
    parents = shell("python -c 'import os; print(os.getppid())'; echo $$").stdout
    asked, of_shell = parents.splitlines()
    is_forked = request.node.callspec.params["shell"] == "forked"
    assert (asked != of_shell) == is_forked
