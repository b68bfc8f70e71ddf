"""Every python block in the documents runs, and prints the text block after it."""

import ast
import builtins
import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

import txaware
from tests.support.generated_pages import PAGES as GENERATED
from tests.support.reader import BLOCK, Reader
from txaware.cli.root import command

ROOT = Path(__file__).parents[2]
# What has to be installed beside a checkout to follow a page.
NEEDS = {
    "docs/hbase.md": [pytest.mark.hbase, pytest.mark.xdist_group("hbase-page")],
}
PAGES = [
    pytest.param(name, marks=NEEDS.get(name, []))
    for name in (
        *("README.md", "CONTRIBUTING.md"),
        *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
    )
    if name != "docs/spark.md"
]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_true_from_its_first_line_to_its_last(
    name: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """With `--long` twice: whoever has read it may begin again."""
    for _ in range(2 if pytestconfig.getoption("--long") else 1):
        with Reader(tmp_path) as reader:
            reader.read((ROOT / name).read_text())


def test_each_program_for_a_framework_names_all_that_it_needs() -> None:
    """Whoever copies one has none of the others; only cells of a notebook go on."""
    page, _ = (ROOT / "docs" / "frameworks.md").read_text().split("## Notebooks")
    programs = [text for kind, _, text in BLOCK.findall(page) if kind == "python"]
    assert len(programs) >= 12
    for program in programs:
        assert named_elsewhere(program) == set(), program


def named_elsewhere(program: str) -> set[str]:
    """The names that a program reads, and nothing in it makes."""
    read: set[str] = set()
    made = {*dir(builtins)}
    for node in ast.walk(ast.parse(program)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case ast.Name(id=name) | ast.arg(arg=name):
                made.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                made.add(node.name)
            case ast.alias():
                made.add(node.asname or node.name.partition(".")[0])
    return read - made


@pytest.mark.spark
def test_the_blocks_of_the_page_of_spark_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """There is one session in a process, for all tests."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for language, _, text in BLOCK.findall((ROOT / "docs" / "spark.md").read_text()):
        if language == "python":
            # The JVM of the session began in another directory.
            text = text.replace("./checkpoint", str(tmp_path / "checkpoint"))
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, "spark.md", "exec"), names)
            printed = output.getvalue()
        elif language == "text":
            assert printed == text
            printed = ""
    assert not printed, f"nothing shows that it prints {printed!r}"


def test_the_guarantees_of_the_readme_name_tests_that_exist() -> None:
    named = re.findall(r"`(tests/\S+?)::(\w+)`", (ROOT / "README.md").read_text())
    assert len(named) >= 10
    for path, name in named:
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), (
            name
        )


@pytest.mark.long
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None and "CI" not in os.environ:
        pytest.skip("mkdocs is not installed: pip install '.[docs]'")
    built = subprocess.run(
        [
            *(sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"),
            *("--config-file", ROOT / ".ci" / "mkdocs.yml", "--site-dir", tmp_path),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": ""},
        timeout=300,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    shown = (tmp_path / "api.html").read_text()
    assert "TransactionAware" in shown
    assert 'id="txaware._' not in shown


def test_the_second_command_of_the_readme_is_what_ci_runs() -> None:
    commands = [
        text.strip()
        for language, _, text in BLOCK.findall((ROOT / "README.md").read_text())
        if language == "sh"
    ]
    assert commands[1] in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("name", GENERATED)
def test_pages_made_from_the_code_are_as_the_code_is(name: str) -> None:
    """`python -m tests.support.generated_pages` writes them anew."""
    assert (ROOT / "docs" / name).read_text() == GENERATED[name]()


DECISIONS = ROOT / "docs" / "decisions"
STATUS = re.compile(
    r"^Status: (accepted|superseded by \[\d{4}\]\(.+\)), \d{4}-\d\d-\d\d\.",
    re.MULTILINE,
)
LINK = re.compile(r"\]\(([^)#:\s]+)[^)]*\)")


def test_the_index_of_decisions_lists_each_file_once_by_its_title() -> None:
    listed = re.findall(
        r"^- \[(.+)\]\((\d{4}-.+\.md)\)$",
        (DECISIONS / "README.md").read_text(),
        re.MULTILINE,
    )
    files = {path.name: path.read_text() for path in DECISIONS.glob("[0-9]*.md")}
    assert sorted(name for _, name in listed) == sorted(files)
    for title, name in listed:
        assert title == f"{name[:4]} {files[name].splitlines()[0].removeprefix('# ')}"
        assert STATUS.search(files[name]), f"{name} has no status"


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{path.name}: {target}"
        for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        for target in LINK.findall(re.sub(BLOCK, "", path.read_text()))
        if not (path.parent / target).exists()
    ]
    assert broken == []


def test_the_changelog_begins_with_what_is_newest() -> None:
    versions = re.findall(
        r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    parts = [tuple(map(int, version.split("."))) for version in versions]
    assert parts == sorted(parts, reverse=True)
    assert len(parts) >= 2


def test_all_name_the_version_that_the_changelog_begins_with() -> None:
    newest = re.search(
        r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    shown = CliRunner().invoke(command, ["--version"]).output
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        told = json.load(urllib.request.urlopen(f"{server.url}/v1/server"))
        described = json.load(urllib.request.urlopen(f"{server.url}/openapi.json"))
    assert newest is not None
    assert project["version"] == newest[1]
    assert shown == f"txaware {newest[1]}\n"
    assert told["version"] == described["info"]["version"] == newest[1]


def test_nobody_is_told_to_install_what_has_our_name_elsewhere() -> None:
    """A checkout is what there is; anybody could publish a package of that name."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "pyproject.toml"]
    for folder in ("coordinator", "txaware", "examples", "docs"):
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in found:
        if path.suffix in (".pyc", ".png") or "decisions" in path.parts:
            continue
        text = path.read_text().partition("## What changed")[0]
        named = re.findall(r"pip3? install (?:-\S+ )*['\"]?txaware\b(?!/)", text)
        assert named == [], path
        assert "txaware[" not in text or path.suffix != ".py", path
