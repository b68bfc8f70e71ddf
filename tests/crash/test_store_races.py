"""Threads that use one store at the same moment: nothing skipped, torn or hanging."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.transaction import Transaction
from tests.support.checker import anomalies
from tests.support.concurrency import at_once, in_background, until
from tests.support.forks import forks_with_threads
from tests.support.store_load import TOPICS, Client, Notes, Reader, Store, history
from txaware.errors import (
    TransactionNotInProgress,
    TransactionRefused,
    Unavailable,
)
from txaware.model.clock import system_clock_ms
from txaware.model.messages import Message, PublishResponse
from txaware.model.settings import Settings
from txaware.store.leveldb import LevelDbTable

ROUNDS = 40


@pytest.fixture(params=[0, 1 << 20], ids=["synced", "held"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    settings = Settings(sync_limit_bytes=max(request.param, 1))
    table = LevelDbTable.open(tmp_path, settings, clock_ms=system_clock_ms)
    store = Store(table, system_clock_ms, timeout_s=600)
    yield store
    store.close()


@pytest.mark.parametrize("url", ["memory:", "leveldb:PATH"])
def test_requests_of_20_threads_to_20_topics_stay_whole_and_in_order(
    url: str, tmp_path: Path
) -> None:
    """Scenario 53: 200 messages of every thread to every topic, in two requests."""
    with txaware.connect(url.replace("PATH", str(tmp_path))) as messaging:
        topics = [f"t{number}" for number in range(20)]
        for topic in topics:
            messaging.create_topic(topic)

        def work(thread: int) -> None:
            for topic in topics[thread:] + topics[:thread]:
                for part in range(2):
                    messaging.publish(
                        topic, [b"%d %d %d" % (thread, part, n) for n in range(100)]
                    )

        calls = [partial(work, thread) for thread in range(20)]
        assert at_once(*calls, patience_s=120) == [None] * 20
        for topic in topics:
            page = messaging.poll(topic, limit=10_000)
            ids = [message.id for message in page]
            assert ids == sorted(set(ids))
            requests = [page[first : first + 100] for first in range(0, 4000, 100)]
            assert len(page) == 4000
            begins: list[tuple[int, int]] = []
            for request in requests:
                thread, part, _ = (int(x) for x in request[0].payload.split())
                expected = [b"%d %d %d" % (thread, part, n) for n in range(100)]
                assert [message.payload for message in request] == expected
                begins.append((thread, part))
            assert len(set(begins)) == 40
            assert all(begins.index((n, 0)) < begins.index((n, 1)) for n in range(20))


def test_readers_see_prefixes_that_only_grow_and_skip_nothing(store: Store) -> None:
    """Plain and transactional publishes race; every poll is judged with all others."""
    notes, over = Notes(), threading.Event()
    clients = [Client(store, notes, f"c{n}", n) for n in range(6)]
    readers = [
        Reader(store, notes, f"{topic} {how} {n}", topic, isolation=how)
        for topic in TOPICS
        for how in ("committed", "uncommitted")
        for n in range(2)
    ]

    def write(client: Client) -> None:
        steps = [client.plain, client.both, client.rolled_back, client.spilled]
        steps += [client.copy]
        for _ in range(50):
            client.chance.choice(steps)()

    def read(reader: Reader) -> None:
        while not over.is_set():
            reader.poll(50)
            time.sleep(0.002)  # writers are not to starve

    reading = [threading.Thread(target=read, args=(reader,)) for reader in readers]
    for thread in reading:
        thread.start()
    answers = at_once(*(partial(write, client) for client in clients), patience_s=120)
    over.set()
    for thread in reading:
        thread.join(20)
        assert not thread.is_alive(), "a reader hangs"
    assert answers == [None] * len(clients)
    for reader in readers:
        reader.poll()
    assert not anomalies(*history(notes.events))


def test_what_returned_is_seen_by_the_next_poll(store: Store) -> None:
    """Also where another batch was written just before, and its threads go on later."""

    def work(thread: int) -> None:
        for number in range(60):
            topic = TOPICS[number % 2]
            payload = b"%d %d" % (thread, number)
            start = store.service.bounds(topic).next
            store.service.publish(topic, [payload])
            page = store.service.poll(topic, start=start, limit=10_000)
            assert payload in [message.payload for message in page]

    assert at_once(*(partial(work, thread) for thread in range(8))) == [None] * 8


def test_a_batch_is_told_before_what_was_submitted_later(store: Store) -> None:
    slow, go_on = threading.Event(), threading.Event()

    def then(_: object) -> None:
        slow.set()
        go_on.wait(10)

    journal = store.table.journal
    with journal._writing:  # so that both are in one batch
        first = in_background(lambda: store.table.submit([(b"z", b"")], then)())
        assert until(lambda: journal._forming.led)
        one = in_background(lambda: store.service.publish("a", [b"one"]))
        assert until(lambda: store.service.place("a").writer._in_flight)
    assert slow.wait(10)
    seen: list[list[Message]] = []

    def two() -> None:
        store.service.publish("a", [b"two"])
        seen.append(store.service.poll("a"))

    second = in_background(two)
    time.sleep(0.05)  # one that does not wait has polled by then
    go_on.set()
    for thread in (first, one, second):
        thread.join(10)
    assert [message.payload for message in seen[0]] == [b"one", b"two"]


def test_a_commit_waits_for_a_publish_on_its_way_or_refuses_it(store: Store) -> None:
    """Whatever was answered is seen after the commit, and the rest nowhere."""
    answered: list[bytes] = []
    refused: list[bytes] = []

    def publish(tx: Transaction, number: int) -> None:
        for part in range(3):
            payload = b"%d %d" % (number, part)
            try:
                store.service.publish("a", [payload], transaction=tx)
                answered.append(payload)
            except TransactionNotInProgress:
                refused.append(payload)

    for number in range(ROUNDS):
        tx = store.coordinator.start_short()
        assert at_once(
            partial(publish, tx, number), partial(store.coordinator.commit, tx)
        ) == [None, None]
    page = store.service.poll("a", limit=10_000, isolation="committed")
    assert [message.payload for message in page] == answered
    assert len(answered) + len(refused) == 3 * ROUNDS


def test_of_a_rollback_and_a_commit_at_once_one_wins(store: Store) -> None:
    seen: list[bytes] = []
    for number in range(ROUNDS):
        tx = store.coordinator.start_short()
        response = store.service.publish("a", [b"%d" % number], transaction=tx)
        assert isinstance(response, PublishResponse)
        rolled_back, committed = at_once(
            partial(store.service.rollback, "a", response),
            partial(store.coordinator.commit, tx),
        )
        assert committed is None
        if rolled_back is None:
            continue
        assert isinstance(rolled_back, TransactionRefused)
        seen.append(b"%d" % number)
    page = store.service.poll("a", limit=10_000, isolation="committed")
    assert [message.payload for message in page] == seen


def test_of_an_invalidation_and_a_commit_that_waits_one_wins(store: Store) -> None:
    """Both are asked for while a write is under way; the commit waits for it."""
    barrier = store.coordinator.barrier
    for _ in range(ROUNDS):
        tx = store.coordinator.start_short()
        inside, leave = threading.Event(), threading.Event()

        def write(
            tx: Transaction = tx, leave: Any = leave, inside: Any = inside
        ) -> None:
            entry = barrier.enter(tx.transaction_id)
            inside.set()
            leave.wait(10)
            barrier.leave(entry)

        writing = in_background(write)
        assert inside.wait(10)

        def invalidate(tx: Transaction = tx, leave: Any = leave) -> bool:
            time.sleep(0.001)  # the commit comes first, or second
            leave.set()
            return store.coordinator.invalidate(tx)

        committed, invalidated = at_once(
            partial(store.coordinator.commit, tx), invalidate
        )
        writing.join(10)
        seen = store.coordinator.snapshot()
        if invalidated:
            assert isinstance(committed, TransactionNotInProgress)
            assert tx.transaction_id in seen.invalids
        else:
            assert committed is None
            assert seen.is_visible(tx.transaction_id)
        assert not seen.in_progress


def test_a_commit_carries_the_rows_of_a_publish_that_it_waited_for(
    store: Store,
) -> None:
    table, tx = store.table, store.coordinator.start_short()
    hold, committing = table.hold, []

    def slow_hold(pointer: int, writes: Any) -> bool:
        committing.append(in_background(partial(store.coordinator.commit, tx)))
        time.sleep(0.05)  # a commit that does not wait has ended by then
        return hold(pointer, writes)

    table.hold = slow_hold  # type: ignore[method-assign]
    store.service.publish("a", [b"just in time"], transaction=tx)
    committing[0].join(10)
    assert not table._held, "rows that no batch carried"
    page = store.service.poll("a", isolation="committed")
    assert [message.payload for message in page] == [b"just in time"]


def test_a_time_out_during_a_publish_leaves_nothing_in_memory(store: Store) -> None:
    """Its rows are kept like those of any other that ended without a commit."""
    table = store.table
    hold = table.hold
    tx = store.coordinator.start_short()

    def slow_hold(pointer: int, writes: Any) -> bool:
        store.coordinator.invalidate(pointer)
        return hold(pointer, writes)

    table.hold = slow_hold  # type: ignore[method-assign]
    with suppress(TransactionRefused):
        store.service.publish("a", [b"late"], transaction=tx)
    del table.hold
    store.service.publish("a", [b"next"])
    assert not table._held
    page = store.service.poll("a", isolation="committed")
    assert [message.payload for message in page] == [b"next"]
    assert len(store.service.poll("a")) == 2


@pytest.mark.parametrize("close_after_s", [0, 0.01, 0.05])
def test_a_close_ends_every_call_with_a_clear_error(
    close_after_s: float, tmp_path: Path
) -> None:
    messaging, closed = txaware.connect(f"leveldb:{tmp_path}"), threading.Event()
    messaging.create_topic("a")
    messaging.create_topic("empty")

    def until_closed(call: Callable[[], object]) -> None:
        while not closed.is_set():  # a poll may still be answered from the cache
            try:
                call()
            except Unavailable:
                return

    def transact() -> None:
        with messaging.transaction() as tx:
            messaging.publish("a", [b"x"], transaction=tx.transaction)

    def close() -> None:
        time.sleep(close_after_s)  # closed at any moment
        messaging.close()
        closed.set()

    calls = [
        lambda: messaging.publish("a", [b"x"]),
        lambda: messaging.poll("a", limit=10),
        lambda: messaging.poll("a", isolation="committed"),
        lambda: messaging.poll("empty", wait_s=20),
        lambda: messaging.poll("empty", wait_s=20, isolation="committed"),
        lambda: messaging.position("g", "a"),
        transact,
    ]
    answers = at_once(*(partial(until_closed, call) for call in calls), close)
    errors = [answer for answer in answers if answer is not None]
    assert all(isinstance(error, TransactionRefused) for error in errors), errors
    with txaware.connect(f"leveldb:{tmp_path}") as again:
        again.publish("a", [b"works"])


@forks_with_threads
@pytest.mark.parametrize("call", ["publish", "close", "exit"])
def test_a_forked_child_writes_nothing_and_harms_nothing(
    call: str, tmp_path: Path
) -> None:
    """What a child wrote into the log it shares would leave a log nobody can read."""
    calls: dict[str, Callable[[], object]] = {
        "publish": lambda: messaging.publish("a", [b"child"]),
        "close": lambda: messaging.close(),
        "exit": lambda: messaging.__exit__(None, None, None),
    }
    expected = [b"before", *(b"%d" % number for number in range(20))]
    with txaware.connect(f"leveldb:{tmp_path}") as messaging:
        messaging.create_topic("a")
        messaging.publish("a", [b"before"])
        child = os.fork()
        if child == 0:
            code = 0
            try:
                calls[call]()
            except Unavailable:
                code = 7
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        for payload in expected[1:]:
            messaging.publish("a", [payload])
    with txaware.connect(f"leveldb:{tmp_path}") as messaging:
        page = messaging.poll("a")
    assert [message.payload for message in page] == expected
