"""A mutant goes another way at one place of a file, in each process that is told."""

import pytest

from tests import mutants
from tests.support import hits

SOURCE = '''
"""Its docstring."""

from __future__ import annotations

LIMIT = 2 + 3


def count(numbers: list[int], most: int = 1 + 1) -> int:
    found = 0
    for number in numbers:
        if number > LIMIT and (number is not None or found == most):
            found = found + 1
    return found
'''

SECOND = "number is not None or found == most"
CONDITION = f"number > LIMIT and ({SECOND})"


def test_each_mutant_changes_its_place_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What runs once, at the import, is nobody's place."""
    monkeypatch.setattr(hits, "_mutant", None)
    monkeypatch.setenv(hits.MUTANT, "")
    found = [*mutants.mutants("a.py", SOURCE)]
    text = mutants.with_switches("a.py", SOURCE, {one.number for one in found})
    space: dict[str, object] = {}
    exec(compile(text, "a.py", "exec"), space)
    count = space["count"]
    assert callable(count)
    numbers = [5, 6, 7]
    assert count(numbers) == 2
    ways = {}
    for one in found:
        hits.switch(one.place)
        ways[mutants.changed(SOURCE, one).removeprefix(CONDITION)] = count(numbers)
    assert ways == {
        f"  ->  not ({CONDITION})": 1,
        f"  ->  {CONDITION.replace(' and ', ' or ')}": 3,
        "number > LIMIT  ->  number >= LIMIT": 3,
        f"{SECOND}  ->  {SECOND.replace(' or ', ' and ')}": 0,
        "number is not None  ->  number is None": 0,
        "found == most  ->  found != most": 2,
        "found + 1  ->  found - 1": -2,
    }
