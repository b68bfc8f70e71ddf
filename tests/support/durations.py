"""Gives processes the tests that take longest first, by what they took before.

`pytest -n 4 --dist loadgroup --record-durations` writes `tests/durations.txt` anew.
"""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[1] / "durations.txt"
OPTION = "--record-durations"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Takes `--record-durations`."""
    text = "write how long each group of tests takes, for the next runs to share them"
    parser.addoption(OPTION, action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the order below: xdist would begin with the group of most tests."""
    config.option.loadscopereorder = False
    if config.getoption(OPTION) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Puts the longest group first, where processes share them."""
    if hasattr(config, "workerinput"):
        items[:] = longest_first(items, recorded(FILE))


def longest_first(
    items: list[pytest.Item], seconds: dict[str, float]
) -> list[pytest.Item]:
    """Orders groups; one that nobody has measured may be long, and comes first."""
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[group_of(item)].append(item)
    order = sorted(groups, key=lambda group: -seconds.get(group, math.inf))
    return [item for group in order for item in groups[group]]


def group_of(item: pytest.Item) -> str:
    """Returns the name under which xdist keeps a test with others."""
    names = {str(mark.args[0]) for mark in item.iter_markers("xdist_group")}
    return "_".join(sorted(names))


def recorded(file: Path) -> dict[str, float]:
    """Reads what each group took."""
    if not file.exists():
        return {}
    lines = (line.split() for line in file.read_text().splitlines())
    return {group: float(seconds) for group, seconds in lines}


class Recorder:
    """Adds up what the tests of each group take, and writes it at the end."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Counts a test's set-up, call and end."""
        self._seconds[report.nodeid.rpartition("@")[2]] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Writes each group in a line, the longest first."""
        found = sorted(self._seconds.items(), key=lambda each: (-each[1], each[0]))
        lines = [f"{group} {seconds:.1f}" for group, seconds in found]
        FILE.write_text("\n".join([*lines, ""]))
