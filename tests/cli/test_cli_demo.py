"""`txaware demo` checks what it prints, and says so when something is wrong."""

from pathlib import Path

import pytest

from tests.support.cli_runs import run
from txaware.cli.demo_bank import Accounts


def test_what_is_not_as_promised_ends_the_demo(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Accounts, "rollback_tx", lambda _: True)
    result = run("demo", "--directory", str(tmp_path / "d"), code=1)
    assert "'ann 88, bob 12' should be 'ann 95, bob 5'" in result.stderr
    assert "as promised, in" not in result.stdout
