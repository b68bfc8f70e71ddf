"""Every python block in the documents runs, and prints the text block after it."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.generated_pages import PAGES as GENERATED

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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


def test_the_second_command_of_the_readme_is_what_ci_runs() -> None:
    commands = [
        text.strip()
        for language, text in BLOCK.findall((ROOT / "README.md").read_text())
        if language == "sh"
    ]
    assert commands[1] in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("name", GENERATED)
def test_pages_made_from_the_code_are_as_the_code_is(name: str) -> None:
    """`python -m tests.generated_pages` writes them anew."""
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
