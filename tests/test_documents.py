"""Every python block in the documents runs, and prints the text block after it."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
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


def test_nobody_is_told_to_install_what_has_our_name_elsewhere() -> None:
    """A checkout is what there is; anybody could publish a package of that name."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "pyproject.toml"]
    for folder in ("coordinator", "txaware", "examples", "docs"):
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    for path in found:
        if path.suffix in (".pyc", ".png"):
            continue
        text = path.read_text().partition("## What changed")[0]
        named = re.findall(r"pip3? install (?:-\S+ )*['\"]?txaware\b(?!/)", text)
        assert named == [], path
        assert "txaware[" not in text or path.suffix != ".py", path


def test_readme_ends_with_what_changed() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert headings[-1] == "What changed"
