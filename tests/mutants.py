"""Breaks the product in one place at a time, and tells which tests notice.

`python -m tests.mutants --count 40 --seed 1 tests/unit tests/contract` takes a sample
that is the same each time. First all these tests run once with `--long`, and it writes
down which places each of them comes to (`--reached FILE` keeps that for another time).
A mutant is then shown to those only that come to its place, the quickest first; what
the short run lets pass, to those that `--long` adds. A test that notices only there
belongs into the short run (`@pytest.mark.everywhere`).
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

from tests.support.reach import CHOSEN, REACHED, Reached, name_of

ROOT = Path(__file__).parents[1]
PLACES = ("coordinator/embedded", "txaware/service/queue", "txaware/service/read")
FOLDERS = ("coordinator", "txaware", "tests", "examples", "docs")
FILES = ("pyproject.toml", "pyspark_txaware.py", "README.md", "CONTRIBUTING.md")
HIT = "from tests.support.hits import hit as _hit"
PLUGIN = (
    *("-p", "tests.support.reach", "-p", "no:cacheprovider", "-q"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
FIRST = 25  # tests that are tried before all others, for most mutants end there
PATIENCE_S = 300  # beside ten times what the tests take without a mutant
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


@attrs.frozen
class Mutant:
    """A file below the root, and which of its places is another one."""

    file: str
    number: int
    line: int

    @property
    def place(self) -> str:
        """Its name among what tests come to."""
        return f"{self.file}:{self.number}"

    def text(self, source: str) -> str:
        """Returns the file with the change."""
        tree = ast.parse(source)
        _change(list(_places(tree))[self.number])
        return ast.unparse(tree)


def mutants(file: str, source: str) -> Iterator[Mutant]:
    """Yields what can be made of a file."""
    for number, node in enumerate(_places(ast.parse(source))):
        yield Mutant(file, number, node.lineno)


def with_hits(file: str, source: str) -> str:
    """Returns the file with a call before each statement that has a place."""
    tree = ast.parse(source)
    numbers = {node: number for number, node in enumerate(_places(tree))}
    for node in [*ast.walk(tree)]:
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and any(isinstance(v, ast.stmt) for v in value):
                new: list[ast.stmt] = []
                for statement in value:
                    places = [numbers[n] for n in _own(statement) if n in numbers]
                    calls = (f"_hit({f'{file}:{place}'!r})" for place in places)
                    new += [ast.parse(call).body[0] for call in calls] + [statement]
                setattr(node, name, new)
    is_head = [
        isinstance(n, ast.Expr)
        or (isinstance(n, ast.ImportFrom) and n.module == "__future__")
        for n in tree.body
    ]
    tree.body.insert([*is_head, False].index(False), ast.parse(HIT).body[0])
    return ast.unparse(tree)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yields a statement and its expressions, without the statements in it."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            yield from _own(child)


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


def sources() -> Iterator[tuple[str, str]]:
    """Yields the files that may be broken, below the root, and their texts."""
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text()


class Copy:
    """A copy of the product and its tests, which may be broken."""

    def __init__(self, place: Path) -> None:
        self._root = place / "copy"
        self._scratch = place
        for name in FOLDERS:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, self._root / name, ignore=ignored)
        for name in FILES:
            shutil.copy(ROOT / name, self._root / name)

    def put(self, file: str, text: str) -> None:
        """Writes a file of the product."""
        (self._root / file).write_text(text)

    def reached(self, tests: list[str]) -> dict[str, Reached]:
        """Runs all tests with `--long`, and returns what each of them comes to."""
        folder = self._scratch / "reached"
        folder.mkdir()
        for file, source in sources():
            self.put(file, with_hits(file, source))
        shared = ("-n", "2", "--dist", "loadgroup", "--long", "-m", "not java")
        run = self._pytest([*shared, *tests], None, **{REACHED: str(folder)})
        if not any(folder.glob("*.jsonl")):
            raise SystemExit(run.stdout + run.stderr)
        for file, source in sources():
            self.put(file, source)
        return {
            name: Reached(**one)
            for path in folder.glob("*.jsonl")
            for name, one in map(json.loads, path.read_text().splitlines())
        }

    def short(self, tests: list[str]) -> set[str]:
        """Returns the names of the tests of the short run."""
        run = self._pytest(["--collect-only", "-m", "not java", *tests], None)
        return {name_of(line) for line in run.stdout.splitlines() if "::" in line}

    def notices(self, tests: dict[str, Reached]) -> str | None:
        """Returns the first of these tests that fails; what never ends is noticed."""
        order = sorted(tests, key=lambda name: tests[name].seconds)
        for part in (order[:FIRST], order[FIRST:]):
            if part:
                chosen = self._scratch / "chosen"
                chosen.write_text("\n".join(part))
                files = sorted({name.partition("::")[0] for name in part})
                usual_s = sum(tests[name].seconds for name in part)
                if failed := self._failed(files, chosen, 10 * usual_s + PATIENCE_S):
                    return failed
        return None

    def _failed(self, files: list[str], chosen: Path, timeout_s: float) -> str | None:
        try:
            run = self._pytest(["-x", *files], timeout_s, **{CHOSEN: str(chosen)})
        except subprocess.TimeoutExpired:
            return "no end"
        if run.returncode == 0:
            return None
        lines = run.stdout.splitlines()
        named = (line for line in lines if line.startswith(("FAILED", "ERROR")))
        return next(named, f"exit {run.returncode}")

    def _pytest(
        self, arguments: Iterable[str], timeout_s: float | None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs pytest here; the processes of its tests import the copy as well."""
        return subprocess.run(
            [sys.executable, "-m", "pytest", *PLUGIN, *arguments],
            cwd=self._root,
            env={**os.environ, "PYTHONPATH": str(self._root), **env},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


def known_or_run(copy: Copy, file: Path | None, tests: list[str]) -> dict[str, Reached]:
    """Reads what tests come to, or finds it out and keeps it."""
    if file is not None and file.exists():
        found = json.loads(file.read_text())
        return {name: Reached(**one) for name, one in found.items()}
    reached = copy.reached(tests)
    if file is not None:
        asdict = {name: attrs.asdict(one) for name, one in reached.items()}
        file.write_text(json.dumps(asdict))
    return reached


def main() -> None:
    """Prints each mutant with what noticed it, and how many got through."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reached", type=Path)
    options, tests = parser.parse_known_args()
    found = [one for file, source in sources() for one in mutants(file, source)]
    only_long = survivors = 0
    with tempfile.TemporaryDirectory() as place:
        copy = Copy(Path(place))
        reached = known_or_run(copy, options.reached, tests)
        short = copy.short(tests)
        for mutant in random.Random(options.seed).sample(found, options.count):
            source = (ROOT / mutant.file).read_text()
            copy.put(mutant.file, mutant.text(source))
            come = {n: one for n, one in reached.items() if mutant.place in one.places}
            in_short = copy.notices({n: one for n, one in come.items() if n in short})
            added = {name: one for name, one in come.items() if name not in short}
            in_long = None if in_short else copy.notices(added)
            only_long += in_long is not None
            survivors += in_short is None and in_long is None
            where = f"{mutant.file}:{mutant.line}"
            print(f"{where}: short: {in_short}, long: {in_long}", flush=True)
            copy.put(mutant.file, source)
    print(
        f"{options.count} mutants, {survivors} survive, {only_long} only the short run"
    )


if __name__ == "__main__":
    main()
