"""Damaged table files: told with the file and the way out, and never delivered."""

import io
import re
import shutil
import urllib.error
import urllib.request
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

import txaware
from tests.support.check_setting import SETTINGS, checked, commit_some
from tests.support.cli_runs import error_of, run
from tests.support.doubles import Clock
from tests.support.fake_leveldb import OPEN, WRITE, FakeDirectory, io_error
from tests.support.store_load import Store
from txaware.cli.root import command
from txaware.errors import NotWritten, StoreCorrupted, Unavailable
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.store import damage
from txaware.store.leveldb import LevelDbTable
from txaware.store.leveldb_binding import leveldb

MESSAGES = [b"%04d" % number * 25 for number in range(200)]
FLIPS = 12


def settings_of(compression: str) -> Settings:
    return attrs.evolve(SETTINGS, compression=compression)


def table_files(data: Path) -> list[Path]:
    return sorted(data.glob("rows/*.ldb"))


@pytest.fixture(scope="module", params=["none", "snappy"])
def whole(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Settings]:
    """Some of everything, all of it in table files."""
    data, settings = tmp_path_factory.mktemp("whole"), settings_of(request.param)
    with txaware.connect(f"leveldb:{data}", settings=settings) as messaging:
        messaging.create_topic("orders")
        messaging.publish("orders", MESSAGES)
        commit_some(messaging)
    with txaware.connect(f"leveldb:{data}", settings=settings):
        pass
    with txaware.connect(f"leveldb:{data}", settings=settings) as messaging:
        assert read_all(messaging)
    return data, settings


def read_all(messaging: Messaging) -> list[object]:
    page = messaging.poll("orders", limit=10_000, isolation="committed")
    position = messaging.position("billing", "orders")
    return [*[(m.id, m.payload) for m in page], position, messaging.topics()]


def flipped(data: Path, path: Path, place: int) -> Path:
    """Damages one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    return data


@pytest.mark.parametrize("flip", range(FLIPS))
def test_a_bit_that_was_flipped_is_told_and_not_delivered(
    whole: tuple[Path, Settings], tmp_path: Path, flip: int
) -> None:
    """Wherever it is: also in what LevelDB reads by itself, as it sorts its files."""
    original, settings = whole
    with txaware.connect(f"leveldb:{original}", settings=settings) as messaging:
        expected = read_all(messaging)
    data = Path(shutil.copytree(original, tmp_path / "data"))
    path = max(table_files(data), key=lambda path: path.stat().st_size)
    flipped(data, path, path.stat().st_size * (2 * flip + 1) // (2 * FLIPS))

    def use() -> None:
        with txaware.connect(f"leveldb:{data}", settings=settings) as messaging:
            assert read_all(messaging) == expected
            messaging.backup(io.BytesIO())

    with pytest.raises(StoreCorrupted) as told:
        use()
    assert_told(str(told.value), data, path)
    assert not checked(data).is_clean


def assert_told(message: str, data: Path, path: Path) -> None:
    """The file, and two ways out; nothing that only a programmer reads."""
    assert str(path) in message
    assert (
        "is damaged and cannot be read (Corruption: block checksum mismatch)" in message
    )
    assert "txaware restore FILE" in message
    assert f"TXAWARE_ACCEPT_DAMAGE=true txaware --url leveldb:{data} " in message
    assert "b'" not in message
    assert "try again" not in message


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, Path]:
    """One of the messages is damaged, and nothing that opening the data reads."""
    data, settings = tmp_path / "data", settings_of("none")
    with txaware.connect(f"leveldb:{data}", settings=settings) as messaging:
        messaging.create_topic("orders")
        messaging.publish("orders", MESSAGES)
    with txaware.connect(f"leveldb:{data}", settings=settings):
        pass
    (path,) = [p for p in table_files(data) if MESSAGES[100] in p.read_bytes()]
    flipped(data, path, path.read_bytes().index(MESSAGES[100]))
    return data, path


def test_over_http_damage_is_500(damaged: tuple[Path, Path]) -> None:
    data, path = damaged
    with (
        txaware.connect(f"leveldb:{data}", settings=SETTINGS) as owner,
        owner.serve() as served,
        txaware.connect(served.url) as messaging,
    ):
        with pytest.raises(StoreCorrupted) as told:
            messaging.poll("orders", limit=1000)
        assert_told(str(told.value), data, path)
        assert status_of_poll(served.url) == 500
        with pytest.raises(
            StoreCorrupted, match="there is no backup, since the data is damaged"
        ):
            messaging.backup(io.BytesIO())


def status_of_poll(url: str) -> int:
    request = urllib.request.Request(
        f"{url}/v1/namespaces/default/topics/orders/poll",
        b'{"limit": 1000}',
        {"Content-Type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.urlopen(request)
    answer.value.close()
    return answer.value.code


@pytest.mark.parametrize(
    "verb", [("poll", "orders"), ("backup", "FILE"), ("copy", "DATA", "TARGET")]
)
def test_the_command_line_ends_with_1(
    damaged: tuple[Path, Path], tmp_path: Path, verb: tuple[str, ...]
) -> None:
    data, path = damaged
    places = {"FILE": str(tmp_path / "file"), "DATA": f"leveldb:{data}"}
    places["TARGET"] = f"leveldb:{tmp_path / 'target'}"
    words = [places.get(word, word) for word in verb]
    result = CliRunner().invoke(command, ["--url", f"leveldb:{data}", *words])
    assert result.exit_code == 1, result.output
    (error,) = [
        line for line in result.stderr.splitlines() if line.startswith("Error: ")
    ]
    assert_told(error, data, path)
    assert not (tmp_path / "file").exists()


def test_what_the_error_says_to_type_helps(
    damaged: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be read is set aside, and the rest is there, and clean."""
    data, path = damaged
    error = error_of("--url", f"leveldb:{data}", "poll", "orders")
    (typed,) = re.findall(r"(TXAWARE_ACCEPT_DAMAGE)=true txaware (.*?)\. What", error)
    monkeypatch.setenv(typed[0], "true")
    assert "orders" in run(*typed[1].split()).stdout
    monkeypatch.delenv(typed[0])
    (verified,) = re.findall(r"which txaware (.*?) verifies", error)
    assert "clean" in run(*verified.split()).stdout
    assert (data / "rows" / "lost" / path.name).exists()
    with txaware.connect(f"leveldb:{data}", settings=SETTINGS) as messaging:
        kept = [message.payload for message in messaging.poll("orders", limit=1000)]
        assert 100 < len(kept) < len(MESSAGES)
        assert kept == [payload for payload in MESSAGES if payload in set(kept)]
        messaging.publish("orders", [b"new"])


