"""Runs of one stream that do not know of each other, their sinks driven by hand."""

import itertools
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import attrs
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

import txaware
from coordinator.remote.client import RemoteCoordinator
from tests.support.concurrency import in_threads, until
from txaware.errors import (
    BadRequest,
    TopicNotFound,
    TransactionConflict,
    TransactionNotInProgress,
    TransactionRefused,
    TxAwareError,
)
from txaware.messaging import Messaging
from txaware.publish.outbox import TopicOutbox
from txaware.spark import committing, stream_sink
from txaware.spark.options import Options
from txaware.spark.storing import Extent
from txaware.spark.stream_sink import StoredForBatch, StreamSink

pytestmark = pytest.mark.spark

PATIENCE_S = 30
SCHEMA = StructType().add("payload", "string")
ROWS_A_TASK, TASKS = 2, 2


@attrs.frozen
class ByHand:
    """Calls sinks as Spark does: one is made at planning, another one to commit."""

    messaging: Messaging
    url: str

    def sink(self, topic: str, **options: str) -> StreamSink:
        return StreamSink(
            Options.of({"url": self.url, "topic": topic, **options}), SCHEMA
        )

    def planned(self, topic: str, **options: str) -> bytes:
        return pickle.dumps(self.sink(topic, **options))

    def stored(
        self, topic: str, *payloads: str, tasks: int = TASKS, **options: str
    ) -> list[StoredForBatch]:
        """What the tasks of a batch answer."""
        sent = self.planned(topic, **options)
        return [written(sent, *payloads[task::tasks]) for task in range(tasks)]

    def commit(self, topic: str, stored: list[StoredForBatch], batch: int) -> None:
        self.sink(topic).commit([*stored], batch)

    def published(self, topic: str) -> list[str]:
        """All that is committed; nothing is to be waited for."""
        consumer = self.messaging.consumer(topic)
        page = consumer.poll(1000)
        assert page.blocked_by is None
        return [message.payload.decode() for message in page]


def written(sent: bytes, *payloads: str) -> StoredForBatch:
    """What one attempt of a task answers."""
    rows = pa.RecordBatch.from_pydict({"payload": pa.array(payloads, pa.string())})
    sink: StreamSink = pickle.loads(sent)
    return sink.write(iter([rows] if payloads else []))


@pytest.fixture(scope="module")
def memory() -> Iterator[ByHand]:
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        yield ByHand(messaging, server.url)


@pytest.fixture
def by_hand(memory: ByHand, monkeypatch: pytest.MonkeyPatch) -> Iterator[ByHand]:
    """Sinks of a query of its own and a new topic `t`."""
    query_id = uuid4().hex  # groups outlive their topic
    monkeypatch.setattr(stream_sink, "_query_id", lambda: query_id)
    memory.messaging.create_topic("t")
    yield memory
    if "t" in memory.messaging.topics():
        memory.messaging.delete_topic("t")


def test_a_batch_that_is_committed_twice_is_published_once(by_hand: ByHand) -> None:
    by_hand.commit("t", by_hand.stored("t", "a", "b"), 0)
    by_hand.commit("t", by_hand.stored("t", "a", "b"), 0)
    by_hand.commit("t", by_hand.stored("t", "c"), 1)
    by_hand.commit("t", by_hand.stored("t", "c"), 1)
    assert by_hand.published("t") == ["a", "b", "c"]


