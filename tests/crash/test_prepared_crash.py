"""Prepared transactions through crashes and failing disks, at every step."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import txaware
from coordinator.context import transaction
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.embedded.file_journal import FileJournal
from coordinator.errors import JournalCorrupted, NotWritten, TransactionPrepared
from coordinator.outcome import Outcome
from tests.support.doubles import Clock, Recorder
from tests.support.fake_leveldb import (
    DONE,
    OPEN,
    SYNC,
    WRITE,
    Crash,
    FakeDirectory,
    io_error,
)
from tests.support.python_process import PythonProcess
from tests.support.store_lives import close, opened
from tests.support.store_load import Store
from txaware.errors import (
    StoreCorrupted,
    TransactionConflict,
    TransactionOutcomeUnknown,
    Unavailable,
)
from txaware.store.journaled_table import FORMAT, FORMATS, NEWEST_FORMAT, OUR_FORMAT
from txaware.testing.failing_coordinator import FailingCoordinator

ENDS = ["commit_prepared", "rollback_prepared"]
KEY = b"a key"


class Act:
    """Prepares a transaction and ends it; notes how far it surely came."""

    def __init__(self, end: str) -> None:
        self.asked: list[str] = []
        self.told: list[str] = []
        self._end = end

    def run(self, directory: FakeDirectory, clock: Clock) -> None:
        """Goes through all of it, up to a crash."""
        store: Store | None = None
        try:
            store = opened(directory, clock)
            self._run(store)
        except (Crash, Unavailable):
            if not directory.crashed:
                raise
        finally:
            if store is not None:
                close(store)

    def _run(self, store: Store) -> None:
        # Too large to be held: its rows are on disk before it is prepared.
        large = store.coordinator.start_short()
        store.service.publish("b", [b"x" * 200], transaction=large)
        tx = store.coordinator.start_short()
        store.service.publish("a", [b"one"], transaction=tx)
        store.coordinator.can_commit(tx, [KEY])
        self._step("prepare", lambda: store.coordinator.prepare(tx, "p"))
        store.coordinator.prepare(large, "large")
        self._step("end", lambda: getattr(store.coordinator, self._end)("p"))
        store.service.publish("b", [b"behind"])

    def _step(self, name: str, call: Callable[[], object]) -> None:
        self.asked.append(name)
        call()
        self.told.append(name)


def seen(store: Store) -> list[bytes]:
    return [m.payload for m in store.service.poll("a", isolation="committed")]


def assert_as_told(store: Store, act: Act, end: str) -> None:
    """Checks what is there after a crash against what was told before it."""
    names = {one.name for one in store.coordinator.prepared()}
    ended = [b"one"] if end == "commit_prepared" else []
    if "end" in act.told:
        assert "p" not in names
        assert seen(store) == ended
        return
    if "end" not in act.asked:
        assert ("p" in names) or "prepare" not in act.told
        assert seen(store) == []
    elif "p" not in names:
        assert seen(store) == ended
    if "p" in names:
        assert seen(store) == []
        other = store.coordinator.start_short()
        with pytest.raises(TransactionConflict):
            store.coordinator.can_commit(other, [KEY])
        store.coordinator.abort(other)
        getattr(store.coordinator, end)("p")
        assert seen(store) == ended


@pytest.mark.parametrize("end", ENDS)
def test_a_crash_at_any_step_leaves_what_was_told(end: str) -> None:
    whole = FakeDirectory()
    Act(end).run(whole, Clock())
    assert whole.steps > 20
    names: set[frozenset[str]] = set()
    for at in range(whole.steps):
        directory, clock, act = FakeDirectory(), Clock(), Act(end)

        def crash(number: int, _: str, at: int = at) -> None:
            if number == at:
                raise Crash

        directory.before = crash
        act.run(directory, clock)
        for found in directory.after_a_crash():
            store = opened(found, clock)
            names.add(frozenset(one.name for one in store.coordinator.prepared()))
            assert_as_told(store, act, end)
            before = store.coordinator.prepared(), seen(store)
            store.close()
            store = opened(found, clock)  # and so it stays
            assert (store.coordinator.prepared(), seen(store)) == before
            store.close()
    expected = [(), ("p",), ("p", "large"), ("large",)]
    assert names == {frozenset(each) for each in expected}


def failing_once(step: str) -> Callable[[int, str], None]:
    left = [1]

    def before(_: int, now: str) -> None:
        if now == step and left[0]:
            left[0] -= 1
            raise io_error()

    return before


@pytest.fixture
def store() -> Iterator[tuple[Store, FakeDirectory]]:
    directory, clock = FakeDirectory(), Clock()
    opened_one = opened(directory, clock)
    yield opened_one, directory
    opened_one.close()


def test_a_prepare_that_was_not_written_can_be_asked_for_again(
    store: tuple[Store, FakeDirectory],
) -> None:
    one, directory = store
    tx = one.coordinator.start_short()
    one.service.publish("a", [b"one"], transaction=tx)
    one.coordinator.can_commit(tx, [KEY])
    directory.before = failing_once(WRITE)
    with pytest.raises(NotWritten):
        one.coordinator.prepare(tx, "p")
    assert one.coordinator.prepared() == []
    one.coordinator.prepare(tx, "p")
    one.coordinator.prepare(tx, "p")  # whoever lost the answer asks again
    one.coordinator.commit_prepared("p")
    assert seen(one) == [b"one"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("at", [WRITE, SYNC, DONE])
def test_an_end_that_failed_leaves_it_prepared_or_is_done(
    store: tuple[Store, FakeDirectory], at: str, end: str
) -> None:
    one, directory = store
    tx = one.coordinator.start_short()
    one.service.publish("a", [b"one"], transaction=tx)
    one.coordinator.prepare(tx, "p")
    directory.before = failing_once(at)
    with suppress(Unavailable):
        getattr(one.coordinator, end)("p")
    directory.before = lambda number, step: None
    if one.coordinator.prepared():
        assert seen(one) == []
        getattr(one.coordinator, end)("p")
    assert seen(one) == ([b"one"] if end == "commit_prepared" else [])
    assert one.coordinator.prepared() == []


@pytest.mark.parametrize("at", [WRITE, SYNC, DONE])
def test_a_prepare_that_nobody_can_tell_is_decided_when_the_disk_is_back(
    store: tuple[Store, FakeDirectory], at: str
) -> None:
    one, directory = store
    recorder = LetsGo("theirs", changes=[KEY], shares_journal=True)
    down = [2]

    def before(_: int, step: str) -> None:
        if step == at or (step == OPEN and down[0]):
            down[0] -= step == OPEN
            raise io_error()

    def run() -> None:
        with transaction(one.coordinator, recorder) as tx:
            directory.before = before
            tx.prepare("p")

    with pytest.raises(TransactionOutcomeUnknown, match="may or may not be prepared"):
        run()
    assert "rollback_tx theirs" not in recorder.log
    directory.before = lambda number, step: None
    one.service.publish("b", [b"works again"])
    names = [each.name for each in one.coordinator.prepared()]
    assert names == ([] if at == WRITE else ["p"])
    if names:
        one.coordinator.commit_prepared("p")


class LetsGo(Recorder):
    """A participant that knows prepared transactions."""

    def post_tx_prepare(self) -> None:
        self._answer("post_tx_prepare")


def test_a_lost_answer_to_a_prepare_is_found_out(
    store: tuple[Store, FakeDirectory],
) -> None:
    """Whoever asks to invalidate it learns that it is prepared."""
    one, _ = store
    inner, recorder = one.coordinator, LetsGo("theirs")
    failing = FailingCoordinator(inner)
    failing.lose("prepare")
    with transaction(failing, recorder) as tx:
        tx.prepare("p")
    assert recorder.log[-1] == "post_tx_prepare theirs"
    failing.fail("prepare")

    def again() -> None:
        with transaction(failing, recorder) as tx:
            tx.prepare("q")

    with pytest.raises(Unavailable):
        again()
    assert recorder.log[-1] == "rollback_tx theirs"
    assert [each.name for each in inner.prepared()] == ["p"]
    inner.commit_prepared("p")


def test_keys_of_later_commits_are_not_kept_for_it() -> None:
    """What nobody will check any more is forgotten, however long one is prepared."""
    with EmbeddedCoordinator() as coordinator:
        waiting = coordinator.start_short()
        coordinator.can_commit(waiting, [KEY])
        coordinator.prepare(waiting, "p")
        for number in range(5):
            tx = coordinator.start_short()
            coordinator.can_commit(tx, [b"%d" % number])
            coordinator.commit(tx)
        assert not coordinator._ledger.committed._pointer_of
        tx = coordinator.start_short()
        with pytest.raises(TransactionConflict):
            coordinator.can_commit(tx, [KEY])


def test_a_journal_that_is_written_anew_keeps_it(tmp_path: Path) -> None:
    def open_small() -> EmbeddedCoordinator:
        journal = FileJournal.open(tmp_path, compact_bytes=1)
        return EmbeddedCoordinator(journal)

    with open_small() as coordinator:
        tx = coordinator.start_short()
        tx = coordinator.checkpoint(tx)
        coordinator.can_commit(tx, [KEY, b"more"])
        coordinator.prepare(tx, "p", principal="ann")
        before = coordinator.prepared()
        for _ in range(50):
            coordinator.commit(coordinator.start_short())
    with open_small() as coordinator:
        assert coordinator.prepared() == before
        assert before[0].principal == "ann"
        assert {*tx.pointers} <= {*coordinator.snapshot().in_progress}
        other = coordinator.start_short()
        with pytest.raises(TransactionConflict):
            coordinator.can_commit(other, [b"more"])
        with pytest.raises(TransactionPrepared):
            coordinator.abort(tx)
        coordinator.commit_prepared("p")
        assert coordinator.outcome(tx) is Outcome.COMMITTED
        coordinator.abort(other)


PROGRAM = """
import sys, time
import txaware
with txaware.connect(f"leveldb:{sys.argv[1]}") as messaging:
    messaging.create_topic("t")
    for name in ("first", "second", "third"):
        with messaging.transaction() as tx:
            messaging.table("rows").put(name.encode(), b"1")
            messaging.publisher("t").publish(name.encode())
            tx.prepare(name)
    messaging.commit_prepared("first")
    messaging.rollback_prepared("second")
    print("ready", flush=True)
    time.sleep(600)
