"""Data directories and their files are for their user only, older ones too."""

import io
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator import EmbeddedCoordinator
from coordinator.directory_lock import DirectoryLock
from coordinator.private_directory import make_private
from tests.support.cli_runs import run
from txaware.errors import Unavailable
from txaware.model.settings import Settings
from txaware.service.transfer.backup import restore

SETTINGS = Settings(janitor_interval_s=0)


@pytest.fixture(autouse=True)
def ordinary_umask() -> Iterator[None]:
    """Everybody may read what is made, unless it says otherwise."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(directory: Path) -> list[str]:
    """What others may read or enter, of a directory and all below it."""
    return [
        f"{path.name} {stat.S_IMODE(path.lstat().st_mode):04o}"
        for path in (directory, *directory.rglob("*"))
        if path.lstat().st_mode & 0o077
    ]


def opened_up(directory: Path) -> None:
    """As versions before this one have made it."""
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def filled(directory: Path) -> None:
    with txaware.connect(f"leveldb:{directory}", settings=SETTINGS) as messaging:
        messaging.create_topic("t")
        messaging.publish("t", [b"secret"])


def test_data_is_for_its_user_only(tmp_path: Path) -> None:
    data = tmp_path / "made" / "data"
    with txaware.connect(f"leveldb:{data}", settings=SETTINGS) as messaging:
        messaging.create_topic("t")
        with messaging.serve():
            assert (data / "SERVER").exists()
            for directory in (data, data / "rows"):
                assert not directory.stat().st_mode & 0o077
    assert open_to_others(data) == []
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o755  # not ours alone


def test_data_of_before_is_tightened_when_its_owner_opens_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    filled(data)
    opened_up(data)
    with caplog.at_level(logging.INFO):
        filled_again = txaware.connect(f"leveldb:{data}", settings=SETTINGS)
    assert open_to_others(data) == []
    assert filled_again.poll("t")[0].payload == b"secret"
    filled_again.close()
    (told,) = [message for message in caplog.messages if "0755" in message]
    assert told.startswith(f"{data} had the mode 0755")
    caplog.clear()
    txaware.connect(f"leveldb:{data}", settings=SETTINGS).close()
    assert not [m for m in caplog.messages if "mode" in m]


def test_a_coordinators_directory_is_for_its_user_only(tmp_path: Path) -> None:
    decisions = tmp_path / "decisions"
    EmbeddedCoordinator.open(decisions).close()
    assert open_to_others(decisions) == []
    opened_up(decisions)
    with EmbeddedCoordinator.open(decisions) as coordinator:
        coordinator.commit(coordinator.start_short())
        assert open_to_others(decisions) == []


def test_backups_restored_data_and_copies_are_for_their_user_only(
    tmp_path: Path,
) -> None:
    data, backup = tmp_path / "data", tmp_path / "monday.backup"
    filled(data)
    run("--url", f"leveldb:{data}", "backup", str(backup))
    assert open_to_others(backup) == []
    restore(io.BytesIO(backup.read_bytes()), tmp_path / "restored", SETTINGS)
    txaware.copy(f"leveldb:{data}", f"leveldb:{tmp_path / 'copy'}")
    empty = tmp_path / "empty"
    empty.mkdir()
    restore(io.BytesIO(backup.read_bytes()), empty, SETTINGS)
    for made in ("restored", "copy", "empty"):
        assert open_to_others(tmp_path / made) == [], made


def test_a_directory_that_is_not_for_data_alone_stays_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "index.html").write_text("for everybody")
    filled(tmp_path)
    assert open_to_others(tmp_path) == [f"{tmp_path.name} 0755", "index.html 0644"]


def test_what_belongs_to_somebody_else_is_left_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    make_private(data)
    assert stat.S_IMODE(data.stat().st_mode) == 0o755
    assert "is open to others, and not ours to change" in caplog.text


def test_a_disk_that_is_full_before_there_is_a_directory_is_not_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, mkdir = tmp_path / "data", Path.mkdir

    def full(path: Path, *arguments: Any, **options: Any) -> None:
        if path.name == "rows":
            raise OSError(28, "No space left on device")
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(Unavailable, match=f"^{data} cannot be opened: No space left"):
        txaware.connect(f"leveldb:{data}", settings=SETTINGS)


def test_data_that_was_removed_meanwhile_can_be_closed(tmp_path: Path) -> None:
    messaging = txaware.connect(f"leveldb:{tmp_path / 'data'}", settings=SETTINGS)
    shutil.move(tmp_path / "data", tmp_path / "elsewhere")
    messaging.close()


def test_a_file_system_without_modes_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setattr(os, "chmod", refused)
    DirectoryLock(data).release()
    assert "stays open to others: Operation not permitted" in caplog.text
