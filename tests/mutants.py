"""Breaks the product in one place at a time, and tells which tests notice.

`python -m tests.mutants --count 240 --seed 1 --kept FOLDER tests/unit tests/contract`
takes a sample that is the same each time, and goes on with what FOLDER has of an
earlier run. All places of the sample are in one copy of the product, each with a
switch; a process that has collected the tests forks for each mutant, so that none
imports anything anew. The tests of the short run are run once as they are, and write
down which places they come to. A mutant is then shown to those only that come to its
place, the quickest first, for `--budget` seconds of tests; what they let pass, to what
`--long` adds. A test that notices only there belongs into the short run
(`@pytest.mark.everywhere`).
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from tests.support.reach import PLAN, Plan, Shown, lines

ROOT = Path(__file__).parents[1]
PLACES = ("coordinator/embedded", "txaware/service/queue", "txaware/service/read")
FOLDERS = ("coordinator", "txaware", "tests", "examples", "docs")
FILES = ("pyproject.toml", "pyspark_txaware.py", "README.md", "CONTRIBUTING.md")
SWITCH = "from tests.support.hits import is_on as _is_on"
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


def mutants(file: str, source: str) -> Iterator[Mutant]:
    """Yields what can be made of a file."""
    for number, node in enumerate(_places(ast.parse(source))):
        yield Mutant(file, number, node.lineno)


def with_switches(file: str, source: str, numbers: set[int]) -> str:
    """Returns the file with both ways at each of these places."""
    tree = ast.parse(source)
    chosen = {
        id(node): f"{file}:{number}"
        for number, node in enumerate(_places(tree))
        if number in numbers
    }
    tree = _Switched(chosen).visit(tree)
    is_head = [
        isinstance(n, ast.Expr)
        or (isinstance(n, ast.ImportFrom) and n.module == "__future__")
        for n in tree.body
    ]
    tree.body.insert([*is_head, False].index(False), ast.parse(SWITCH).body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def changed(source: str, mutant: Mutant) -> str:
    """Returns what stands at its place in the file, and what the mutant has there."""
    node = list(_places(ast.parse(source)))[mutant.number]
    shown = node.test if isinstance(node, ast.If | ast.While) else node
    return f"{ast.unparse(shown)}  ->  {ast.unparse(_other(node))}"


class _Switched(ast.NodeTransformer):
    """Puts a switch at the chosen nodes, and at those in them."""

    def __init__(self, chosen: dict[int, str]) -> None:
        self._chosen = chosen

    def visit(self, node: ast.AST) -> Any:
        place = self._chosen.get(id(node))
        if place is None:
            return self.generic_visit(node)
        assert isinstance(node, ast.expr | ast.If | ast.While)
        other = _other(node)  # in which nothing else is changed
        call = ast.Call(ast.Name("_is_on"), [ast.Constant(place)], [])
        self.generic_visit(node)
        if isinstance(node, ast.expr):
            return ast.IfExp(call, other, node)
        node.test = ast.IfExp(call, other, node.test)
        return node


def _places(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yields what can be changed of what runs after the import."""
    bodies = (
        statement
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
    )
    found = {id(node): node for body in bodies for node in ast.walk(body)}
    for node in ast.walk(tree):
        if id(node) not in found:
            continue
        if isinstance(node, ast.Compare):
            if type(node.ops[0]) in OPPOSITE:
                yield node
        elif isinstance(node, ast.BinOp):
            if type(node.op) in OPPOSITE:
                yield node
        elif isinstance(node, ast.BoolOp | ast.If | ast.While):
            yield node


def _other(node: ast.expr | ast.stmt) -> ast.expr:
    """Returns the expression that a mutant has at a place."""
    node = copy.deepcopy(node)
    if isinstance(node, ast.If | ast.While):
        return ast.UnaryOp(ast.Not(), node.test)
    if isinstance(node, ast.Compare):
        node.ops[0] = OPPOSITE[type(node.ops[0])]()
    elif isinstance(node, ast.BoolOp | ast.BinOp):
        node.op = OPPOSITE[type(node.op)]()
    assert isinstance(node, ast.expr)
    return node


def sources() -> Iterator[tuple[str, str]]:
    """Yields the files that may be broken, below the root, and their texts."""
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text()


def copied(place: Path, chosen: list[Mutant]) -> Path:
    """Makes a copy of the product and its tests, which has all chosen mutants."""
    root = place / "copy"
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, root / name)
    for file, source in sources():
        if numbers := {one.number for one in chosen if one.file == file}:
            (root / file).write_text(with_switches(file, source, numbers))
    return root


def run(place: Path, plan: Plan, chosen: list[Mutant], tests: list[str]) -> None:
    """Runs pytest on the copy; the processes of its tests import the copy as well."""
    root = copied(place, chosen)
    file = place / "plan"
    file.write_text(json.dumps(attrs.asdict(plan), default=str))
    options = (
        *("-p", "tests.support.reach", "-p", "no:cacheprovider", "-q"),
        *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
        *("--basetemp", str(place / "tmp")),
    )
    with (place / "output").open("w+") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), PLAN: str(file)},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if ended.returncode:
            output.seek(0)
            raise SystemExit(output.read())


def main() -> None:
    """Prints each mutant with what noticed it, and how many got through."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--kept", type=Path)
    options, tests = parser.parse_known_args()
    texts = dict(sources())
    every = [one for file, text in texts.items() for one in mutants(file, text)]
    random.Random(options.seed).shuffle(every)  # a larger sample begins as a smaller
    chosen = every[: options.count]
    with tempfile.TemporaryDirectory() as place:
        kept = options.kept or Path(place)
        kept.mkdir(exist_ok=True)
        reached, found = kept / "reached.jsonl", kept / "found.jsonl"
        plan = Plan([one.place for one in chosen], reached, found, options.budget)
        run(Path(place), plan, chosen, tests)
        shown = {
            str(name): [Shown(**one) for one in both]
            for name, *both in lines(plan.found)
        }
    only_long = survivors = unreached = 0
    for mutant in chosen:
        in_short, in_long = shown[mutant.place]
        only_long += bool(in_long.noticed)
        survivors += not in_short.noticed and not in_long.noticed
        unreached += not in_short.reached_by
        print(f"{mutant.place}, line {mutant.line}: ", end="")
        print(changed(texts[mutant.file], mutant))
        for name, one in (("short", in_short), ("long", in_long)):
            if not in_short.noticed or one is in_short:
                seen = f"{one.seen_by} of the {one.reached_by} tests that come here"
                print(f"  {name}: {one.noticed or f'nothing, {seen}'}")
    print(
        f"{len(chosen)} of {len(every)} mutants, seed {options.seed}: {survivors} "
        f"survive, {only_long} of the others only the short run; the short run does "
        f"not come to {unreached}"
    )


if __name__ == "__main__":
    main()