def test_another_query_has_batches_of_its_own(
    by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand.commit("t", by_hand.stored("t", "a"), 0)
    monkeypatch.setattr(stream_sink, "_query_id", lambda: "another")
    by_hand.commit("t", by_hand.stored("t", "b"), 0)
    assert by_hand.published("t") == ["a", "b"]


def test_an_old_run_is_refused_after_the_new_one_committed(by_hand: ByHand) -> None:
    old, new = by_hand.stored("t", "a"), by_hand.stored("t", "a")
    by_hand.commit("t", new, 0)
    with pytest.raises(TransactionConflict):
        by_hand.commit("t", old, 0)
    by_hand.sink("t").abort([*old], 0)
    assert by_hand.published("t") == ["a"]


def test_the_new_run_is_refused_when_the_old_one_commits_meanwhile(
    by_hand: ByHand,
) -> None:
    old, new = by_hand.stored("t", "a"), by_hand.stored("t", "a")
    by_hand.commit("t", old, 0)
    with pytest.raises(TransactionConflict):
        by_hand.commit("t", new, 0)
    by_hand.commit("t", by_hand.stored("t", "a"), 0)
    assert by_hand.published("t") == ["a"]


def test_one_of_two_runs_that_commit_at_the_same_time_wins(by_hand: ByHand) -> None:
    for batch in range(5):
        runs = [by_hand.stored("t", f"{batch}") for _ in range(3)]
        refused: list[TransactionRefused] = []
        at_once = threading.Barrier(len(runs))

        def commit(
            stored: list[StoredForBatch],
            batch: int = batch,
            at_once: threading.Barrier = at_once,
            refused: list[TransactionRefused] = refused,
        ) -> None:
            at_once.wait()
            try:
                by_hand.commit("t", stored, batch)
            except TransactionRefused as error:
                refused.append(error)

        in_threads(commit, runs)
        assert len(refused) == len(runs) - 1
    assert by_hand.published("t") == [f"{batch}" for batch in range(5)]


def test_readers_do_not_wait_for_a_run_that_stopped_before_its_commit(
    by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = by_hand.stored("t", "a"), by_hand.stored("t", "a")
    stopped, goes_on = threading.Event(), threading.Event()
    refused: list[TxAwareError] = []
    commit = RemoteCoordinator._commit

    def commit_late(coordinator: RemoteCoordinator, tx: Any, **fields: Any) -> None:
        if threading.current_thread() is zombie:
            stopped.set()
            assert goes_on.wait(PATIENCE_S)
        commit(coordinator, tx, **fields)

    def run_old() -> None:
        try:
            by_hand.commit("t", old, 0)
        except TxAwareError as error:
            refused.append(error)

    monkeypatch.setattr(RemoteCoordinator, "_commit", commit_late)
    zombie = threading.Thread(target=run_old)
    zombie.start()
    assert stopped.wait(PATIENCE_S)
    try:
        assert by_hand.messaging.consumer("t").poll().blocked_by is not None
        by_hand.commit("t", new, 0)
        assert by_hand.published("t") == ["a"]
    finally:
        goes_on.set()
        zombie.join()
    assert isinstance(refused[0], TransactionNotInProgress)
    assert by_hand.published("t") == ["a"]


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_a_place_tells_both_the_transaction_and_the_batch(
    pointer: int, number: int
) -> None:
    place = committing._place(pointer, number)
    assert (committing._pointer(place), place.write_time_ms) == (pointer, number)


def test_an_abort_that_knows_no_transaction_does_no_harm(by_hand: ByHand) -> None:
    by_hand.stored("t", "a")
    by_hand.sink("t").abort([None, None], 0)
    by_hand.sink("t").abort([], 0)
    by_hand.commit("t", by_hand.stored("t", "a"), 0)
    assert by_hand.published("t") == ["a"]


def test_an_abort_ends_the_transaction_at_once(by_hand: ByHand) -> None:
    first, second = by_hand.stored("t", "a", "b")
    by_hand.sink("t").abort([first, None], 0)
    with pytest.raises(TransactionNotInProgress):
        by_hand.commit("t", [first, second], 0)
    assert by_hand.published("t") == []


def test_an_abort_leaves_a_committed_batch_alone(by_hand: ByHand) -> None:
    stored = by_hand.stored("t", "a")
    by_hand.commit("t", stored, 0)
    by_hand.sink("t").abort([*stored], 0)
    assert by_hand.published("t") == ["a"]


def test_an_abort_hides_what_a_commit_that_died_had_published(
    by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = by_hand.stored("t", "a")

    def died(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        for call in ("commit", "abort", "invalidate"):
            patched.setattr(RemoteCoordinator, call, died)
        patched.setattr(TopicOutbox, "rollback", died)
        with pytest.raises(KeyboardInterrupt):
            by_hand.commit("t", stored, 0)
    assert by_hand.messaging.consumer("t").poll().blocked_by is not None
    by_hand.sink("t").abort([*stored], 0)
    assert by_hand.published("t") == []


def test_an_empty_batch_leaves_nothing_behind(by_hand: ByHand) -> None:
    before = by_hand.messaging.coordinator.snapshot().in_progress
    by_hand.commit("t", by_hand.stored("t"), 0)
    by_hand.commit("t", [], 1)
    by_hand.commit("t", by_hand.stored("t", "a"), 2)
    assert by_hand.published("t") == ["a"]
    assert len(by_hand.messaging.peek("t")) == 1
    after = by_hand.messaging.coordinator.snapshot().in_progress
    assert set(after) <= set(before)


def test_a_batch_that_took_too_long_is_refused_and_says_which_option(
    by_hand: ByHand,
) -> None:
    stored = by_hand.stored("t", "a", timeout_s="5")
    pointer = stored[0].receipts[0].pointer
    coordinator = by_hand.messaging.coordinator
    assert until(lambda: pointer in coordinator.snapshot().invalids)
    with pytest.raises(TransactionNotInProgress) as refused:
        by_hand.commit("t", stored, 0)
    assert "timeout_s says how long" in "".join(refused.value.__notes__)
    by_hand.commit("t", by_hand.stored("t", "a"), 0)
    assert by_hand.published("t") == ["a"]


def test_a_topic_that_is_deleted_meanwhile_fails_the_batch(by_hand: ByHand) -> None:
    stored = by_hand.stored("t", "a")
    by_hand.messaging.delete_topic("t")
    with pytest.raises(TopicNotFound):
        by_hand.commit("t", stored, 0)
    by_hand.sink("t").abort([*stored], 0)
    with pytest.raises(TopicNotFound):
        by_hand.planned("t")


def test_a_stream_has_to_name_a_topic(by_hand: ByHand) -> None:
    with pytest.raises(BadRequest, match="a stream needs option topic"):
        StreamSink(Options.of({"url": by_hand.url}), SCHEMA.add("topic", "string"))


# What may happen to a run of a query. A restart is one of its machine, too: nobody
# tells the old run, whose calls still may come.
NEXT, ABORT, RESTART = "next", "abort", "restart"
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 1]), st.sampled_from([*[NEXT] * 6, ABORT, RESTART])),
    max_size=40,
)


