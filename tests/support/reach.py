"""Tells which tests come to which places of the product, and runs the chosen ones."""

import json
import os
from collections.abc import Generator
from pathlib import Path

import attrs
import pytest

from tests.support.hits import HITS, seen

REACHED = "MUTANTS_REACHED"  # the folder for what each process of pytest found
CHOSEN = "MUTANTS_CHOSEN"  # the file that names the tests to run, in their order


@attrs.define
class Reached:
    """What a test comes to, and how long it takes."""

    seconds: float = 0.0
    places: list[str] = attrs.Factory(list)
    passed: bool = True


_found: dict[str, Reached] = {}


def name_of(nodeid: str) -> str:
    """Returns a test's name without its group."""
    name, at, group = nodeid.rpartition("@")
    return nodeid if not at or "]" in group else name


def pytest_configure() -> None:
    """Gives each process that runs tests a file of its own."""
    if folder := os.environ.get(REACHED):
        os.environ[HITS] = str(Path(folder, f"{os.getpid()}.hits"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Keeps the tests that are named, in the order in which they are."""
    file = os.environ.get(CHOSEN)
    if file is None:
        return
    chosen = Path(file).read_text().splitlines()
    by_name = {name_of(item.nodeid): item for item in items}
    kept = [by_name[name] for name in chosen if name in by_name]
    left_out = set(items) - set(kept)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = kept


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Notes the places of one test."""
    file = os.environ.get(HITS)
    if file is None:
        return (yield)
    seen.clear()
    hits = Path(file)
    hits.write_text("")
    result = yield
    reached = _found.pop(item.nodeid, None)
    folder = os.environ.get(REACHED)
    if folder and reached is not None and reached.passed:
        reached.places = sorted(set(hits.read_text().splitlines()))
        line = json.dumps([name_of(item.nodeid), attrs.asdict(reached)])
        with Path(folder, f"{os.getpid()}.jsonl").open("a") as out:
            out.write(f"{line}\n")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds up how long a test takes."""
    reached = _found.setdefault(report.nodeid, Reached())
    reached.seconds += report.duration
    reached.passed &= report.passed
