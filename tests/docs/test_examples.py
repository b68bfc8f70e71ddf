"""Every example runs as its own process, and prints what its docstring promises."""

from pathlib import Path

import pytest

from tests.support.example_runs import EXAMPLES, prints_what_it_promises

# It kills and restarts for seconds what tests/crash kills as well.
LONG = ("read_process_write",)
PATHS = [
    pytest.param(
        path, marks=pytest.mark.long if path.stem in LONG else (), id=path.stem
    )
    for path in (*sorted(EXAMPLES.glob("*.py")), *sorted(EXAMPLES.glob("group/*.py")))
]


@pytest.mark.parametrize("path", PATHS)
def test_an_example_prints_what_its_docstring_promises(path: Path) -> None:
    prints_what_it_promises(path)
