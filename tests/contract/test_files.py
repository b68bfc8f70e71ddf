"""Files that change in transactions, with the messages beside them or not at all."""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import pytest

import txaware
from coordinator.directory_lock import DirectoryInUse
from coordinator.outcome import Outcome
from tests.support.concurrency import at_once
from tests.support.messagings import committed, payloads
from txaware import participants
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    NotApplied,
    StoreCorrupted,
    TransactionConflict,
    TransactionOutcomeUnknown,
    TransactionRefused,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.participants import Files

PLACE = ".txaware"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory of the files."""
    return tmp_path / "out"


@pytest.fixture
def files(messaging: Messaging, place: Path) -> Iterator[Files]:
    with participants.files(messaging, place) as files:
        yield files


def left(place: Path) -> set[str]:
    return {path.name for path in (place / PLACE).iterdir()} - {"LOCK"}


def in_commit(messaging: Messaging, files: Files, monkeypatch: Any, *names: str) -> int:
    """A transaction whose process was killed after its commit; its pointer."""
    monkeypatch.setattr(files, "_apply", lambda pointer: None)
    with messaging.transaction() as tx:
        for name in names or ["a"]:
            files.write(name, b"late")
        pointer = tx.transaction.transaction_id
    monkeypatch.undo()
    return pointer


def test_files_change_with_the_commit_and_not_before(
    messaging: Messaging, files: Files, place: Path
) -> None:
    with messaging.transaction(files):
        files.write("a", b"1")
        files.write(PurePath("in") / "b", iter([b"2", b"3"]))
        messaging.publisher("t").publish(b"both")
        assert (files.read("a"), files.read("in/b")) == (b"1", b"23")
        assert not (place / "a").exists()
    assert (place / "a").read_bytes() == b"1"
    assert (place / "in" / "b").read_bytes() == b"23"
    with messaging.transaction():
        files.write("a", b"4")
        files.delete("in/b")
        files.delete("never there")
        assert files.read("in/b") is None
        assert (place / "in" / "b").exists()
    assert files.read("a") == b"4"
    assert files.read("in/b") is None
    assert payloads(messaging.poll("t")) == [b"both"]
    assert left(place) == set()


def test_a_block_that_raises_changes_no_file(
    messaging: Messaging, files: Files, place: Path
) -> None:
    with (  # noqa: PT012
        pytest.raises(ZeroDivisionError),
        messaging.transaction() as tx,
    ):
        files.write("a", b"1")
        tx.checkpoint()
        files.write("a", b"2")
        files.write("b", b"2")
        assert 1 / 0
    assert files.read("a") is None
    assert left(place) == set()
    assert files.smallest_pointer() is None


def test_two_who_change_one_file_conflict(messaging: Messaging, files: Files) -> None:
    entered, go_on = threading.Event(), threading.Event()
    failed: list[Exception] = []

    def slow() -> None:
        try:
            with messaging.transaction():
                files.write("a", b"slow")
                entered.set()
                go_on.wait(30)
        except TransactionConflict as error:
            failed.append(error)

    thread = threading.Thread(target=slow)
    thread.start()
    assert entered.wait(30)
    with messaging.transaction():
        files.write("a", b"fast")
    with messaging.transaction():
        files.write("b", b"another file")
    go_on.set()
    thread.join(30)
    assert len(failed) == 1
    assert files.read("a") == b"fast"


def test_what_a_crash_left_after_the_commit_is_done_when_it_is_opened(
    messaging: Messaging, files: Files, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointer = in_commit(messaging, files, monkeypatch)
    assert not (place / "a").exists()
    assert files.smallest_pointer() == pointer
    files.close()
    with participants.files(messaging, place) as again:
        assert (place / "a").read_bytes() == b"late"
        assert again.smallest_pointer() is None
    assert left(place) == set()


def test_what_a_crash_left_before_the_commit_is_removed(
    messaging: Messaging, files: Files, place: Path
) -> None:
    tx = messaging.coordinator.start_short()
    messaging.coordinator.persist(tx)
    (place / PLACE / "new-1").write_bytes(b"never")
    (place / PLACE / "new-2").write_bytes(b"not even named")
    files._claim(tx.transaction_id, {"a": "new-1"})
    files._intents.save(tx.transaction_id, {"a": "new-1"})
    files.close()
    with participants.files(messaging, place) as again:
        assert again.smallest_pointer() == tx.transaction_id
        assert again.recover() == [tx.transaction_id], "it may still commit"
        assert len(left(place)) == 2
        messaging.coordinator.invalidate(tx)
        assert again.recover() == []
    assert left(place) == set()
    assert not (place / "a").exists()


def test_a_reader_and_a_later_writer_see_what_has_committed_and_is_not_done_yet(
    messaging: Messaging, files: Files, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_commit(messaging, files, monkeypatch)
    assert files.read("a") == b"late"
    in_commit(messaging, files, monkeypatch)
    with messaging.transaction():
        files.write("a", b"later")
    assert (place / "a").read_bytes() == b"later"
    assert left(place) == set()


def test_a_forgotten_outcome_is_one_sentence_and_nothing_is_lost(
    messaging: Messaging, files: Files, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointer = in_commit(messaging, files, monkeypatch)
    files.close()
    monkeypatch.setattr(
        messaging.coordinator, "outcome", lambda pointer: Outcome.FORGOTTEN
    )
    with pytest.raises(
        TransactionOutcomeUnknown, match=f"{pointer}.intent, which says"
    ):
        participants.files(messaging, place)
    monkeypatch.undo()
    with participants.files(messaging, place) as again:
        assert again.read("a") == b"late"


def test_the_directory_is_registered_as_a_keeper_and_has_one_owner(
    messaging: Messaging, files: Files, place: Path, tmp_path: Path
) -> None:
    assert [one.name for one in messaging.keepers()] == [f"files {place}"]
    with pytest.raises(DirectoryInUse, match="one owner at a time"):
        participants.files(messaging, place)
    with participants.files(messaging, tmp_path / "other", name="mine"):
        assert "mine" in [one.name for one in messaging.keepers()]


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "/etc/x", "../x", "a/../b", ".txaware/x", "a\0", 7, None),
        *("x" * 256, "/".join(["y" * 250] * 20), "\ud800"),
    ],
    ids=lambda name: repr(name)[:12],
)
def test_a_name_outside_of_the_directory_is_refused(
    messaging: Messaging, files: Files, name: Any
) -> None:
    with messaging.transaction():
        for call in (partial(files.write, data=b""), files.delete, files.read):
            with pytest.raises(BadRequest, match="file"):
                call(name)


def test_what_is_no_directory_is_bad_input(
    messaging: Messaging, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    wrong: list[Any] = [tmp_path / "file", tmp_path / "file" / "below", 5, None, b"x"]
    for place in wrong:
        with pytest.raises(BadRequest, match=r"is no directory|is a str or a Path"):
            participants.files(messaging, place)


def test_a_str_is_no_content(messaging: Messaging, files: Files) -> None:
    wrong: Any = "text"
    with messaging.transaction(), pytest.raises(BadRequest, match="in bytes"):
        files.write("a", wrong)


def test_a_read_where_no_file_can_be_is_one_sentence(
    messaging: Messaging, files: Files
) -> None:
    with messaging.transaction():
        files.write("in/a", b"1")
    with pytest.raises(BadRequest, match="in/a is a file, so nothing can be below it"):
        files.read("in/a/b")
    with pytest.raises(BadRequest, match="in is a directory, and no file"):
        files.read("in")
    assert files.read("in/b") is None


@pytest.mark.parametrize(
    "names",
    [
        ["directory"],
        ["file/below"],
        ["new", "new/below"],
        ["new/below/it", "new"],
        ["link/new", "directory/new"],
        ["broken/below"],
        ["own/new"],
    ],
    ids=str,
)
def test_what_could_not_be_renamed_is_refused_before_the_commit(
    messaging: Messaging, files: Files, place: Path, names: list[str]
) -> None:
    (place / "directory").mkdir()
    (place / "file").write_bytes(b"")
    (place / "link").symlink_to(place / "directory")
    (place / "broken").symlink_to(place / "nowhere")
    (place / "own").symlink_to(place / PLACE)
    with (  # noqa: PT012
        pytest.raises(BadRequest, match=r"is a |are one file|is inside of"),
        messaging.transaction(),
    ):
        for name in names:
            files.write(name, b"x")
    assert left(place) == set()


def test_files_change_in_a_block_of_this_thread_only(
    messaging: Messaging, files: Files
) -> None:
    with pytest.raises(MisusedTransaction, match="none is open here"):
        files.write("a", b"x")
    with messaging.transaction(files):
        [error] = at_once(lambda: files.delete("a"))
    assert isinstance(error, MisusedTransaction)
    with (
        txaware.connect("memory:") as other,
        pytest.raises(MisusedTransaction, match="this block is of another one"),
        other.transaction(files),
    ):
        pass
    files.close()
    with messaging.transaction(), pytest.raises(Unavailable, match="is closed"):
        files.write("a", b"x")


def test_an_intent_that_cannot_be_read_is_told_by_its_path(
    messaging: Messaging, files: Files, place: Path
) -> None:
    files.close()
    (place / PLACE / "7.intent").write_bytes(b"{")
    with pytest.raises(StoreCorrupted, match=r"7\.intent cannot be read"):
        participants.files(messaging, place)


Change = Callable[[Files], None]
IN_THE_WAY: dict[str, tuple[Change, Change]] = {
    "child": (
        lambda files: files.write("a", b"1"),
        lambda files: files.write("a/b", b"2"),
    ),
    "parent": (
        lambda files: files.write("a/b", b"1"),
        lambda files: files.write("a", b"2"),
    ),
    "child of removed": (
        lambda files: files.delete("a"),
        lambda files: files.write("a/b", b"2"),
    ),
    "removed parent": (
        lambda files: files.write("a/b/c", b"1"),
        lambda files: files.delete("a"),
    ),
}


@pytest.mark.parametrize(
    ("first", "second"), list(IN_THE_WAY.values())[:3], ids=list(IN_THE_WAY)[:3]
)
def test_a_path_conflicts_with_its_parents_and_children(
    messaging: Messaging, files: Files, first: Change, second: Change
) -> None:
    """The other one is still open: who commits first is there, as for one path."""

    def other() -> None:
        with messaging.transaction():
            second(files)
            messaging.publisher("t").publish(b"second")

    with pytest.raises(TransactionConflict), messaging.transaction():  # noqa: PT012
        first(files)
        messaging.publisher("t").publish(b"first")
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert committed(messaging) == [b"second"]
    assert files.smallest_pointer() is None


@pytest.mark.parametrize(("first", "second"), IN_THE_WAY.values(), ids=list(IN_THE_WAY))
def test_a_path_conflicts_with_those_of_a_transaction_that_has_flushed(
    messaging: Messaging, files: Files, first: Change, second: Change
) -> None:
    refused: list[Exception] = []

    def other() -> None:
        try:
            with messaging.transaction():
                second(files)
                messaging.publisher("t").publish(b"second")
        except TransactionConflict as error:
            refused.append(error)

    with messaging.transaction() as tx:
        first(files)
        messaging.publisher("t").publish(b"first")
        tx.checkpoint()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "is in the way of" in str(refused[0])
    assert committed(messaging) == [b"first"]
    assert files.smallest_pointer() is None


def test_siblings_and_a_link_beside_them_do_not_conflict(
    messaging: Messaging, files: Files, place: Path
) -> None:
    (place / "real").mkdir(parents=True)
    (place / "link").symlink_to(place / "real")

    def other(name: str, refused: list[str]) -> None:
        try:
            with messaging.transaction():
                files.write(name, b"2")
        except TransactionConflict:
            refused.append(name)

    refused: list[str] = []
    with messaging.transaction() as tx:
        files.write("real/a", b"1")
        files.write("new/a", b"1")
        tx.checkpoint()
        for name in ("real/b", "link/c", "new/b", "link/a", "link/a/b"):
            thread = threading.Thread(target=other, args=(name, refused))
            thread.start()
            thread.join()
    assert refused == ["link/a", "link/a/b"]
    assert (files.read("new/a"), files.read("new/b")) == (b"1", b"2")


def test_what_has_come_since_the_write_is_a_conflict(
    messaging: Messaging, files: Files, place: Path
) -> None:
    with (  # noqa: PT012
        pytest.raises(TransactionConflict, match="somebody else changed what is there"),
        messaging.transaction(),
    ):
        files.write("a", b"1")
        (place / "a").mkdir()
    assert left(place) == set()


@pytest.fixture
def elsewhere(place: Path) -> Iterator[Path]:
    """A directory on another file system than the files."""
    memory = Path("/dev/shm")
    place.mkdir(exist_ok=True)
    if not memory.is_dir() or memory.stat().st_dev == place.stat().st_dev:
        pytest.skip("this machine has no second file system at /dev/shm")
    made = Path(tempfile.mkdtemp(dir=memory))
    yield made
    shutil.rmtree(made)


def test_another_device_is_refused_before_the_commit(
    messaging: Messaging, files: Files, place: Path, elsewhere: Path
) -> None:
    (place / "link").symlink_to(elsewhere)
    with (  # noqa: PT012
        pytest.raises(BadRequest, match="link is on another file system than"),
        messaging.transaction(),
    ):
        messaging.publisher("t").publish(b"never")
        files.write("y", b"1")
        files.write("link/new/x", b"1")
    assert committed(messaging) == []
    (elsewhere / "old").write_bytes(b"")
    with messaging.transaction():
        files.delete("link/old")
    assert not (elsewhere / "old").exists()


MOUNTED_TWICE = """
import subprocess, sys, txaware
from txaware import participants
place = sys.argv[1]
with txaware.connect("memory:") as messaging, participants.files(messaging, place) as f:
    subprocess.run(["mount", "--bind", place + "/../other", place + "/in"], check=True)
    try:
        with messaging.transaction():
            f.write("in/x", b"1")
    except txaware.BadRequest as error:
        print(error)
