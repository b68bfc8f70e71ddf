"""Every example runs as its own process, and prints what its docstring promises."""

from pathlib import Path

import pytest

from tests.support.example_runs import EXAMPLES, prints_what_it_promises


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: str(path.stem)
)
def test_an_example_prints_what_its_docstring_promises(path: Path) -> None:
    prints_what_it_promises(path)