class Run:
    """One run of a query from its checkpoint, which is `log`: batches that are done."""

    def __init__(self, by_hand: ByHand, topic: str, log: set[int]) -> None:
        self._by_hand, self._topic, self._log = by_hand, topic, log
        self.restart()

    def restart(self) -> None:
        """Goes on from the checkpoint."""
        self.batch = len(self._log)
        self._sent: bytes | None = None
        self._stored: list[StoredForBatch] | None = None
        self._is_committed = False

    def step(self, step: str) -> None:
        """Does that, where Spark would do it now."""
        if step == RESTART:
            self.restart()
        elif step == ABORT:
            self._abort()
        elif self._sent is None:
            self._sent = self._by_hand.planned(self._topic)
        elif self._stored is None:
            self._store(self._sent)
        elif not self._is_committed:
            self._commit(self._stored)
        else:
            self._log.add(self.batch)
            self.restart()

    def _abort(self) -> None:
        if self._stored is not None and not self._is_committed:
            self._by_hand.sink(self._topic).abort([None, *self._stored], self.batch)
            self.restart()

    def _store(self, sent: bytes) -> None:
        rows = [f"{self.batch}.{row}" for row in range(TASKS * ROWS_A_TASK)]
        try:
            written(sent, "of an attempt that is not accepted")
            self._stored = [written(sent, *rows[:2]), written(sent, *rows[2:])]
        except TransactionRefused:
            self.restart()

    def _commit(self, stored: list[StoredForBatch]) -> None:
        try:
            self._by_hand.commit(self._topic, stored, self.batch)
        except TransactionRefused:
            self._by_hand.sink(self._topic).abort([*stored], self.batch)
            self.restart()
        else:
            self._is_committed = True

    def whole(self) -> None:
        """One more batch, with nobody who disturbs."""
        self.restart()
        for _ in range(4):
            self.step(NEXT)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_two_runs_in_any_order_publish_every_batch_once_and_in_order(
    by_hand: ByHand, steps: list[tuple[int, str]]
) -> None:
    topic, log = f"t{time.monotonic_ns()}", set[int]()
    by_hand.messaging.create_topic(topic)
    runs = [Run(by_hand, topic, log) for _ in range(2)]
    for number, step in steps:
        runs[number].step(step)
    runs[0].whole()
    assert by_hand.published(topic) == [
        f"{batch}.{row}" for batch in range(len(log)) for row in range(4)
    ]
    by_hand.messaging.delete_topic(topic)


# A checkpoint that was restored from an earlier copy


def test_a_batch_below_one_that_is_published_is_refused_and_not_dropped(
    by_hand: ByHand,
) -> None:
    for batch, row in enumerate("abc"):
        by_hand.commit("t", by_hand.stored("t", row), batch)
    told = r"batch 1 for topic t comes after batch 2 .* restored from an earlier copy"
    with pytest.raises(BadRequest, match=told):
        by_hand.commit("t", by_hand.stored("t", "other"), 1)
    assert by_hand.published("t") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (("a",), "with 2 rows, and comes again with 1"),
        (("a", "b", "c"), "with 2 rows, and comes again with 3"),
        (("a", "c"), "with 2 rows, and comes again with as many others"),
    ],
)
def test_the_number_of_a_batch_that_is_published_with_other_rows_is_refused(
    by_hand: ByHand, other: tuple[str, ...], told: str
) -> None:
    by_hand.commit("t", by_hand.stored("t", "a", "b"), 0)
    stored = by_hand.stored("t", *other)
    with pytest.raises(BadRequest, match=told):
        by_hand.commit("t", stored, 0)
    by_hand.sink("t").abort([*stored], 0)
    snapshot = by_hand.messaging.coordinator.snapshot()
    assert stored[0].receipts[0].pointer not in snapshot.in_progress
    assert by_hand.published("t") == ["a", "b"]