"""


def test_a_killed_process_leaves_it_prepared(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with PythonProcess(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGKILL)
    with txaware.connect(f"leveldb:{tmp_path}") as messaging:
        assert [one.name for one in messaging.prepared()] == ["third"]
        assert [key for key, _ in messaging.table("rows").items()] == [b"first"]
        messaging.commit_prepared("third")
        page = messaging.poll("t", isolation="committed")
        assert [message.payload for message in page] == [b"first", b"third"]
        assert messaging.check().is_clean


def test_an_older_store_gets_the_newest_format_with_its_first_one(
    store: tuple[Store, FakeDirectory],
) -> None:
    one, directory = store
    assert one.table.get(FORMAT) == OUR_FORMAT  # as an earlier version left it
    one.coordinator.prepare(one.coordinator.start_short(), "p")
    assert one.table.get(FORMAT) == NEWEST_FORMAT
    one.close()
    store_again = opened(directory, Clock())
    assert [each.name for each in store_again.coordinator.prepared()] == ["p"]
    store_again.close()


def test_an_earlier_version_refuses_it_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = txaware.connect(f"leveldb:{tmp_path / 'store'}")
    with connect as messaging, messaging.transaction() as tx:
        tx.prepare("p")
    with EmbeddedCoordinator.open(tmp_path / "alone") as coordinator:
        coordinator.prepare(coordinator.start_short(), "p")
    earlier = "txaware.store.journaled_table"
    with monkeypatch.context() as patched:
        patched.setattr(f"{earlier}.FORMATS", FORMATS[:3])
        with pytest.raises(StoreCorrupted, match="has the format b'txaware 4', and"):
            txaware.connect(f"leveldb:{tmp_path / 'store'}")
    monkeypatch.setattr("coordinator.embedded.records._PREPARED", 99)
    with pytest.raises(JournalCorrupted, match="a record of kind 12, which this vers"):
        EmbeddedCoordinator.open(tmp_path / "alone")
