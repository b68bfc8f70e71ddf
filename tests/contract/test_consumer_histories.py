"""Any history of publishers and consumers: nothing skipped, nothing twice, in order."""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.transaction import Transaction
from tests.support.consume_child import POINTS, work
from tests.support.consume_setting import Setting, in_transaction, run_in_thread, texts
from tests.support.doubles import Clock
from txaware.consume import Consumer
from txaware.errors import TransactionConflict


def store(here: Setting, *payloads: str) -> None:
    """Publishes by a reference to what was stored, in a transaction of its own."""
    tx = here.embedded.start_short()
    here.inner.store("t", [each.encode() for each in payloads], transaction=tx)
    here.inner.publish("t", [], transaction=tx)
    here.embedded.can_commit(tx, [])
    here.embedded.commit(tx)


@pytest.mark.parametrize("limit", range(1, 9))
def test_pages_may_start_and_end_inside_an_expansion(
    here: Setting, group: str | None, limit: int
) -> None:
    here.publish("a")
    store(here, *"bcd")
    store(here, *"ef")
    here.publish("g")
    consumer = here.consumer(group=group)
    polled: list[str] = []
    while page := in_transaction(here, consumer, limit=limit):
        assert len(page) <= limit
        polled += page
    assert polled == [*"abcdefg"]


def test_a_rollback_inside_an_expansion_goes_back_to_where_it_was(
    here: Setting, group: str | None
) -> None:
    store(here, *"abcd")
    consumer = here.consumer(group=group)
    assert in_transaction(here, consumer, limit=1) == ["a"]
    with here.transaction() as tx:
        assert texts(consumer.poll(limit=2)) == ["b", "c"]
        tx.abort()
    assert in_transaction(here, consumer) == ["b", "c", "d"]


def test_last_and_seek_find_the_inside_of_an_expansion(here: Setting) -> None:
    store(here, *"abcd")
    page = here.inner.poll("t")
    consumer = here.consumer(start="last")
    assert texts(consumer.poll()) == [*"abcd"], "its row is the last one"
    consumer.seek(page[2].id)
    assert texts(consumer.poll()) == [*"cd"]
    consumer.seek(page[2].id, inclusive=False)
    assert texts(consumer.poll()) == ["d"]