def test_what_is_whole_is_opened_with_accept_damage_as_without(tmp_path: Path) -> None:
    settings = attrs.evolve(SETTINGS, accept_damage=True)
    for count in range(3):
        with txaware.connect(f"leveldb:{tmp_path}", settings=settings) as messaging:
            if not count:
                messaging.create_topic("orders")
            assert len(messaging.poll("orders")) == count
            messaging.publish("orders", [b"one"])
    assert not (tmp_path / "rows" / "lost").exists()


def test_damage_that_a_repair_meets_is_told_to_whoever_writes() -> None:
    """The first write may be on disk, the second surely is not."""
    directory, clock = FakeDirectory(), Clock()
    store = Store(LevelDbTable("fake", directory.open, clock_ms=clock), clock)

    def before(_: int, step: str) -> None:
        if step == WRITE:
            raise io_error()
        if step == OPEN:
            raise leveldb().CorruptionError(b"Corruption: bad record")

    directory.before = before
    with pytest.raises(StoreCorrupted) as unknown:
        store.service.publish("a", [b"one"])
    assert isinstance(unknown.value, Unavailable)
    assert not isinstance(unknown.value, NotWritten)
    with pytest.raises(StoreCorrupted, match="txaware restore FILE") as no:
        store.service.publish("a", [b"two"])
    assert isinstance(no.value, NotWritten)
    assert "b'" not in str(unknown.value) + str(no.value)
    directory.before = lambda number, step: None
    store.close()


def test_each_file_is_looked_at_once(
    damaged: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []
    is_damaged = damage._is_damaged

    def counted(path: Path) -> bool:
        looked.append(path)
        return is_damaged(path)

    monkeypatch.setattr(damage, "_is_damaged", counted)
    data, path = damaged
    with txaware.connect(f"leveldb:{data}", settings=SETTINGS) as messaging:
        for _ in range(3):
            with pytest.raises(StoreCorrupted, match=path.name):
                messaging.poll("orders", limit=1000)
    assert path in looked
    assert len(looked) == len(set(looked))
