"""The file SERVER leads others to the owner of a directory, and to nobody else."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

import txaware
from coordinator import EmbeddedCoordinator
from coordinator.directory_lock import DirectoryLock
from tests.support.certificates import certificate
from tests.support.concurrency import PATIENCE_S
from tests.support.forks import forks_with_threads
from tests.support.http_raw import PING, Raw
from tests.support.messagings import payloads
from txaware.errors import BadRequest, Unavailable
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.server.server_file import (
    ServerFile,
    own_certificate,
    read_server_file,
)
from txaware.store.leveldb_store import Database

QUIET = Settings(janitor_interval_s=0)


def opened(directory: Path | str, **options: Any) -> Messaging:
    """Opens a directory, or is led to the server of its owner."""
    return txaware.connect(f"leveldb:{directory}", settings=QUIET, **options)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def owner(data: Path) -> Iterator[Messaging]:
    """Owns the directory, which has an empty topic `t`."""
    with opened(data) as messaging:
        messaging.create_topic("t")
        yield messaging


def publish_as_another(directory: Path, payload: bytes = b"led") -> None:
    """What a program does that is not the owner."""
    with opened(directory) as led:
        led.publish("t", [payload])


@contextmanager
def refused() -> Iterator[None]:
    """Told that the directory has an owner, which does not serve it."""
    with pytest.raises(Unavailable, match=f"in use by process {os.getpid()}"):
        yield


def test_others_are_led_to_the_server_of_the_owner(
    owner: Messaging, data: Path
) -> None:
    with refused():
        opened(data)
    with owner.serve() as server:
        file = read_server_file(data)
        assert file is not None
        assert (file.url, file.pid) == (server.url, os.getpid())
        publish_as_another(data)
    assert payloads(owner.poll("t")) == [b"led"]
    with refused():
        opened(data)


def test_who_serves_it_already_is_told_with_its_process_and_address(
    owner: Messaging, data: Path
) -> None:
    with owner.serve() as server, opened(data) as led:
        said = f"by process {os.getpid()} at {server.url}: connect there"
        with pytest.raises(Unavailable, match=f"served already, {said}"):
            led.serve()
        with txaware.connect(server.url) as remote:
            said = f"served already, at {server.url}"
            with pytest.raises(Unavailable, match=said):
                remote.serve()


def test_the_certificate_of_a_server_may_be_for_another_name(
    owner: Messaging, data: Path, tmp_path: Path
) -> None:
    with owner.serve(certificate=certificate(tmp_path, "one")) as server:
        publish_as_another(data)
        told = (data / "SERVER").read_text()
        assert told.count("BEGIN CERTIFICATE") == 1
        assert "PRIVATE KEY" not in told
        assert owner.reach().certificate
        with (
            txaware.connect(server.url) as other,
            pytest.raises(Unavailable, match="certificate verify failed"),
        ):
            other.topics()
    assert payloads(owner.poll("t")) == [b"led"]


def test_whoever_is_led_trusts_no_other_certificate_of_the_same_authority(
    owner: Messaging, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXAWARE_CA_FILE", str(tmp_path / "ca.pem"))
    other = own_certificate(certificate(tmp_path, "other"))
    with owner.serve(certificate=certificate(tmp_path, "one")):
        file = read_server_file(data)
        assert file is not None
        attrs.evolve(file, certificate=other).write(data)
        with pytest.raises(Unavailable, match="certificate verify failed"):
            opened(data)
        attrs.evolve(file, certificate="?").write(data)
        with pytest.raises(BadRequest, match="that is no certificate"):
            opened(data)
        file.write(data)
        publish_as_another(data)


def test_a_file_without_a_certificate_has_the_name_checked(
    owner: Messaging, data: Path, tmp_path: Path
) -> None:
    with owner.serve(certificate=certificate(tmp_path, "one")) as server:
        told = {"url": server.url, "pid": os.getpid(), "token": "of-an-older-one"}
        (data / "SERVER").write_text(json.dumps(told))
        with pytest.raises(Unavailable, match="certificate verify failed"):
            opened(data)
    with owner.serve() as server:
        (data / "SERVER").write_text(json.dumps(told | {"url": server.url}))
        publish_as_another(data)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o606], ids=oct)
def test_a_file_that_others_can_read_leads_nobody(
    owner: Messaging, data: Path, mode: int
) -> None:
    with owner.serve():
        (data / "SERVER").chmod(mode)
        with refused():
            opened(data)
        (data / "SERVER").chmod(0o600)
        publish_as_another(data)


def test_a_file_of_another_user_leads_nobody(
    owner: Messaging, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with owner.serve():
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with refused():
            opened(data)
        monkeypatch.undo()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"url": "x", "pid": "y"}'])
def test_a_file_that_is_none_leads_nobody(
    owner: Messaging, data: Path, text: str
) -> None:
    with owner.serve():
        (data / "SERVER").write_text(text)
        with refused():
            opened(data)


@forks_with_threads
@pytest.mark.parametrize("whole", [False, True], ids=["server", "messaging"])
def test_a_forked_child_that_closes_leaves_its_parent_known(
    owner: Messaging, data: Path, whole: bool
) -> None:
    with owner.serve() as server:
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE_S)
            try:
                (owner if whole else server).close()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        assert not os.WIFSIGNALED(status)
        assert (data / "SERVER").exists()
        publish_as_another(data)
        with Raw(server.url) as raw:
            assert raw.ask(PING).status == 200
    assert not (data / "SERVER").exists()


@pytest.mark.parametrize("ends_first", [0, 1])
def test_of_two_servers_the_one_that_is_left_stays_known(
    owner: Messaging, data: Path, ends_first: int
) -> None:
    servers = [owner.serve(), owner.serve()]
    servers.pop(ends_first).close()
    publish_as_another(data)
    file = read_server_file(data)
    assert file is not None
    assert file.url == servers[0].url
    servers[0].close()
    assert not (data / "SERVER").exists()


def test_a_program_that_changes_its_directory_is_known_all_the_same(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with opened("data") as messaging:
        messaging.create_topic("t")
        monkeypatch.chdir(tmp_path / "elsewhere")
        with messaging.serve():
            publish_as_another(data)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_program_that_changes_its_directory_takes_its_file_back(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with opened("data") as messaging:
        with messaging.serve():
            assert (data / "SERVER").exists()
            monkeypatch.chdir(tmp_path / "elsewhere")
        assert not (data / "SERVER").exists()


def fail_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full, once; the database is opened again then."""
    made = Database.batch

    def disk_is_full() -> None:
        raise OSError("the disk is full")

    def batch(database: Database, number: int) -> Any:
        monkeypatch.setattr(Database, "batch", made)
        real = made(database, number)
        return SimpleNamespace(put=real.put, delete=real.delete, write=disk_is_full)

    monkeypatch.setattr(Database, "batch", batch)