def test_a_repeat_is_one_however_its_rows_come_to_tasks(by_hand: ByHand) -> None:
    by_hand.commit("t", by_hand.stored("t", "a", "b", "c"), 0)
    by_hand.commit("t", by_hand.stored("t", "c", "a", "b", tasks=3), 0)
    assert sorted(by_hand.published("t")) == ["a", "b", "c"]


def test_rows_for_another_topic_are_other_rows(by_hand: ByHand) -> None:
    by_hand.messaging.create_topic("elsewhere")
    by_hand.commit("t", by_hand.stored("t", "a"), 0)
    sent = by_hand.planned("t")
    rows = pa.RecordBatch.from_pydict({"payload": ["a"], "topic": ["elsewhere"]})
    sink: StreamSink = pickle.loads(sent)
    with pytest.raises(BadRequest, match="as many others"):
        by_hand.commit("t", [sink.write(iter([rows]))], 0)
    by_hand.messaging.delete_topic("elsewhere")


def test_a_name_that_is_new_publishes_what_a_restored_checkpoint_has(
    by_hand: ByHand,
) -> None:
    for batch, row in enumerate("ab"):
        by_hand.commit("t", by_hand.stored("t", row), batch)
    again = by_hand.stored("t", "other")
    for _ in range(2):
        by_hand.sink("t", name="restored").commit([*again], 0)
        again = by_hand.stored("t", "other")
    assert by_hand.published("t") == ["a", "b", "other"]


def test_a_query_that_computes_other_rows_may_go_by_the_number(
    by_hand: ByHand,
) -> None:
    by_hand.commit("t", by_hand.stored("t", "12:00"), 0)
    option = {"repeat_by": "number"}
    by_hand.sink("t", **option).commit([*by_hand.stored("t", "12:01")], 0)
    by_hand.commit("t", by_hand.stored("t", "b"), 1)
    with pytest.raises(BadRequest, match="comes after batch 1"):
        by_hand.sink("t", **option).commit([*by_hand.stored("t", "12:02")], 0)
    assert by_hand.published("t") == ["12:00", "b"]


def test_a_marker_of_the_earlier_version_is_a_number_only(by_hand: ByHand) -> None:
    """It had no rows beside it; and its number counts, whatever stands there."""
    query_id = stream_sink._query_id()
    for batch, row in enumerate("ab"):
        by_hand.commit("t", by_hand.stored("t", row), batch)
    with by_hand.messaging.transaction() as tx:
        once = committing.Once("t", f"spark-{query_id}", 7)
        once.mark_done(by_hand.messaging, tx.transaction)
    by_hand.commit("t", by_hand.stored("t", "other"), 7)  # a repeat, as before
    with pytest.raises(BadRequest, match="comes after batch 7"):
        by_hand.commit("t", by_hand.stored("t", "c"), 6)
    by_hand.commit("t", by_hand.stored("t", "c"), 8)
    with pytest.raises(BadRequest, match="as many others"):
        by_hand.commit("t", by_hand.stored("t", "other"), 8)
    assert by_hand.published("t") == ["a", "b", "c"]


@given(st.lists(st.binary(max_size=4), max_size=8), st.randoms())
def test_an_extent_is_that_of_its_rows_in_any_order_and_any_parts(
    payloads: list[bytes], random: Any
) -> None:
    shuffled = random.sample(payloads, len(payloads))
    cut = random.randint(0, len(payloads))
    parts = [Extent.of("t", shuffled[:cut]), Extent.of("t", shuffled[cut:])]
    assert sum(parts, Extent()) == Extent.of("t", payloads)
    assert 0 <= Extent.of("t", payloads).digest < 2**32


def test_rows_that_have_exchanged_parts_have_another_digest() -> None:
    digests = set()
    for first, second in itertools.permutations("0123456789abcdef", 2):
        rows = [f"user-a {first}".encode(), f"user-b {second}".encode()]
        digests.add(Extent.of("t", rows).digest)
    assert len(digests) == 16 * 15


def test_a_name_and_how_a_repeat_is_known_are_looked_at(by_hand: ByHand) -> None:
    with pytest.raises(BadRequest, match="no group name"):
        by_hand.sink("t", name="a b")
    with pytest.raises(BadRequest, match=r"does not end with \.\.rows"):
        by_hand.sink("t", name="a..rows")
    with pytest.raises(BadRequest, match="repeat_by is rows or number, not 'time'"):
        by_hand.sink("t", repeat_by="time")