def test_what_expired_unseen_is_warned_of_and_idle_members_do_not_move(
    group: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    with Setting.at("memory:", Path(), clock_ms=clock) as here:
        here.inner.update_topic("t", ttl_s=10)
        here.publish("a")
        consumer = here.consumer(group=group, clock_ms=clock)
        assert in_transaction(here, consumer) == ["a"]
        here.publish("b")
        clock.advance_s(20)
        moved = here.service.calls.count("save_position")
        for _ in range(3):
            clock.advance_s(1)
            assert in_transaction(here, consumer) == []
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert here.service.calls.count("save_position") == moved
        clock.advance_s(9)
        assert in_transaction(here, consumer) == []
        clock.advance_s(9)
        here.publish("c")
        assert in_transaction(here, consumer) == ["c"]
        assert len(caplog.records) == 1, "it stood at the end and missed nothing"


@pytest.fixture
def expiring() -> Iterator[tuple[Setting, Clock]]:
    clock = Clock()
    with Setting.at("memory:", Path(), clock_ms=clock) as here:
        here.inner.update_topic("t", ttl_s=10)
        here.publish("a")
        yield here, clock


def test_what_expired_while_it_was_blocked_is_warned_of(
    expiring: tuple[Setting, Clock], caplog: pytest.LogCaptureFixture
) -> None:
    here, clock = expiring
    consumer = here.consumer(clock_ms=clock)
    consumer.poll()
    blocker = here.embedded.start_short()
    here.publish("b", transaction=blocker)
    here.publish("c")
    clock.advance_s(9)
    assert consumer.poll() == []
    assert consumer.blocked_by is not None
    assert not caplog.records
    clock.advance_s(6)
    assert consumer.poll() == []
    assert len(caplog.records) == 1
    here.embedded.abort(blocker)


def test_what_expired_after_a_rollback_is_warned_of(
    expiring: tuple[Setting, Clock],
    group: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    here, clock = expiring
    consumer = here.consumer(group=group, clock_ms=clock)
    in_transaction(here, consumer)
    here.publish("b")
    clock.advance_s(9)
    with here.transaction() as tx:
        assert [texts(consumer.poll()) for _ in range(2)] == [["b"], []]
        tx.abort()
    clock.advance_s(6)
    assert in_transaction(here, consumer) == []
    assert len(caplog.records) == 1


def test_who_begins_at_the_beginning_is_not_warned(
    expiring: tuple[Setting, Clock],
    group: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    here, clock = expiring
    clock.advance_s(20)
    here.publish("b")
    consumer = here.consumer(group=group, clock_ms=clock)
    assert in_transaction(here, consumer) == ["b"]
    with here.transaction():
        consumer.seek("first")
        assert texts(consumer.poll()) == ["b"]
    assert not caplog.records


# Scenario 83, at every point.


@pytest.mark.parametrize("point", POINTS)
def test_a_member_that_is_killed_leaves_effects_once(
    point: str, tmp_path: Path
) -> None:
    with Setting.at("leveldb:", tmp_path) as here:
        here.inner.create_topic("done")
        here.publish(*"012345")
    child = [sys.executable, "-m", "tests.support.consume_child", str(tmp_path), point]
    killed = subprocess.run(child, timeout=60, check=False, capture_output=True)
    assert killed.returncode == -9, killed.stderr.decode()
    with Setting.at("leveldb:", tmp_path, create=False) as here:
        assert here.saved() == ("3" if point == "after commit" else "1")
        work(here, "never")
        assert here.committed("done") == [*"012345"]
        assert here.saved() == "5"


# Random histories.


class History:
    """Publishers of all kinds, and one line of consumers, on one topic."""

    def __init__(self, here: Setting, group: str | None) -> None:
        self.here = here
        self.seen: list[str] = []
        self._names = (str(number) for number in itertools.count())
        self._committed: set[str] = set()
        self._open: list[tuple[Transaction, list[str], list[Any]]] = []
        self._group = group
        self.consumers: list[Consumer] = [here.consumer(group=group)]
        if group is not None:
            self.consumers.append(here.consumer(group=group))

    def step(self, kind: str, number: int, choice: int) -> None:
        getattr(self, kind)(number, choice)

    def plain(self, count: int, _: int) -> None:
        names = list(itertools.islice(self._names, count))
        self.here.publish(*names)
        self._committed.update(names)

    def begin(self, _: int, __: int) -> None:
        self._open.append((self.here.embedded.start_short(), [], []))

    def publish(self, count: int, choice: int) -> None:
        if self._open:
            tx, names, responses = self._open[choice % len(self._open)]
            new = list(itertools.islice(self._names, count))
            names += new
            responses.append(self.here.publish(*new, transaction=tx))

    def store(self, count: int, choice: int) -> None:
        if self._open:
            tx, names, responses = self._open[choice % len(self._open)]
            new = list(itertools.islice(self._names, count))
            names += new
            payloads = [name.encode() for name in new]
            receipt = self.here.inner.store(
                "t", payloads, transaction=tx, attempt=payloads[0]
            )
            response = self.here.inner.publish(
                "t", [], transaction=tx, receipts=[receipt]
            )
            responses.append(response)

    def end(self, how: int, choice: int) -> None:
        if not self._open:
            return
        tx, names, responses = self._open.pop(choice % len(self._open))
        if how % 3 == 0:
            for response in responses:
                self.here.inner.rollback("t", response)
            self.here.embedded.abort(tx)
        elif how % 3 == 1:
            self.here.embedded.invalidate(tx)
        else:
            self.here.embedded.can_commit(tx, [])
            self.here.embedded.commit(tx)
            self._committed.update(names)

    def consume(self, limit: int, choice: int) -> None:
        consumer = self.consumers[choice % len(self.consumers)]
        polled: list[str] = []
        with self.here.transaction() as tx:
            for _ in range(choice % 3 + 1):
                page = consumer.poll(limit)
                if choice % 5 == 4 and len(page) > 1:
                    page[-1:] = []
                    consumer.seek(page[-1].id, inclusive=False)
                polled += texts(page)
            if choice % 4 == 3:
                tx.abort()
                polled = []
        self.seen += polled

    def overtake(self, limit: int, choice: int) -> None:
        """Another member commits first; the slower one gets nothing."""
        if self._group is None:
            return
        slow, fast = self.consumers
        polled: list[str] = []
        first: list[str] = []
        try:
            with self.here.transaction():
                polled = texts(slow.poll(limit))
                first = run_in_thread(
                    lambda: in_transaction(self.here, fast, limit=choice % 4 + 1)
                )
        except TransactionConflict:
            # Also where both only went past what was rolled back.
            polled = []
        else:
            assert not (first and polled)
        self.seen += first + polled

    def outside(self, limit: int, choice: int) -> None:
        consumer = self.consumers[choice % len(self.consumers)]
        polled = texts(consumer.poll(limit))
        if self._group is not None:
            if choice % 3 == 0:
                consumer.rollback()
                return
            consumer.commit()
        self.seen += polled

    def finish(self) -> None:
        while self._open:
            self.end(len(self._open), 0)
        while page := in_transaction(self.here, self.consumers[0], limit=3):
            self.seen += page
        everything = texts(self.here.inner.poll("t", limit=10_000))
        expected = [name for name in everything if name in self._committed]
        assert self.seen == expected


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("plain", "begin", "begin", "publish", "publish", "store", "end"),
                *("end", "consume", "consume", "consume", "outside", "overtake"),
            ]
        ),
        st.integers(1, 6),
        st.integers(0, 60),
    ),
    max_size=40,
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_what_committed_consumers_saw_is_what_was_committed_once_and_in_order(
    group: str | None, steps: list[tuple[str, int, int]]
) -> None:
    with Setting.at("memory:", Path()) as here:
        history = History(here, group)
        for step in steps:
            history.step(*step)
        history.finish()
