"""Processes begin with the tests that take longest."""

from pathlib import Path

import pytest

from tests.support.durations import FILE, longest_first, recorded
from tests.support.workers import QUICK_S, TESTS, is_quick

PROCESSES = 4
QUICK_RUN_S, COLLECTING_S = 240, 40

GROUPS = """
import pytest

@pytest.mark.xdist_group("short")
def test_short(): ...

@pytest.mark.xdist_group("new")
def test_new(): ...

@pytest.mark.xdist_group("long")
def test_long(): ...

@pytest.mark.xdist_group("short")
def test_short_too(): ...
"""


def test_the_longest_group_comes_first_and_before_it_one_that_is_not_known(
    pytester: pytest.Pytester,
) -> None:
    items = pytester.getitems(GROUPS)
    found = longest_first(items, {"short": 1.0, "long": 5.0})
    assert [each.name for each in found] == [
        *("test_new", "test_long", "test_short", "test_short_too"),
    ]


def test_nothing_is_known_without_a_record(tmp_path: Path) -> None:
    assert recorded(tmp_path / "durations.txt") == {}


def test_a_file_of_seconds_is_quick_but_of_kills_and_of_pages() -> None:
    took = {"test_short": QUICK_S - 1.0, "test_long": QUICK_S + 1.0}
    assert is_quick(Path("unit/test_short.py"), took)
    assert is_quick(Path("unit/test_new.py"), took)
    assert not is_quick(Path("unit/test_long.py"), took)
    assert not is_quick(Path("crash/test_short.py"), took)
    assert not is_quick(Path("http/page/test_short.py"), took)


def test_the_quick_run_fits_into_four_minutes() -> None:
    files = {file.stem: file for file in TESTS.rglob("test_*.py")}
    took = recorded(FILE)
    quick = [took[each] for each in took.keys() & files if is_quick(files[each], took)]
    assert sum(quick) / PROCESSES < QUICK_RUN_S - COLLECTING_S
