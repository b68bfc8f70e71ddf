"""Figures a to c: the example's scheduler, whose floors are times and shares."""

import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import txaware
from examples.workflow_scheduler.page import PageServer
from examples.workflow_scheduler.place import Place
from examples.workflow_scheduler.runs import SUCCEEDED, Run, Told
from examples.workflow_scheduler.store import Store
from examples.workflow_scheduler.triggers import RUNS, Note
from tests.benchmarks.first_view import first_view_s, watch
from tests.benchmarks.started import STARTS_S, busy_s, served, started
from tests.support.browser import chromium
from tests.support.concurrency import until
from txaware.bench.measure import Figure, in_turns
from txaware.bench.trial import Measured, Trial, measured

SCHEDULES, MANY_SCHEDULES = 1_000, 10_000
TRIGGERS_PER_S = 100
LAUNCH_S, IDLE_SHARE, VIEW_S = 0.1, 0.01, 1.0
SEEN_RUNS = 1_000
TRUE = {"command": ["true"]}


def definition_file(path: Path, count: int) -> Path:
    """Writes so many workflows, each by an event, and by a time of the night."""
    path.write_text(
        "".join(
            f'[workflows.w{number}]\non = {{any = [{{event = "go"}}, '
            f'{{cron = "{number % 60} 3 1 1 *"}}]}}\n'
            f'[workflows.w{number}.steps.only]\ncommand = ["true"]\n'
            for number in range(count)
        )
    )
    return path


@contextmanager
def scheduling(
    trial: Trial, count: int
) -> Iterator[tuple[txaware.Messaging, subprocess.Popen[bytes]]]:
    """Runs a server and a scheduler of so many workflows, without a worker.

    On a directory of its own: where the workflows are known, no one sees it begin.
    """
    trial.tell(f"deploying {count:,} workflows")
    directory = Path(tempfile.mkdtemp(dir=trial.directory))
    file = definition_file(directory / "workflows.toml", count)
    with (
        served(directory / "data") as (url, _),
        started(
            *("examples.workflow_scheduler", "run", str(file)),
            *("--url", url, "--workers", "0"),
        ) as scheduler,
        txaware.connect(url) as messaging,
    ):
        store = Store(messaging)

        def is_deployed() -> bool:
            last = store.state(f"w{count - 1}")  # all of them are read seldom
            return last is not None and sum(1 for _ in store.states()) == count

        if not until(is_deployed, timeout_s=STARTS_S):
            raise RuntimeError("the scheduler does not take its workflows on")
        yield messaging, scheduler


class Launches:
    """Triggers workflows one after the other, and sees them launched."""

    def __init__(self, messaging: txaware.Messaging, count: int) -> None:
        self._messaging = messaging
        self._count = count
        self._next = 0
        self._seen_s: dict[str, float] = {}
        self._runs = messaging.consumer(RUNS, group="benchmark")
        self._runs.seek("next")

    def p50_s(self, for_s: float) -> float:
        """Triggers at a steady rate; half of the runs are told of sooner than this."""
        self._seen_s.clear()
        triggered_s: dict[str, float] = {}
        ended = threading.Event()
        reader = threading.Thread(target=self._read, args=(ended,))
        reader.start()
        store = Store(self._messaging)
        began_s = time.monotonic()
        for number in range(int(TRIGGERS_PER_S * for_s)):
            time.sleep(max(0, began_s + number / TRIGGERS_PER_S - time.monotonic()))
            name = f"w{self._next % self._count}"
            self._next += 1
            note = Note("event go", self._messaging.clock_ms(), id=str(self._next))
            triggered_s.setdefault(name, time.monotonic())
            store.tell(Told("note", name, note))
        are_launched = until(
            lambda: triggered_s.keys() <= self._seen_s.keys(), timeout_s=STARTS_S
        )
        ended.set()
        reader.join()
        if not are_launched:
            raise RuntimeError("not every trigger has launched a run")
        return statistics.median(
            self._seen_s[name] - at_s for name, at_s in triggered_s.items()
        )

    def _read(self, ended: threading.Event) -> None:
        while not ended.is_set():
            self._runs.wait(0.5)
            now_s = time.monotonic()
            for message in self._runs.poll(1_000):
                told = txaware.from_json(message.payload)
                self._seen_s.setdefault(told["workflow"], now_s)


