"""The scheduler of the examples as processes, by its command line."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.concurrency import until
from tests.support.python_process import PythonProcess, completed

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "examples.workflow_scheduler"]
DEADLY = """\
[workflows.deadly.steps.only]
command = ["sh", "-c", "kill -9 $PPID; sleep 60"]

[workflows.slow.steps.only]
command = ["sh", "-c", "echo begun; sleep 60"]
"""
WITH_FUNCTION = """\
from examples.workflow_scheduler import StepContext, Workflows, event

workflows = Workflows()
counted = workflows.workflow("counted", on=event("now"))


@counted.step()
def first(step: StepContext) -> int:
    step.messaging.table("counts").put(step.run.encode(), b"here")
    return 42


@counted.step(after=["first"])
async def second(step: StepContext) -> int:
    return step.token["first"] + 1
"""


def call(*words: str, code: int = 0) -> str:
    ran = completed([*COMMAND, *words], cwd=ROOT, text=True, timeout=120)
    assert ran.returncode == code, ran.stderr
    said: str = ran.stdout if code == 0 else ran.stderr
    return said


@pytest.fixture
def url() -> Iterator[str]:
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        yield server.url


class Running:
    """A process of `run` or `worker`."""

    def __init__(self, *words: str) -> None:
        self.is_killed = self.loses_owner = False
        self._process = PythonProcess(
            [*COMMAND, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> PythonProcess:
        return self._process

    def __exit__(self, *exc_info: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        _, errors = self._process.communicate(timeout=60)
        assert self.loses_owner or "Traceback" not in errors, errors
        code = -signal.SIGKILL if self.is_killed else 0
        assert self._process.returncode == code, errors


def history(url: str, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        call("history", name, "--json", "--url", url)
    )
    return found


def test_functions_of_a_python_file_are_steps(url: str, tmp_path: Path) -> None:
    file = tmp_path / "counted.py"
    file.write_text(WITH_FUNCTION)
    scheduler = Running("run", str(file), "--workers", "0", "--url", url)
    with scheduler, Running("worker", str(file), "--url", url):
        options = ("--event", "now", "--wait", "--url", url)
        assert "counted-1" in call("trigger", "counted", *options)
        token = json.loads(call("--url", url, "token", "counted-1"))
        assert token == {"first": 42, "second": 43}
    with txaware.connect(url) as messaging:
        assert messaging.table("counts").get(b"counted-1") == b"here"


def test_a_step_that_kills_its_worker_fails_its_run_and_others_go_on(
    url: str, tmp_path: Path
) -> None:
    file = tmp_path / "deadly.toml"
    file.write_text(DEADLY)
    options = ("--lease", "1s", "--deliveries", "2", "--url", url)
    with Running("run", str(file), *options):
        call("trigger", "deadly", "--wait", "--url", url, code=1)
        [run] = history(url, "deadly")
        assert run["state"] == "failed"
        assert run["reason"] == "step only: it was handed out 2 times and never ended"
        call("trigger", "slow", "--url", url)
        assert until(lambda: "begun" in call("show", "slow-1", "--url", url))
        call("cancel", "slow-1", "--url", url)
        assert until(lambda: history(url, "slow")[0]["state"] == "cancelled")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("trigger", "counted", "--event", "never"), "does not wait for event never"),
        (("show", "counted-7"), "no run is called counted-7"),
        (("cancel", "counted-1"), "run counted-1 is succeeded already"),
        (
            ("backfill", "counted", "--from", "2026-01-01", "--to", "2026-01-02"),
            "workflow counted has no schedule by time",
        ),
        (("history", "nothing"), "no workflow is called nothing"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    counted_url: str, words: tuple[str, ...], error: str
) -> None:
    said = call(*words, "--url", counted_url, code=1)
    assert error in said
    assert len(said.splitlines()) == 1


@pytest.fixture(scope="module")
def counted_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server where a run has ended."""
    file = tmp_path_factory.mktemp("counted") / "counted.py"
    file.write_text(WITH_FUNCTION)
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        with Running("run", str(file), "--url", server.url):
            call("trigger", "counted", "--wait", "--url", server.url)
        yield server.url


def test_without_a_place_the_command_line_asks_for_it() -> None:
    assert "Say --url ADDRESS or --data DIRECTORY" in call("list", code=2)


def test_the_page_is_served_until_it_is_told_to_end(url: str) -> None:
    process = PythonProcess(
        [*COMMAND, "page", "--port", "0", "--url", url],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        with urllib.request.urlopen(f"{address}api/workflows", timeout=60) as answer:
            assert json.load(answer) == {"workflows": [], "count": 0}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_directory_changes_its_owner_when_that_is_killed(tmp_path: Path) -> None:
    """The worker is led to the scheduler, and has the data itself after its death."""
    file = tmp_path / "counted.py"
    file.write_text(WITH_FUNCTION)
    place = ("--data", str(tmp_path / "data"), "--lease", "1s")
    owner = Running("run", str(file), "--workers", "0", *place)
    with owner as first:
        call("trigger", "counted", *place[:2])
        worker = Running("worker", str(file), *place)
        worker.loses_owner = True  # whose calls are logged as they fail
        with worker:
            call("trigger", "counted", "--wait", *place[:2])
            first.kill()
            first.wait()
            with Running("run", str(file), "--workers", "0", *place):
                call("trigger", "counted", "--wait", *place[:2])
        owner.is_killed = True
