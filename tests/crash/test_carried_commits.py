"""Commits that carry the messages of their transaction: all or nothing, never early."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator import EmbeddedCoordinator, transaction
from coordinator.context import current_transaction
from coordinator.embedded.records import Record
from coordinator.embedded.write_barrier import WriteBarrier
from coordinator.tracing import API
from coordinator.transaction import Status
from tests.support.concurrency import at_once
from tests.support.doubles import Clock, Recorder
from tests.support.fake_leveldb import DONE, OPEN, SYNC, WRITE, FakeDirectory, io_error
from tests.support.interrupts import elsewhere
from tests.support.store_lives import close, opened
from tests.support.store_load import Store, carried
from txaware.errors import (
    NotWritten,
    ParticipantFailed,
    TopicNotFound,
    TransactionConflict,
    TransactionNotInProgress,
    Unavailable,
)
from txaware.messaging import Messaging
from txaware.model.clock import system_clock_ms
from txaware.model.interfaces import COMMITTED, UNCOMMITTED
from txaware.model.settings import Settings
from txaware.publish import TransactionPublisher
from txaware.service.local import LocalService
from txaware.service.read.scan import CachedRows
from txaware.service.store_context import StoreContext
from txaware.service.wakeups import Signal
from txaware.store.keys import MESSAGE, after
from txaware.store.leveldb import LevelDbTable

# Python and C functions that one transaction with one message may call, all together.
MOST_CALLS = 210


@pytest.fixture
def messaging(tmp_path: Path) -> Iterator[Messaging]:
    with txaware.connect(f"leveldb:{tmp_path}") as messaging:
        for topic in ("a", "b"):
            messaging.create_topic(topic)
        yield messaging


def payloads(messaging: Messaging, topic: str, **options: Any) -> list[bytes]:
    return [message.payload for message in messaging.poll(topic, **options)]


def calls_of_a_transaction(messaging: Messaging) -> int:
    """The fewest of several tries: a clock's lock is not taken every time."""
    publisher = messaging.publisher("a")

    def transact() -> None:
        with messaging.transaction():
            publisher.publish(b"x")

    return min(calls_of(transact) for _ in range(20))


def calls_of(act: Callable[[], object]) -> int:
    found: Counter[str] = Counter()
    sys.setprofile(lambda _, event, __: found.update((event,)))
    try:
        act()
    finally:
        sys.setprofile(None)
    return found["call"] + found["c_call"]


