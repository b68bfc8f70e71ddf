"""A process that is forked is as one that is started: what tests rely on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.python_process import AS_USUAL, PythonProcess, completed

SAYS = (
    "import os, signal, sys, warnings\n"
    "print(__name__, sys.argv, os.getcwd(), os.environ.get('SAID'))\n"
    "print(sys.path[0], os.environ.get('PYTHONPATH') in sys.path)\n"
    "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
    "print(sys.stdin.read(), file=sys.stderr)\n"
    "print(sorted(int(each) for each in os.listdir('/proc/self/fd'))[:3])\n"
)
STARTED_S = 60
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["forked", "as usual"], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv(AS_USUAL, raising=False)
    if request.param == "as usual":
        monkeypatch.setenv(AS_USUAL, "1")
    return str(request.param)


def test_it_has_its_words_place_environment_and_files(tmp_path: Path) -> None:
    env = {
        "SAID": "so",
        "PYTHONPATH": str(tmp_path / "more"),
        "PATH": os.environ["PATH"],
    }
    ran = completed(
        [sys.executable, "-c", SAYS, "one", "two"],
        cwd=tmp_path,
        env=env,
        stdin="asked",
        text=True,
        timeout=STARTED_S,
    )
    assert ran.stdout.splitlines() == [
        f"__main__ ['-c', 'one', 'two'] {tmp_path} so",
        " True",
        "True",
        "[0, 1, 2]",
    ]
    assert (ran.stderr, ran.returncode) == ("asked\n", 0)


def test_a_module_and_a_file_are_run_as_python_does(tmp_path: Path) -> None:
    text = "import sys; print(sys.argv[1:], sys.orig_argv[1:], sys.path[0])"
    (tmp_path / "said.py").write_text(text)
    for words in (["-m", "said"], ["said.py"]):
        ran = completed(
            [sys.executable, *words, "a"], cwd=tmp_path, text=True, timeout=STARTED_S
        )
        path = str(tmp_path)
        told = f"['a'] {[*words, 'a']} "
        assert ran.stdout in (f"{told}{path}\n", f"{told}\n"), ran


@pytest.mark.parametrize(
    ("text", "code"),
    [("raise SystemExit(7)", 7), ("1 / 0", 1), ("import os; os.abort()", -6)],
)
def test_how_it_ended_is_told(text: str, code: int) -> None:
    ran = completed([sys.executable, "-c", text], timeout=STARTED_S)
    assert ran.returncode == code


def test_warnings_are_what_they_are_told_to_be() -> None:
    text = "import warnings; warnings.warn('so')"
    ran = completed([sys.executable, "-W", "error", "-c", text], timeout=STARTED_S)
    assert (ran.returncode, b"UserWarning: so" in ran.stderr) == (1, True)


def test_it_is_stopped_and_killed_by_its_number() -> None:
    text = "import time; print('there', flush=True); time.sleep(600)"
    with PythonProcess([sys.executable, "-c", text], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(STARTED_S) == -signal.SIGKILL
        assert process.poll() == -signal.SIGKILL
        process.kill()  # of one that is gone already


def test_what_it_is_given_more_is_started_as_usual(tmp_path: Path) -> None:
    with PythonProcess(
        [sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.communicate(timeout=STARTED_S)[0] == b"True\n"


def test_the_short_run_forks_and_the_long_one_does_not(kind: str) -> None:
    ran = completed(
        [sys.executable, "-c", "import os; print(os.getppid())"], timeout=STARTED_S
    )
    assert (int(ran.stdout) == os.getpid()) == (kind == "as usual")


def test_nothing_is_left_open_at_the_end() -> None:
    text = (
        "import sys\n"
        "from tests.support.python_process import completed\n"
        f"completed([sys.executable, '-c', ''], timeout={STARTED_S})"
    )
    warns = ("-W", "always::ResourceWarning")
    ran = subprocess.run(
        [sys.executable, *warns, "-c", text],
        cwd=ROOT,
        capture_output=True,
        timeout=STARTED_S,
        check=True,
    )
    assert ran.stderr == b""
