"""A MANIFEST whose end a power cut has torn is opened, and nothing is lost."""

import re
import shutil
import time
from pathlib import Path

import attrs
import pytest

import txaware
from tests.support.check_setting import SETTINGS, as_after_a_crash, checked
from tests.support.cli_runs import error_of, run
from tests.support.concurrency import until
from tests.support.messagings import committed
from txaware.messaging import Messaging
from txaware.store.manifest import cut_torn_end, remove_unborn

SMALL = attrs.evolve(SETTINGS, write_buffer_bytes=1 << 16)
PATIENCE_S = 30


def manifest_of(data: Path) -> Path:
    return data / "rows" / (data / "rows" / "CURRENT").read_text().strip()


def found_in(data: Path) -> list[bytes]:
    with txaware.connect(f"leveldb:{data}", settings=SETTINGS) as messaging:
        return committed(messaging, "orders")


@pytest.fixture(scope="module")
def moment(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Path, list[list[bytes]]]:
    """A directory before and after LevelDB moved its log to a table file.

    And what was acknowledged until each of them.
    """
    place = tmp_path_factory.mktemp("moment")
    data = place / "data"
    acknowledged: list[bytes] = []
    known: list[list[bytes]] = []

    def publish(messaging: Messaging) -> None:
        payload = b"%06d" % len(acknowledged) * 500
        with messaging.transaction():
            messaging.publisher("orders").publish(payload)
        acknowledged.append(payload)

    with txaware.connect(f"leveldb:{data}", settings=SMALL) as messaging:
        messaging.create_topic("orders")
        for _ in range(5):
            publish(messaging)
        before = as_after_a_crash(data, place / "before")
        known.append(list(acknowledged))
        size, until_s = manifest_of(data).stat().st_size, time.monotonic() + PATIENCE_S
        while manifest_of(data).stat().st_size == size:
            assert time.monotonic() < until_s
            publish(messaging)
        assert until(lambda: len(list((data / "rows").glob("*.log"))) == 1)
        after = as_after_a_crash(data, place / "after")
        known.append(list(acknowledged))
    return before, after, known


Moment = tuple[Path, Path, list[list[bytes]]]


@pytest.mark.parametrize("zeros", [0, 3, 4096])
@pytest.mark.parametrize("part", [1, 6, 7, 8, 30, -12])
def test_a_torn_end_is_cut_off_and_all_that_was_acknowledged_is_there(
    moment: Moment, tmp_path: Path, part: int, zeros: int
) -> None:
    """The new table file is there, and the record that names it only in part."""
    before, after, (acknowledged, _) = moment
    data = Path(shutil.copytree(before, tmp_path / "data"))
    for path in (after / "rows").glob("*.ldb"):
        shutil.copy(path, data / "rows")
    whole = manifest_of(before).read_bytes()
    record = manifest_of(after).read_bytes()[len(whole) :]
    manifest_of(data).write_bytes(whole + record[:part] + bytes(zeros))
    assert checked(data).problems == ()
    found = found_in(data)
    assert found == acknowledged
    assert checked(data).problems == ()
    assert found_in(data) == acknowledged


def test_a_torn_end_is_kept_beside_it(moment: Moment, tmp_path: Path) -> None:
    before, after, _ = moment
    data = Path(shutil.copytree(before, tmp_path / "data"))
    whole = manifest_of(before).read_bytes()
    record = manifest_of(after).read_bytes()[len(whole) :]
    path = manifest_of(data)
    path.write_bytes(whole + record[:-12] + bytes(100))
    assert cut_torn_end(data / "rows")
    assert path.read_bytes() == whole
    kept = path.with_name(f"{path.name}.torn")
    assert kept.read_bytes() == whole + record[:-12] + bytes(100)
    assert not cut_torn_end(data / "rows"), "there is nothing left to cut off"


@pytest.mark.parametrize("damage", ["in the last record", "in the first record"])
def test_what_was_relied_on_is_not_cut_off_and_the_error_says_what_helps(
    moment: Moment, tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log that the record before names is gone: this is no torn end."""
    _, after, (_, acknowledged) = moment
    data = Path(shutil.copytree(after, tmp_path / "data"))
    path = manifest_of(data)
    content = bytearray(path.read_bytes())
    content[-20 if damage == "in the last record" else 20] ^= 1
    path.write_bytes(content)
    error = error_of("--url", f"leveldb:{data}", "topic", "list")
    assert not cut_torn_end(data / "rows")
    assert path.read_bytes() == content
    assert "b'" not in error
    assert not checked(data).is_clean
    (typed,) = re.findall(r"(TXAWARE_ACCEPT_DAMAGE)=true txaware (.*?)\. What", error)
    monkeypatch.setenv(typed[0], "true")
    assert "orders" in run(*typed[1].split()).stdout
    monkeypatch.delenv(typed[0])
    assert found_in(data) == acknowledged
    assert checked(data).problems == ()


def test_a_record_that_names_a_file_which_is_not_there_is_cut_off(
    moment: Moment, tmp_path: Path
) -> None:
    """LevelDB writes the record, and then syncs the name of its table file."""
    before, after, (acknowledged, _) = moment
    data = Path(shutil.copytree(before, tmp_path / "data"))
    path = manifest_of(data)
    path.write_bytes(manifest_of(after).read_bytes())
    assert checked(data).problems == ()
    assert found_in(data) == acknowledged
    assert path.with_name(f"{path.name}.torn").exists()


def test_a_table_file_that_is_missing_for_another_reason_is_told(
    moment: Moment, tmp_path: Path
) -> None:
    """The log that had its rows is gone, so LevelDB has relied on the file."""
    _, after, _ = moment
    data = Path(shutil.copytree(after, tmp_path / "data"))
    for path in (data / "rows").glob("*.ldb"):
        path.unlink()
    assert not cut_torn_end(data / "rows")
    assert "missing files" in error_of("--url", f"leveldb:{data}", "topic", "list")


@pytest.mark.parametrize("part", [0, 5])
def test_a_database_that_was_about_to_be_made_is_made_anew(
    tmp_path: Path, part: int
) -> None:
    """LevelDB does not sync the first MANIFEST, and the name CURRENT may survive it."""
    rows = tmp_path / "data" / "rows"
    with txaware.connect(f"leveldb:{tmp_path / 'data'}", settings=SETTINGS):
        first = manifest_of(tmp_path / "data").read_bytes()[:part]
    shutil.rmtree(rows)
    rows.mkdir()
    (rows / "CURRENT").write_text("MANIFEST-000001\n")
    (rows / "MANIFEST-000001").write_bytes(first)
    (rows / "000003.log").write_bytes(b"")
    with txaware.connect(
        f"leveldb:{tmp_path / 'data'}", settings=SETTINGS
    ) as messaging:
        messaging.create_topic("orders")


@pytest.mark.parametrize("kept", ["log", "ldb"])
def test_a_database_that_had_something_is_not_made_anew(
    moment: Moment, tmp_path: Path, kept: str
) -> None:
    source = moment[0] if kept == "log" else moment[1]
    data = Path(shutil.copytree(source, tmp_path / "data"))
    manifest_of(data).write_bytes(b"")
    if kept == "ldb":
        for path in (data / "rows").glob("*.log"):
            path.write_bytes(b"")
    assert not remove_unborn(data / "rows")
    error_of("--url", f"leveldb:{data}", "topic", "list")
