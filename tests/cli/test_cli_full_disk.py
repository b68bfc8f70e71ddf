"""Commands on a full disk say what was not done, where, and that it may work later."""

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.cli_runs import error_of, run

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "rows/000006.log")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "here" / "data"
    place.parent.mkdir()
    with txaware.connect(f"leveldb:{place}") as messaging:
        messaging.create_topic("t")
    return place


def fill(monkeypatch: pytest.MonkeyPatch, *full: Path) -> None:
    """Has no file copied into these directories."""
    copyfile = shutil.copyfile

    def copied(source: Path, target: Path) -> object:
        if any(one in Path(target).parents for one in full):
            raise FULL
        return copyfile(source, target)

    monkeypatch.setattr(shutil, "copyfile", copied)


def test_check_copies_elsewhere_where_the_disk_of_the_data_is_full(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(monkeypatch, data.parent)
    assert run("--url", f"leveldb:{data}", "check").stdout.endswith("clean\n")
    assert [*data.parent.iterdir()] == [data]


def test_check_says_that_there_is_no_room_for_its_copy(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(other))
    fill(monkeypatch, data.parent, other)
    assert error_of("--url", f"leveldb:{data}", "check", code=3) == (
        f"{data} was not checked: there is no room for a copy of its newest "
        f"rows in {other}. Free some, or name another place by TMPDIR"
    )
    assert [*data.parent.iterdir(), *other.iterdir()] == [data]


def test_any_other_command_says_what_it_did_and_that_it_may_work_later(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise FULL

    monkeypatch.setattr(txaware.Messaging, "topics", full)
    said = error_of("--url", f"leveldb:{data}", "topic", "list", code=3)
    assert said == "topic: rows/000006.log: No space left on device"
