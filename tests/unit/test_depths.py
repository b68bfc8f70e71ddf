"""Counting rows of topics a bounded number at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.doubles import Clock
from txaware.errors import TopicNotFound
from txaware.model.messages import Bounds, MessageId
from txaware.service.monitor import row_counts as depths
from txaware.service.monitor.row_counts import RowCounts
from txaware.service.monitor.turns import Failures
from txaware.store.keys import MESSAGE, row_key
from txaware.store.memory import MemoryTable


class Topics:
    """Topics in a table whose rows have the numbers from `first` to before `next`."""

    def __init__(self) -> None:
        self.table = MemoryTable(clock_ms=Clock())
        self.first: dict[str, int] = {}
        self.next: dict[str, int] = {}
        self.depths = RowCounts(self.table, self.prefix)

    def prefix(self, topic: str) -> bytes:
        if topic not in self.next:
            raise TopicNotFound(topic)
        return topic.encode()

    def add(self, topic: str, count: int, *, payload: bytes = b"p") -> None:
        first = self.next.setdefault(topic, 1)
        self.first.setdefault(topic, 1)
        self.next[topic] = first + count
        prefix = MESSAGE + topic.encode()
        for number in range(first, first + count):
            self.table.submit([(prefix + row_key(number), payload)])

    def bounds(self) -> dict[str, Bounds]:
        found = {}
        for topic, stop in self.next.items():
            first = self.first[topic]
            empty = first >= stop
            found[topic] = Bounds(
                None if empty else MessageId.of(first),
                None if empty else MessageId.of(stop - 1),
                MessageId.of(stop),
            )
        return found

    def rows(self, topic: str = "t") -> int | None:
        self.depths.look(self.bounds(), Failures(reads_wait=False))
        return self.depths.rows(topic)


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Topics:
    monkeypatch.setattr(depths, "STEP_ROWS", 10)
    return Topics()


def test_rows_that_come_and_go_are_counted(topics: Topics) -> None:
    topics.add("t", 0)
    assert topics.rows() == 0
    topics.add("t", 95)
    assert topics.rows() == 95
    topics.add("t", 8)
    topics.first["t"] = 48
    assert topics.rows() == 56
    topics.first["t"] = 103
    assert topics.rows() == 1
    topics.first["t"] = 104
    assert topics.rows() == 0
    topics.add("t", 31)
    assert topics.rows() == 31
    assert topics.rows("nobody") is None


@given(st.lists(st.tuples(st.integers(0, 35), st.integers(0, 35)), max_size=12))
def test_the_count_is_exact_whatever_comes_and_goes(
    changes: list[tuple[int, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depths, "STEP_ROWS", 10)
        topics = Topics()
        for came, went in changes:
            topics.add("t", came)
            topics.first["t"] = min(topics.first["t"] + went, topics.next["t"])
            assert topics.rows() == topics.next["t"] - topics.first["t"]


def test_a_round_reads_so_much_and_the_next_goes_on(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depths, "ROWS", 100)
    topics.add("a", 250)
    topics.add("b", 30)
    counted = [(topics.rows("a"), topics.depths.rows("b")) for _ in range(5)]
    assert counted == [(100, None), (170, 30), (250, 30), (250, 30), (250, 30)]


def test_large_rows_count_for_more(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depths, "ROWS", 100)
    topics.add("t", 20, payload=bytes(100_000))
    assert 0 < (topics.rows() or 0) < 20


def test_a_topic_that_is_gone_or_new_again_is_counted_anew(topics: Topics) -> None:
    topics.add("t", 12)
    assert topics.rows() == 12
    del topics.next["t"]
    failures = Failures(reads_wait=False)
    topics.depths.look({"t": Bounds(None, None, MessageId.of(1))}, failures)
    assert topics.depths.rows("t") is None
    topics.depths.look({}, failures)
    assert topics.depths.rows("t") is None