def test_a_database_is_opened_again_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = {name: tmp_path / name for name in ("one", "two")}
    for name, directory in stores.items():
        with opened(directory / "data") as messaging:
            messaging.create_topic("t")
            messaging.publish("t", [name.encode()])
    monkeypatch.chdir(stores["one"])
    with opened("data") as messaging:
        monkeypatch.chdir(stores["two"])
        fail_one_write(monkeypatch)
        with pytest.raises(Unavailable, match="the disk is full"):
            messaging.publish("t", [b"fails"])
        messaging.publish("t", [b"goes on"])
        assert payloads(messaging.poll("t")) == [b"one", b"goes on"]
    with opened(stores["two"] / "data") as messaging:
        assert payloads(messaging.poll("t")) == [b"two"]


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Messaging]:
    """Another store, with a topic of the same name."""
    with opened(tmp_path / "other") as messaging:
        messaging.create_topic("t")
        yield messaging


def test_the_file_of_a_killed_server_leads_nobody_while_the_next_owner_opens(
    data: Path, stranger: Messaging
) -> None:
    """The port may be that of another store by now."""
    data.mkdir()
    with stranger.serve() as server:
        ServerFile(server.url, 999_999_999, "left-behind").write(data)
        lock = DirectoryLock(data)  # the next owner has come as far as this
        try:
            with refused():
                publish_as_another(data)
        finally:
            lock.release()
    assert not payloads(stranger.poll("t"))


def test_the_next_owner_removes_the_file_of_a_server_that_was_killed(
    data: Path, stranger: Messaging
) -> None:
    """Its process id may be that of the next owner too, as in a container."""
    data.mkdir()
    with stranger.serve() as server:
        ServerFile(server.url, os.getpid(), "left-behind").write(data)
        with opened(data):
            assert not (data / "SERVER").exists()
            with refused():
                publish_as_another(data)
    assert not payloads(stranger.poll("t"))


def test_whoever_brings_another_coordinator_is_not_led_to_the_owners(
    owner: Messaging, data: Path
) -> None:
    """Each gives out the same pointers; opened directly this is refused too."""
    with owner.serve() as server:
        for url in (f"leveldb:{data}", server.url):
            with pytest.raises(BadRequest, match="another one would confuse"):
                txaware.connect(url, coordinator=EmbeddedCoordinator())
        with opened(data, coordinator=server.url) as led:
            tx = led.coordinator.start_short()
            assert owner.coordinator.invalidate(tx)