def test_a_transaction_with_one_message_makes_few_calls(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lambda that counts is none of them; its thread also leads the batch.

    Nothing traces, whatever other tests have imported.
    """
    monkeypatch.delitem(sys.modules, API, raising=False)
    answers = at_once(partial(calls_of_a_transaction, messaging))
    assert isinstance(answers[0], int), answers
    assert 100 < answers[0] <= MOST_CALLS


def test_a_commit_wakes_a_waiting_reader_once_and_the_reader_then_reads_once(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    wait, read, snapshot = Signal.wait, CachedRows.read, EmbeddedCoordinator.snapshot

    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            steps.append(name)
            return call(*args)

        return run

    monkeypatch.setattr(Signal, "wait", noted("wait", wait))
    monkeypatch.setattr(CachedRows, "read", noted("read", read))
    monkeypatch.setattr(EmbeddedCoordinator, "snapshot", noted("snapshot", snapshot))
    found: list[bytes] = []
    waiting = threading.Thread(
        target=lambda: found.extend(
            payloads(messaging, "a", isolation="committed", wait_s=30)
        )
    )
    waiting.start()
    while "wait" not in steps:
        time.sleep(0.001)
    with messaging.transaction():
        for number in range(3):
            messaging.publisher("a").publish(b"%d" % number)
    waiting.join(30)
    assert found == [b"0", b"1", b"2"]
    assert steps == ["read", "wait", "snapshot", "read"]


def test_nobody_reads_a_message_before_its_commit_is_visible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = opened(FakeDirectory(), Clock())
    seen: list[list[bytes]] = []
    # Called when the rows are on disk, and before anybody is told so.
    batches = store.table._batches
    fold = batches.fold

    def look_and_fold(records: list[Record]) -> None:
        for isolation in (UNCOMMITTED, COMMITTED):
            page = store.service.poll("a", isolation=isolation)
            seen.append([message.payload for message in page])
        fold(records)

    tx = store.coordinator.start_short()
    monkeypatch.setattr(batches, "fold", look_and_fold)
    store.coordinator.commit_with(tx, carried(store, tx, [b"one", b"two"]))
    assert seen == [[], []]
    assert [m.payload for m in store.service.poll("a")] == [b"one", b"two"]
    monkeypatch.undo()
    store.close()


@pytest.mark.parametrize("at", [WRITE, SYNC, DONE])
def test_a_failed_commit_leaves_all_messages_or_none(at: str) -> None:
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock)
    failures = [at]

    def before(_: int, step: str) -> None:
        if failures and step == failures[0]:
            failures.clear()
            raise io_error()

    publisher = TransactionPublisher(store.service, shares_journal=True)
    directory.before = before
    context = transaction(store.coordinator, publisher)
    with suppress(Unavailable), context:
        publisher.publish("a", b"one", size_bytes=3, limit_bytes=1000)
    committed = context.status is Status.COMMITTED
    assert committed == (at != WRITE)
    store.service.publish("a", [b"next"])
    expected = [b"one", b"next"] if committed else [b"next"]
    for _ in range(2):
        for isolation in ("committed", "uncommitted"):
            page = store.service.poll("a", isolation=isolation)
            assert [message.payload for message in page] == expected
        close(store)
        store = opened(directory, clock)
    store.close()


def test_a_commit_that_was_not_written_can_be_asked_for_again_with_its_rows() -> None:
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock)
    failures = [WRITE]

    def before(_: int, step: str) -> None:
        if failures and step == failures[0]:
            failures.clear()
            raise io_error()

    tx = store.coordinator.start_short()
    cargo = carried(store, tx, [b"one"])
    directory.before = before
    with pytest.raises(NotWritten):
        store.coordinator.commit_with(tx, cargo)
    assert not store.service.poll("a")
    store.coordinator.commit_with(tx, cargo)
    assert [m.payload for m in store.service.poll("a")] == [b"one"]
    store.close()


def test_readers_are_woken_once_a_commit_of_unknown_outcome_is_decided() -> None:
    directory, clock = FakeDirectory(), Clock()
    store = opened(directory, clock)
    down = [2]

    def before(_: int, step: str) -> None:
        if step == DONE or (step == OPEN and down[0]):
            down[0] -= step == OPEN
            raise io_error()

    tx = store.coordinator.start_short()
    cargo = carried(store, tx, [b"one"])
    signal = store.service.place("a").writer.signal
    directory.before = before
    with pytest.raises(Unavailable) as caught:
        store.coordinator.commit_with(tx, cargo)
    assert not isinstance(caught.value, NotWritten)
    told = signal.count
    directory.before = lambda number, step: None
    store.service.publish("b", [b"works again"])
    ended = store.coordinator.invalidate(tx)
    assert signal.count > told
    page = store.service.poll("a", isolation="committed")
    assert [message.payload for message in page] == ([] if ended else [b"one"])
    store.close()


def test_a_commit_waits_for_a_write_of_another_thread_and_then_carries_its_rows(
    messaging: Messaging,
) -> None:
    coordinator = messaging.coordinator
    assert isinstance(coordinator, EmbeddedCoordinator)
    barrier: WriteBarrier = coordinator.barrier
    tx = coordinator.start_short()
    inside, leave, done = threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        entry = barrier.enter(tx.transaction_id)
        inside.set()
        leave.wait(30)
        barrier.leave(entry)

    service: Any = messaging._service
    cargo = service.cargo(coordinator, tx, [("a", [b"one"])])
    writing = threading.Thread(target=write)
    writing.start()
    assert inside.wait(30)

    def commit() -> None:
        coordinator.commit_with(tx, cargo)
        done.set()

    committing = threading.Thread(target=commit)
    committing.start()
    # Topic a is free while the commit waits.
    messaging.publish("a", [b"between"])
    assert not done.is_set()
    leave.set()
    committing.join(30)
    writing.join(30)
    assert done.is_set()
    assert payloads(messaging, "a", isolation="committed") == [b"between", b"one"]


def test_threads_that_publish_to_topics_in_any_order_never_wait_for_each_other(
    messaging: Messaging,
) -> None:
    rounds = 50

    def work(name: int) -> None:
        topics = ("a", "b") if name % 2 else ("b", "a")
        for number in range(rounds):
            with messaging.transaction():
                for topic in topics:
                    messaging.publisher(topic).publish(b"%d %d" % (name, number))

    assert at_once(*(partial(work, name) for name in range(4))) == [None] * 4
    for topic in ("a", "b"):
        found = payloads(messaging, topic, limit=1000, isolation="committed")
        for name in range(4):
            mine = [payload for payload in found if payload.startswith(b"%d " % name)]
            assert mine == [b"%d %d" % (name, number) for number in range(rounds)]


def test_a_conflict_leaves_no_message(messaging: Messaging) -> None:
    mine, other = Recorder(changes=[b"k"]), Recorder(changes=[b"k"])
    with (  # noqa: PT012
        pytest.raises(TransactionConflict),
        messaging.transaction(mine),
    ):
        messaging.publisher("a").publish(b"lost")
        thread = threading.Thread(target=lambda: commit_alone(messaging, other))
        thread.start()
        thread.join(30)
    assert payloads(messaging, "a") == []
    messaging.publish("a", [b"next"])
    assert payloads(messaging, "a") == [b"next"]


def commit_alone(messaging: Messaging, participant: Recorder) -> None:
    with messaging.transaction(participant):
        pass


def test_a_participant_that_fails_to_flush_leaves_no_message(
    messaging: Messaging,
) -> None:
    failing = Recorder(commit_tx=False)
    with pytest.raises(ParticipantFailed), messaging.transaction(failing):
        messaging.publisher("a").publish(b"lost")
    assert payloads(messaging, "a") == []


def test_an_invalidated_transaction_leaves_no_message(messaging: Messaging) -> None:
    def transact() -> None:
        with messaging.transaction() as context:
            messaging.publisher("a").publish(b"lost")
            messaging.coordinator.invalidate(context.transaction)

    with pytest.raises(TransactionNotInProgress):
        transact()
    assert payloads(messaging, "a") == []


def test_a_position_and_messages_go_with_one_commit(messaging: Messaging) -> None:
    messaging.publish("a", [b"1", b"2"])
    for _ in range(2):
        with messaging.transaction():
            for message in messaging.consumer("a", group="g").poll(limit=1):
                messaging.publisher("b").publish(message.payload * 2)
    assert payloads(messaging, "b", isolation="committed") == [b"11", b"22"]
    with messaging.transaction():
        assert not messaging.consumer("a", group="g").poll()


def test_a_coordinator_derived_from_ours_gets_every_call(tmp_path: Path) -> None:
    class Counting(EmbeddedCoordinator):
        commits = 0

        def commit(self, tx: Any) -> None:
            self.commits += 1
            super().commit(tx)

    table = LevelDbTable.open(tmp_path, Settings(), clock_ms=system_clock_ms)
    with Counting(table.journal) as coordinator:
        site = StoreContext(table, coordinator, coordinator.barrier, Settings())
        service = LocalService(site)
        service.create_topic("a")
        publisher = TransactionPublisher(service, shares_journal=True)
        with transaction(coordinator, publisher):
            publisher.publish("a", b"one", size_bytes=3, limit_bytes=1000)
        assert coordinator.commits == 1
        assert [m.payload for m in service.poll("a")] == [b"one"]
    table.close()


def test_a_snapshot_that_sees_a_commit_sees_it_in_all_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever another thread begins while the commit tells its topics one by one."""
    store = opened(FakeDirectory(), Clock())
    coordinator, service = store.coordinator, store.service
    tx = coordinator.start_short()
    cargo = service.cargo(coordinator, tx, [("a", [b"one"]), ("b", [b"two"])])
    assert cargo is not None
    seen: list[tuple[bool, list[bytes]]] = []

    def look() -> None:
        reader = coordinator.start_short()
        found = [
            message.payload
            for topic in ("a", "b")
            for message in service.poll(topic, transaction=reader)
        ]
        seen.append((reader.is_visible(tx.transaction_id), found))
        coordinator.abort(reader)

    notify = Signal.notify

    def look_and_notify(signal: Signal) -> None:
        elsewhere(look)
        notify(signal)

    monkeypatch.setattr(Signal, "notify", look_and_notify)
    coordinator.commit_with(tx, cargo)
    monkeypatch.undo()
    assert seen
    assert all(found == ([b"one", b"two"] if sees else []) for sees, found in seen)
    store.close()


def test_a_participant_that_has_joined_already_is_not_started_again(
    messaging: Messaging,
) -> None:
    participant = Recorder()
    with messaging.transaction(participant) as context:
        assert context.joined("key", lambda: participant) is participant
    assert participant.log.count("start_tx table") == 1
    assert participant.log.count("commit_tx table") == 1


def test_a_block_that_a_participant_opens_as_it_starts_stays_open(
    messaging: Messaging,
) -> None:
    other = EmbeddedCoordinator()
    inner = transaction(other)
    opens = Recorder(start_tx=inner.__enter__)
    with messaging.transaction(opens):
        assert current_transaction(other) is inner
        inner.__exit__(None, None, None)


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_topic_that_another_participant_deletes_is_looked_for_after_that(
    messaging: Messaging, comes_back: bool
) -> None:
    def delete() -> bool:
        messaging.delete_topic("a")
        if comes_back:
            messaging.create_topic("a")
        return True

    def transact() -> None:
        with messaging.transaction(Recorder(commit_tx=delete)):
            messaging.publisher("a").publish(b"x")

    if comes_back:
        transact()
        assert payloads(messaging, "a") == [b"x"]
    else:
        with pytest.raises(TopicNotFound):
            transact()


def test_a_commit_that_was_left_open_is_settled_by_asking_again() -> None:
    directory = FakeDirectory()
    store = opened(directory, Clock())
    tx = store.coordinator.start_short()
    cargo = carried(store, tx, [b"one"])
    down = [1]

    def before(_: int, step: str) -> None:
        if step == DONE or (step == OPEN and down[0]):
            down[0] -= step == OPEN
            raise io_error()

    directory.before = before
    with pytest.raises(Unavailable):
        store.coordinator.commit_with(tx, cargo)
    directory.before = lambda number, step: None
    with suppress(TransactionNotInProgress):  # where it is found on disk
        store.coordinator.commit_with(tx, cargo)
    page = store.service.poll("a", isolation="committed")
    assert [message.payload for message in page] == [b"one"]
    store.close()


def test_rows_that_a_clean_up_removes_before_a_batch_has_them_are_forgotten() -> None:
    clock = Clock()
    table = LevelDbTable(
        "fake", FakeDirectory().open, clock_ms=clock, sync_limit_bytes=1000
    )
    store = Store(table, clock)
    for _ in range(4):
        tx = store.coordinator.start_short()
        response = store.service.publish("a", [b"x" * 300], transaction=tx)
        assert response is not None
        store.service.rollback("a", response)
        store.coordinator.abort(tx)
        rows = table._held.scan(MESSAGE, MESSAGE, after(MESSAGE))
        table.submit([(MESSAGE + key, None) for key, _ in rows])()
    tx = store.coordinator.start_short()
    assert table.hold(tx.transaction_id, [(b"key", b"value")]), "memory that leaks"
    store.close()
