"""Every python block in the documents runs, and prints the text block after it."""

import ast
import builtins
import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.support.generated_pages import PAGES as GENERATED

ROOT = Path(__file__).parents[2]
FLAGS = re.MULTILINE | re.DOTALL
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", FLAGS)


PAGES = ["README.md", "CONTRIBUTING.md"]
PAGES += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("name", PAGES)
def test_the_blocks_of_a_document_run_in_order(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    blocks = BLOCK.findall((ROOT / name).read_text())
    for language, text in blocks:
        if language == "python":
            if "spark." in text:  # there is one in a process, for all tests
                request.getfixturevalue("spark")
                # Whose JVM began in another directory.
                text = text.replace("./checkpoint", str(tmp_path / "checkpoint"))
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, name, "exec"), names)
            printed = output.getvalue()
        elif language == "text":
            assert printed == text
            printed = ""
    assert not printed, f"nothing in {name} shows that it prints {printed!r}"


def test_a_block_of_the_readme_stands_alone_or_says_what_it_goes_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever copies one knows what else it takes. Those of Spark are not run here."""
    text = (ROOT / "README.md").read_text()
    alone = 0
    for number, found in enumerate(re.finditer(r"^```python\n(.*?)^```$", text, FLAGS)):
        said = text[: found.start()].rstrip().rpartition("\n\n")[2]
        if "goes on from" in " ".join(said.split()):
            continue
        block, alone = found[1], alone + 1
        if "spark" in block:
            assert not _missing_names(block), block
            continue
        place = tmp_path / str(number)
        place.mkdir()
        monkeypatch.chdir(place)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
    assert alone >= 5


def _missing_names(block: str) -> set[str]:
    """What a block reads and never sets."""
    nodes = list(ast.walk(ast.parse(block)))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = [alias for node in imports for alias in node.names]
    known = {alias.asname or alias.name for alias in imported} | set(dir(builtins))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    known |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return {name.id for name in names} - known


def test_the_second_command_of_the_readme_is_what_ci_runs() -> None:
    commands = [
        text.strip()
        for language, text in BLOCK.findall((ROOT / "README.md").read_text())
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


@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]),
    ids=lambda path: path.name,
)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(re.sub(BLOCK, "", path.read_text())):
        assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_changelog_begins_with_what_is_newest() -> None:
    versions = re.findall(
        r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    parts = [tuple(map(int, version.split("."))) for version in versions]
    assert parts == sorted(parts, reverse=True)
    assert len(parts) >= 2


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
