"""Processes begin with the tests that take longest."""

from pathlib import Path

import pytest

from tests.support.durations import longest_first, recorded

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
