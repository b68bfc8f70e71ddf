"""What is remembered of topics is what was set last, whoever reads meanwhile."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from tests.support.doubles import Clock
from txaware.errors import TopicExists
from txaware.model.interfaces import Row
from txaware.model.topics import Topic, TopicName
from txaware.store.memory import MemoryTable
from txaware.store.topic_table import TopicTable

A, B = TopicName("a"), TopicName("b")


class SlowTable(MemoryTable):
    """Does something else before it answers; counts how often it was asked."""

    def __init__(self) -> None:
        super().__init__(clock_ms=Clock())
        self.asked = 0
        self.meanwhile: Callable[[], object] | None = None

    def get(self, key: bytes) -> bytes | None:
        value = super().get(key)
        self._answers()
        return value

    def scan(self, prefix: bytes, **options: Any) -> list[Row]:
        rows = super().scan(prefix, **options)
        self._answers()
        return rows

    def _answers(self) -> None:
        self.asked += 1
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()


def reopened() -> tuple[SlowTable, TopicTable]:
    """Two topics, of which nothing is remembered."""
    table = SlowTable()
    for name in (A, B):
        TopicTable(table).create(Topic(name, 1))
    table.asked = 0
    return table, TopicTable(table)


def test_topics_that_are_read_at_the_same_time_are_both_remembered() -> None:
    table, topics = reopened()
    table.meanwhile = lambda: topics.get(B)
    topics.get(A)
    assert table.asked == 2
    assert (topics.get(A).topic, topics.get(B).topic) == (A, B)
    assert table.asked == 2


def of_five_seconds(topic: Topic) -> Topic:
    return attrs.evolve(topic, ttl_s=5)


def test_what_was_read_before_a_change_is_not_remembered_after_it() -> None:
    table, topics = reopened()
    table.meanwhile = lambda: topics.update(A, of_five_seconds)
    assert topics.get(A).ttl_s != 5  # it was read before
    assert topics.get(A).ttl_s == 5


def test_what_is_read_while_a_topic_changes_is_not_remembered() -> None:
    table, topics = reopened()
    table.meanwhile = lambda: topics.get(B)
    topics.update(A, of_five_seconds)
    assert topics.remembered(B) is None
    assert topics.remembered(A) is not None


def test_a_topic_that_could_not_be_made_is_remembered_as_it_is() -> None:
    table, topics = reopened()
    with pytest.raises(TopicExists):
        topics.create(Topic(A, 1))
    topics.get(A)
    table.asked = 0
    assert topics.get(A).topic == A
    assert table.asked == 0


def test_a_refused_change_leaves_the_doubt_of_one_before() -> None:
    _, topics = reopened()
    topics._in_doubt.add(A)  # as an interrupted change leaves it
    with pytest.raises(TopicExists):
        topics.create(Topic(A, 1))
    for _ in range(2):
        topics.get(A)
    assert topics.remembered(A) is None


def test_all_topics_are_read_once_and_anew_after_a_change() -> None:
    table, topics = reopened()
    assert [topic.topic for topic in topics.listed()] == [A, B]
    table.asked = 0
    topics.listed()
    assert table.asked == 0
    topics.update(A, of_five_seconds)
    assert [topic.ttl_s == 5 for topic in topics.listed()] == [True, False]
    topics.delete(B)
    assert [topic.generation for topic in topics.listed()] == [1, -1]


def test_a_list_that_was_read_before_a_change_is_not_kept() -> None:
    table, topics = reopened()
    table.meanwhile = lambda: topics.update(A, of_five_seconds)
    assert topics.listed()[0].ttl_s != 5  # it was read before
    assert topics.listed()[0].ttl_s == 5


def test_while_a_change_is_in_doubt_all_topics_are_read_each_time() -> None:
    table, topics = reopened()
    topics._in_doubt.add(A)  # as an interrupted change leaves it
    topics.listed()
    TopicTable(table).update(A, of_five_seconds)  # as it comes late
    assert topics.listed()[0].ttl_s == 5
