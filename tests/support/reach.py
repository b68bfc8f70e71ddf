"""Shows mutants to tests: in a process that has collected, which forks for each.

`tests.mutants` makes the copy of the product and the plan, and starts pytest there with
this plug-in. The first fork runs the tests of the short run as they are, and writes
down after each which places it came to. Each further one changes one place and runs
what comes there, the quickest first, up to the first failure.
"""

import json
import os
import select
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.support import python_process, short_run
from tests.support.hits import HITS, seen, switch
from tests.support.workers import marks

PLAN = "MUTANTS_PLAN"  # the file that says what is to be done
NOT_SHOWN = ("soak", "benchmark", "java")
NO_END = "no end"
PATIENCE_S = 60  # beside five times what the tests take without a mutant


@attrs.frozen
class Plan:
    """What one run does, and where it writes it."""

    places: list[str]
    reached: Path  # a line for each test of the short run, with what it comes to
    found: Path  # a line for each mutant that is done
    budget_s: float  # what the tests that are shown one mutant may take in all


@attrs.define
class Reached:
    """What a test comes to, and how long it takes."""

    seconds: float = 0.0
    places: list[str] = attrs.Factory(list)
    failure: str = ""


@attrs.define
class Shown:
    """Which test notices a mutant, and how many have seen it of those that reach it."""

    noticed: str = ""
    seen_by: int = 0
    reached_by: int = 0


_everything: list[pytest.Item] = []
_reports: list[pytest.TestReport] = []


