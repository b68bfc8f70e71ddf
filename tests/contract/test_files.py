"""Files that change in transactions, with the messages beside them or not at all."""

import threading
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest

import txaware
from coordinator.directory_lock import DirectoryInUse
from coordinator.outcome import Outcome
from tests.support.messagings import payloads
from txaware import participants
from txaware.errors import (
    BadRequest,
    MisusedTransaction,
    StoreCorrupted,
    TransactionConflict,
    TransactionOutcomeUnknown,
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


def in_commit(messaging: Messaging, files: Files, monkeypatch: Any) -> int:
    """A transaction whose process was killed after its commit; its pointer."""
    monkeypatch.setattr(files, "_apply", lambda pointer: None)
    with messaging.transaction() as tx:
        files.write("a", b"late")
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
    ["", ".", "/etc/x", "../x", "a/../b", ".txaware/x", "a\0", "x" * 256, 7, None],
)
def test_a_name_outside_of_the_directory_is_refused(
    messaging: Messaging, files: Files, name: Any
) -> None:
    with messaging.transaction(), pytest.raises(BadRequest, match="file"):
        files.write(name, b"")


def test_a_str_is_no_content(messaging: Messaging, files: Files) -> None:
    wrong: Any = "text"
    with messaging.transaction(), pytest.raises(BadRequest, match="in bytes"):
        files.write("a", wrong)


@pytest.mark.parametrize(
    "names", [["directory"], ["file/below"], ["new", "new/below"]], ids=str
)
def test_what_could_not_be_renamed_is_refused_before_the_commit(
    messaging: Messaging, files: Files, place: Path, names: list[str]
) -> None:
    (place / "directory").mkdir()
    (place / "file").write_bytes(b"")
    with (  # noqa: PT012
        pytest.raises(BadRequest, match="is a "),
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
    errors: list[Exception] = []

    def elsewhere() -> None:
        try:
            files.delete("a")
        except MisusedTransaction as error:
            errors.append(error)

    with messaging.transaction(files):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert len(errors) == 1
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
