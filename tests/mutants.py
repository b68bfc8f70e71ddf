"""Breaks the product in one place at a time, and tells which tests notice.

`python -m tests.mutants --count 40 --seed 1 tests/unit tests/contract` takes a sample
that is the same each time. What the short run lets pass is tried with `--long`: a test
that notices only there belongs into the short run (`@pytest.mark.everywhere`).
"""

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PLACES = ("coordinator/embedded", "txaware/service/queue", "txaware/service/read")
FOLDERS = ("coordinator", "txaware", "tests", "examples", "docs")
FILES = ("pyproject.toml", "pyspark_txaware.py", "README.md", "CONTRIBUTING.md")
TIMEOUT_S = 1800
OPPOSITE: dict[type[ast.AST], Any] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


def mutants(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of each mutant of a file."""
    text = path.read_text()
    count = sum(1 for _ in _places(ast.parse(text)))
    for number in range(count):
        tree = ast.parse(text)
        node = list(_places(tree))[number]
        _change(node)
        yield node.lineno, ast.unparse(tree)


def _places(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            if type(node.ops[0]) in OPPOSITE:
                yield node
        elif isinstance(node, ast.BoolOp):
            yield node
        elif isinstance(node, ast.BinOp):
            if type(node.op) in OPPOSITE:
                yield node
        elif isinstance(node, ast.If | ast.While):
            yield node


def _change(node: ast.AST) -> None:
    if isinstance(node, ast.Compare):
        node.ops[0] = OPPOSITE[type(node.ops[0])]()
    elif isinstance(node, ast.BoolOp | ast.BinOp):
        node.op = OPPOSITE[type(node.op)]()
    elif isinstance(node, ast.If | ast.While):
        node.test = ast.UnaryOp(ast.Not(), node.test)


def sample(count: int, seed: int) -> list[tuple[str, int, str]]:
    """Returns files below the root, lines and texts."""
    found = [
        (str(path.relative_to(ROOT)), line, text)
        for place in PLACES
        for path in sorted((ROOT / place).rglob("*.py"))
        for line, text in mutants(path)
    ]
    return random.Random(seed).sample(found, count)


def notices(copy: Path, tests: list[str]) -> str | None:
    """Returns the first test that fails, if one does; what never ends is noticed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    try:
        run = subprocess.run(
            [*command, *tests],
            cwd=copy,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "no end"
    if run.returncode == 0:
        return None
    lines = run.stdout.splitlines()
    named = (line for line in lines if line.startswith(("FAILED", "ERROR")))
    return next(named, f"exit {run.returncode}")


def main() -> None:
    """Prints each mutant with what noticed it, and how many got through."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options, tests = parser.parse_known_args()
    only_long = survivors = 0
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, copy / name)
        for name in FILES:
            shutil.copy(ROOT / name, copy / name)
        if failure := notices(copy, tests):
            raise SystemExit(f"without a mutant too: {failure}")
        for file, line, text in sample(options.count, options.seed):
            before = (copy / file).read_text()
            (copy / file).write_text(text)
            short = notices(copy, tests)
            long = None if short else notices(copy, [*tests, "--long"])
            only_long += long is not None
            survivors += short is None and long is None
            print(f"{file}:{line}: short: {short}, long: {long}", flush=True)
            (copy / file).write_text(before)
    print(
        f"{options.count} mutants, {survivors} survive, {only_long} only the short run"
    )


if __name__ == "__main__":
    main()