def lines(file: Path) -> Iterator[list[Any]]:
    """Yields what is written in a file of JSON lines, which need not be there yet."""
    if file.exists():
        yield from map(json.loads, file.read_text().splitlines())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, object, object]:
    """Keeps what the short run leaves out."""
    config.option.long = True
    result = yield
    config.option.long = False
    _everything[:] = items
    short_run.pytest_collection_modifyitems(config, items)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Does the plan, and runs nothing else."""
    file = os.environ.get(PLAN)
    if file is None:
        return None
    plan = Plan(**json.loads(Path(file).read_text()))
    plan = attrs.evolve(plan, reached=Path(plan.reached), found=Path(plan.found))
    short = {item.nodeid: item for item in _shown(session.items)}
    further = [item for item in _shown(_everything) if item.nodeid not in short]
    _reach(plan, short)
    reached = {name: Reached(**one) for name, one in lines(plan.reached)}
    done = {place for place, *_ in lines(plan.found)}
    for place in plan.places:
        if place not in done:
            _show(plan, place, reached, short, further)
    return True


def _shown(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    return [item for item in items if marks(item).isdisjoint(NOT_SHOWN)]


def _reach(plan: Plan, short: dict[str, pytest.Item]) -> None:
    """Runs the tests that have not been run, and writes down what each comes to."""
    known = {name for name, _ in lines(plan.reached)}
    rest = [item for name, item in short.items() if name not in known]
    hits = plan.reached.with_suffix(".hits")

    def note() -> None:
        os.environ[HITS] = str(hits)
        for item, following in zip(rest, [*rest[1:], None], strict=True):
            hits.write_text("")
            seen.clear()
            one = _run(item, following)
            one.places = sorted(set(hits.read_text().splitlines()))
            _append(plan.reached, [item.nodeid, attrs.asdict(one)])

    if rest and not _forked(note, None):
        raise RuntimeError("The run without a mutant ended early; begin it again.")


def _show(
    plan: Plan,
    place: str,
    reached: dict[str, Reached],
    short: dict[str, pytest.Item],
    further: list[pytest.Item],
) -> None:
    """Shows a mutant to the short run, and what that lets pass to the rest."""
    come = {
        name: one
        for name, one in reached.items()
        if place in one.places and not one.failure and name in short
    }
    tests = [(short[name], one.seconds) for name, one in come.items()]
    in_short = _noticed(plan, place, sorted(tests, key=_seconds))
    in_long = Shown()
    if not in_short.noticed:
        # Another case of a test comes to what the one of the short run comes to; of a
        # test that is all long nobody knows, so these are the last.
        usual_s = {_function(n): one.seconds for n, one in come.items()}
        known = {_function(name) for name in reached}
        others = [(one, usual_s.get(_function(one.nodeid))) for one in further]
        cases = [(one, seconds) for one, seconds in others if seconds is not None]
        rest = [(one, 1.0) for one, _ in others if _function(one.nodeid) not in known]
        tests = [*sorted(cases, key=_seconds), *rest]
        in_long = _noticed(plan, place, tests, is_long=True)
    _append(plan.found, [place, attrs.asdict(in_short), attrs.asdict(in_long)])


def _seconds(test: tuple[pytest.Item, float]) -> float:
    return test[1]


def _function(name: str) -> str:
    return name.partition("[")[0]


def _noticed(
    plan: Plan,
    place: str,
    tests: list[tuple[pytest.Item, float]],
    *,
    is_long: bool = False,
) -> Shown:
    """Runs tests with a mutant until one fails, or the budget is used up.

    Nobody has run those of the long run as they are: one that fails without the mutant
    too has not noticed it.
    """
    chosen: list[pytest.Item] = []
    usual_s = 0.0
    for item, seconds in tests:
        usual_s += seconds
        if chosen and usual_s > plan.budget_s:
            break
        chosen.append(item)
    told = plan.found.with_suffix(".told")
    timeout_s = 5 * usual_s + PATIENCE_S
    left = chosen
    while left and (failed := _failed(left, place, is_long, told, timeout_s)):
        name, _, failure = failed.partition("\n")
        at = [item.nodeid for item in left].index(name) if failure else 0
        same = left[: at + 1]
        if not (is_long and _failed(same, None, is_long, told, timeout_s)):
            return Shown(f"{name}: {failure}", len(chosen), len(tests))
        left = left[at + 1 :]
    return Shown("", len(chosen), len(tests))


def _failed(
    items: list[pytest.Item],
    place: str | None,
    is_long: bool,
    told: Path,
    timeout_s: float,
) -> str:
    """Returns the first of these tests that fails, and how, below each other."""
    told.write_text("")

    def run() -> None:
        if place is not None:
            switch(place)
        if is_long:
            items[0].config.option.long = True
            python_process.pytest_configure(items[0].config)
        for item, following in zip(items, [*items[1:], None], strict=True):
            if failure := _run(item, following).failure:
                told.write_text(f"{item.nodeid}\n{failure}")
                return

    ended = _forked(run, timeout_s)
    return told.read_text() or ("" if ended else NO_END)


def _run(item: pytest.Item, following: pytest.Item | None) -> Reached:
    """Runs one test, and tells how long it took and how it failed."""
    _reports.clear()
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    failed = [report for report in _reports if report.failed]
    one = Reached(sum(report.duration for report in _reports))
    if failed:
        one.failure = str(failed[0].longreprtext).strip().splitlines()[-1]
    return one


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keeps what happens to a test."""
    _reports.append(report)


def _append(file: Path, value: object) -> None:
    with file.open("a") as out:
        out.write(f"{json.dumps(value)}\n")


def _forked(work: Callable[[], None], timeout_s: float | None) -> bool:
    """Does something in a process of its own, and tells whether it came to its end."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setsid()
            work()
            status = 0
        finally:
            os._exit(status)
    ends = select.poll()
    descriptor = os.pidfd_open(pid)
    ends.register(descriptor, select.POLLIN)
    ends.poll(None if timeout_s is None else timeout_s * 1000)
    os.close(descriptor)
    with suppress(ProcessLookupError):  # all have ended
        os.killpg(pid, signal.SIGKILL)  # and what its tests started
    return os.waitpid(pid, 0)[1] == 0