"""


def test_a_directory_of_the_same_device_that_is_mounted_is_refused(
    tmp_path: Path,
) -> None:
    apart = ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*apart, "true"]).returncode:
        pytest.skip("nothing can be mounted on this machine")
    (tmp_path / "out" / "in").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    program = [*apart, sys.executable, "-c", MOUNTED_TWICE, str(tmp_path / "out")]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert "is on another file system than" in done.stdout


def test_a_directory_without_the_right_to_write_is_refused(
    messaging: Messaging, files: Files, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for by `os.access`: the superuser, who may run this, has every right."""
    (place / "in").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != place / "in")
    with messaging.transaction():
        files.delete("in/not there")
        with pytest.raises(BadRequest, match="may not change what is in"):
            files.write("in/a", b"1")


def test_what_cannot_be_put_in_place_names_itself_and_leaves_the_others_usable(
    messaging: Messaging,
    files: Files,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pointer = in_commit(messaging, files, monkeypatch, "a", "b", "in/c")
    (place / "a").mkdir()
    (place / "in").write_bytes(b"a file")
    files.close()
    with caplog.at_level(logging.ERROR), participants.files(messaging, place) as again:
        (told,) = [one.getMessage() for one in caplog.records]
        assert f"transaction {pointer} has committed, and its file 'a' (and 1 " in told
        assert f"{pointer}.intent says what was to be done" in told
        assert again.read("b") == b"late"
        assert again.smallest_pointer() == pointer
        for name in ("a", "a/new", "in/c"):
            with pytest.raises(TransactionRefused), messaging.transaction():
                _write_past_the_look(again, name)
        with messaging.transaction():
            again.write("b", b"newer")
        with pytest.raises(NotApplied, match="--skip"):
            again.read("in/c")
        with messaging.transaction():
            again.delete("in")  # the cause of one is mended, by a transaction too
        assert again.read("in/c") == b"late"
        with pytest.raises(NotApplied, match="its file 'a' cannot be put in place"):
            again.recover()
        (place / "a").rmdir()
        assert again.recover() == []
        assert (again.read("a"), again.read("b")) == (b"late", b"newer")
    assert left(place) == set()


def _write_past_the_look(files: Files, name: str) -> None:
    """Writes a file that is refused at once where its place is taken."""
    try:
        files.write(name, b"new")
    except BadRequest:
        raise TransactionRefused from None


def test_what_is_skipped_is_put_by_with_what_was_to_be_written(
    messaging: Messaging, files: Files, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointer = in_commit(messaging, files, monkeypatch, "a", "b")
    (place / "a").mkdir()
    put_by = place / PLACE / f"{pointer}.skipped"
    assert files.skip() == [str(put_by)]
    assert files.skip() == []
    assert files.smallest_pointer() is None
    with messaging.transaction():
        files.write("b", b"newer")
    files.close()
    with participants.files(messaging, place) as again:
        (aside,) = left(place) - {put_by.name}
        assert f'"a": "{aside}"' in put_by.read_text()
        assert (place / PLACE / aside).read_bytes() == b"late"
        assert again.read("b") == b"newer"
    put_by.unlink()
    with participants.files(messaging, place):
        assert left(place) == set()
