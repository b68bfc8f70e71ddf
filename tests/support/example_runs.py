"""Runs an example as its own process."""

import ast
import sys
from pathlib import Path

from tests.support.python_process import completed

EXAMPLES = Path(__file__).parents[2] / "examples"


def prints_what_it_promises(path: Path, *, timeout_s: float = 120) -> None:
    """Runs an example; what stands behind `Prints:` in its docstring is its output."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    _, found, promised = docstring.partition("Prints:\n")
    assert found, f"the docstring of {path.name} says nothing after 'Prints:'"
    ran = completed([sys.executable, "-W", "error", path], text=True, timeout=timeout_s)
    assert ran.stdout.strip() == promised.strip(), ran.stderr
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr
