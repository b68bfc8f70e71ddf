"""Schedulers, workers and the server of the example are killed: one run a trigger."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest

import txaware
from examples.workflow_scheduler.operations import Operations
from examples.workflow_scheduler.place import Place
from examples.workflow_scheduler.runs import Run, StepRun
from examples.workflow_scheduler.store import Store
from examples.workflow_scheduler.triggers import DATA, Note
from tests.support.concurrency import until
from tests.support.ports import free_port
from tests.support.python_process import PythonProcess
from tests.support.workflow_checker import Found, problems
from tests.support.workflow_shop import TRACES, workflows

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "support" / "workflow_shop.py"
SCHEDULER = "examples.workflow_scheduler"
PATIENCE_S = 240
PER_RUN = {"by-count": 4, "by-pair": 2}


class Plant:
    """The processes, and those who trigger workflows."""

    def __init__(self, directory: Path) -> None:
        port = str(free_port())
        self.url = f"http://127.0.0.1:{port}"
        self.triggers: dict[str, list[str]] = {
            name: [] for name in workflows.definitions().workflows if "time" not in name
        }
        self._directory = directory
        at = ("--url", self.url, "--lease", "2s", "--deliveries", "20")
        schedule = (SCHEDULER, "run", str(FILE), "--workers", "0", *at)
        work = (SCHEDULER, "worker", str(FILE), "--threads", "2", *at)
        self.commands = {
            "server": ("txaware", "serve", "--data", "./data", "--port", port),
            "scheduler 1": schedule,
            "scheduler 2": schedule,
            "worker 1": work,
            "worker 2": work,
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, part: str) -> None:
        with (self._directory / f"{part}.log").open("ab") as log:
            self._running[part] = PythonProcess(
                [sys.executable, "-m", *self.commands[part]],
                cwd=self._directory,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )

    def kill(self, part: str) -> None:
        assert self._running[part].poll() is None, (part, self.logs())
        self._running[part].kill()
        self._running[part].wait()
        self.start(part)

    def open(self) -> None:
        self.start("server")
        assert until(lambda: answers(self.url), timeout_s=PATIENCE_S), self.logs()
        with txaware.connect(self.url) as messaging:
            messaging.create_topic(TRACES)
        for part in self.commands:
            if part != "server":
                self.start(part)
        names = workflows.definitions().workflows
        operations = Operations(Place(self.url))
        assert until(
            lambda: set(operations.names()) == set(names), timeout_s=PATIENCE_S
        ), self.logs()

    def trigger(self, number: int) -> None:
        """Triggers, one kind after the other; what was lost on the way comes again."""
        mark, kind = f"mark-{number}", number % 6
        if kind == 0:
            self._tell("by-event", "arrived", mark)
        elif kind == 1:
            self._tell("by-hand", None, mark)
        elif kind == 2:
            for side in ("left", "right"):
                self._tell("by-pair", side, f"{side}-{mark}")
        elif kind == 5:
            self._tell("by-either", ("this", "that")[number % 4 // 2], mark)
        else:
            topic, key = ("orders", None) if kind == 3 else (DATA, b"clicks")
            self._publish(topic, key, mark)
            for name in ["by-topic", "by-count"] if kind == 3 else ["by-data"]:
                self.triggers[name].append(mark)

    def _tell(self, name: str, event: str | None, mark: str) -> None:
        """Triggers a workflow once, which its mark sees to."""
        operations = Operations(Place(self.url))
        self._once_up(lambda: operations.trigger(name, event=event, once=mark))
        self.triggers[name].append(mark)

    def _publish(self, topic: str, key: bytes | None, mark: str) -> None:
        """Publishes once, with a row that says so."""

        def publish() -> None:
            with txaware.connect(self.url) as messaging:
                done = messaging.table("published")
                with messaging.transaction():
                    if done.get(mark.encode()) is None:
                        done.put(mark.encode(), b"")
                        messaging.publisher(topic).publish(mark.encode(), key=key)

        self._once_up(publish)

    def _once_up(self, act: Callable[[], T]) -> T:
        """Acts, and again where the server is away: it was killed, and begins anew."""
        end_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return act()
            except txaware.TxAwareError:
                assert time.monotonic() < end_s, self.logs()

    def found(self) -> Found:
        """Returns all that can be known; runs by time have what they are for."""
        operations = Operations(Place(self.url))
        names = list(workflows.definitions().workflows)
        runs = [run for name in names for run in operations.runs(name)]
        with txaware.connect(self.url) as messaging:
            reader = messaging.consumer(TRACES)
            traces: list[tuple[str, str]] = []
            while page := reader.poll(1000):
                for message in page:
                    run, step = txaware.from_json(message.payload)
                    traces.append((run, step))
        ended = [run.run for run in runs if run.workflow == "by-event"]
        times = [run.triggers[0].id for run in runs if run.workflow == "by-time"]
        triggers = {**self.triggers, "after-event": ended}
        if times:  # none of the seconds is left out, and none comes twice
            first, last = int(min(times)), int(max(times))
            every = [str(time_ms) for time_ms in range(first, last + 1, 1000)]
            triggers["by-time"] = every
        return Found(triggers, PER_RUN, runs, traces)

    def settle(self) -> list[str]:
        """Waits until all runs are over; returns what is wrong then."""
        self._once_up(lambda: Operations(Place(self.url)).pause("by-time"))

        def is_over() -> bool:
            found = self._once_up(self.found)
            return not problems(found) and all(run.is_over for run in found.runs)

        until(is_over, timeout_s=PATIENCE_S)
        return problems(self._once_up(self.found))

    def close(self) -> None:
        """Stops the parts in good order."""
        for part in sorted(self.commands, key="server".__eq__):  # the server last
            process = self._running[part]
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0, (part, self.logs())

    def kill_all(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def logs(self) -> str:
        return "\n".join(
            f"{path.stem}: {path.read_text()[-1500:]}"
            for path in sorted(self._directory.glob("*.log"))
        )


def answers(url: str) -> bool:
    try:
        with txaware.connect(url) as messaging:
            return Store(messaging).state("nothing") is None
    except txaware.TxAwareError:
        return False


@contextmanager
def opened(directory: Path) -> Iterator[Plant]:
    plant = Plant(directory)
    try:
        plant.open()
        yield plant
    finally:
        plant.kill_all()


@pytest.mark.parametrize(
    ("triggers", "kills"),
    [(48, 6), pytest.param(1008, 150, marks=pytest.mark.soak, id="1008")],
)
def test_each_trigger_is_one_run_whatever_is_killed(
    triggers: int, kills: int, tmp_path: Path
) -> None:
    """`pytest -m soak -s tests/crash/test_workflow_kill.py` for the long one.

    The triggers are whole rounds of all kinds, and whole counts of four.
    """
    seed = random.randrange(1 << 32) if triggers > 100 else 35
    print(f"seed {seed}")
    choice = random.Random(seed)
    with opened(tmp_path) as plant:
        for number in range(triggers):
            plant.trigger(number)
            if choice.random() < kills / triggers:
                plant.kill(choice.choice(list(plant.commands)))
        assert plant.settle() == [], plant.logs()
        assert len(list(plant.found().runs)) > triggers
        plant.close()


def a_run(number: int, *marks: str, state: str = "succeeded") -> Run:
    notes = [Note("event arrived", 0, id=mark) for mark in marks]
    steps = {"only": StepRun(state)}
    return Run(
        f"load-{number}", "load", number, state, "", "", 0, triggers=notes, steps=steps
    )


GOOD = Found(
    {"load": ["a", "b"]},
    {},
    [a_run(1, "a"), a_run(2, "b")],
    [("load-1", "only"), ("load-2", "only")],
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"runs": [a_run(1, "a")]}, ["load: b was lost"]),
        ({"runs": [a_run(1, "a"), a_run(2, "b", "a")]}, ["load: a came twice"]),
        (
            {"runs": [a_run(1, "a"), a_run(2, "b"), a_run(3, "b")]},
            ["load: b came twice"],
        ),
        (
            {"runs": [a_run(1, "a"), a_run(2, "b", state="running")]},
            ["load-2 is running: "],
        ),
        ({"effects": [("load-1", "only")]}, ["load-2: only had no effect"]),
        (
            {"effects": [*GOOD.effects, ("load-1", "only")]},
            ["load-1: only had two effects"],
        ),
    ],
)
def test_what_is_lost_or_doubled_is_found(
    change: dict[str, Any], said: list[str]
) -> None:
    found = problems(attrs.evolve(GOOD, **change))
    assert (not found) == (not said)
    assert set(said) <= set(found)
