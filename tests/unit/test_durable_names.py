"""Names of files and directories are on disk before anybody relies on them."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

import txaware
from coordinator import private_directory
from coordinator.private_directory import make_directory
from txaware.model.settings import Settings
from txaware.store import leveldb_store


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories that were synced."""
    found: list[Path] = []
    real = private_directory.sync_directory

    def sync_directory(directory: Path) -> None:
        found.append(directory)
        real(directory)

    for module in (private_directory, leveldb_store):
        monkeypatch.setattr(module, "sync_directory", sync_directory)
    return found


def test_each_directory_that_is_made_is_synced_in_the_one_above(
    tmp_path: Path, synced: list[Path]
) -> None:
    make_directory(tmp_path / "a" / "b", mode=0o700)
    assert sorted(synced) == [tmp_path, tmp_path / "a"]
    make_directory(tmp_path / "a" / "b", mode=0o700)
    assert len(synced) == 2, "it was there"


def test_a_new_log_of_leveldb_is_synced_by_name_and_a_batch_alone_is_not(
    tmp_path: Path, synced: list[Path]
) -> None:
    settings = Settings(write_buffer_bytes=1 << 16)
    rows = tmp_path / "rows"
    with txaware.connect(f"leveldb:{tmp_path}", settings=settings) as messaging:
        messaging.create_topic("a")
        synced.clear()
        before = [one for one in os.listdir(rows) if one.endswith(".log")]
        for _ in range(5):
            messaging.publish("a", [b"small"])
        assert synced == []
        for _ in range(12):
            messaging.publish("a", [os.urandom(8000)])
        assert [one for one in os.listdir(rows) if one.endswith(".log")] != before
        assert set(synced) == {rows}


def open_logs(directory: Path) -> list[str]:
    """The logs of LevelDB below a directory that this process has open."""
    found = []
    for one in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the list of them was one itself
            found.append(os.readlink(f"/proc/self/fd/{one}"))
    return [
        name for name in found if name.startswith(str(directory)) and ".log" in name
    ]


def test_a_database_gives_its_logs_back(tmp_path: Path) -> None:
    settings = Settings(write_buffer_bytes=1 << 16)
    with txaware.connect(f"leveldb:{tmp_path}", settings=settings) as messaging:
        messaging.create_topic("a")
        for _ in range(30):  # which fill several logs
            messaging.publish("a", [os.urandom(8000)])
        assert 1 <= len(open_logs(tmp_path)) <= 3
    assert open_logs(tmp_path) == []