def launches(trial: Trial) -> list[Figure]:
    """Figure a."""
    found = []
    for count in sorted({SCHEDULES, trial.count(MANY_SCHEDULES)}):
        with scheduling(trial, count) as (messaging, _):
            measure = partial(Launches(messaging, count).p50_s, trial.for_s)
            values = in_turns(trial.rounds, launch=measure)["launch"]
        name = f"a) launch p50, {TRIGGERS_PER_S} triggers/s over {count:,} schedules"
        limits = [LAUNCH_S] * len(values)
        found.append(Figure(name, "s", values, limits, "limit", at_most=1))
    return found


def idle(trial: Trial) -> list[Figure]:
    """Figure b."""
    count = trial.count(MANY_SCHEDULES)
    with scheduling(trial, count) as (_, scheduler):
        time.sleep(trial.for_s)  # what it does after its begin is over

        def share() -> float:
            began_s, spent_s = time.monotonic(), busy_s(scheduler)
            time.sleep(4 * trial.for_s)  # a tick of the system counts little
            return (busy_s(scheduler) - spent_s) / (time.monotonic() - began_s)

        values = in_turns(trial.rounds, share=share)["share"]
    name = f"b) idle scheduler of {count:,} schedules"
    limits = [IDLE_SHARE] * len(values)
    return [Figure(name, "of a core", values, limits, "limit", at_most=1)]


def first_view(trial: Trial) -> list[Figure]:
    """Figure c."""
    with scheduling(trial, SCHEDULES) as (messaging, _), chromium() as browser:
        store, now_ms = Store(messaging), messaging.clock_ms()
        with messaging.transaction():
            for number in range(1, SEEN_RUNS + 1):
                at_ms = now_ms - (SEEN_RUNS - number) * 60_000
                store.put_run(
                    Run(
                        *(
                            f"w0-{number}",
                            "w0",
                            number,
                            SUCCEEDED,
                            "trigger",
                            "",
                            at_ms,
                        ),
                        triggers=[Note("event go", at_ms)],
                        launched_ms=at_ms,
                        ended_ms=at_ms + 30_000,
                    )
                )
        watch(browser, "h2 ~ .panel")

        def view_s(name: str) -> float:
            """A page that was just begun has read nothing before."""
            with PageServer(Place(messaging.reach().url), 0) as server:
                thread = threading.Thread(target=server.serve_forever)
                thread.start()
                try:
                    return first_view_s(browser, f"{server.url}workflows/{name}")
                finally:
                    server.shutdown()
                    thread.join()

        found = in_turns(
            trial.rounds, many=lambda: view_s("w0"), none=lambda: view_s("w1")
        )
    name = f"c) first view of {SEEN_RUNS:,} runs"
    limits = [VIEW_S] * len(found["many"])
    return [
        Figure(name, "s", found["many"], limits, "limit", at_most=1),
        Figure(name, "s", found["many"], found["none"], "of a workflow without runs"),
    ]


FIGURES = [
    Measured(
        "a",
        "100 triggers a second by one client, over 1,000 and over 10,000 schedules, at "
        "a scheduler and a server in processes of their own: a waiting reader is told "
        "of half of the runs within this time of their triggers. At most 100 ms.",
        launches,
    ),
    Measured(
        "b",
        "The processor time of a scheduler with 10,000 schedules of which none is due, "
        "in a second. At most 1 % of a core.",
        idle,
    ),
    Measured(
        "c",
        "A workflow of 1,000 runs on the page of the scheduler, in Chromium: from its "
        "address until its runs are drawn, with a page server that was just begun. At "
        "most 1 s; and beside a workflow that never ran.",
        first_view,
    ),
]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other."""
    return measured(FIGURES, trial, letters)
