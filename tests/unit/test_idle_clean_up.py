"""A clean-up of many topics in HBase looks once for all, and leaves nothing due out."""

import random
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator import EmbeddedCoordinator
from tests.support.doubles import Clock
from tests.support.fake_hbase import FakeHBase
from tests.support.hbase_faults import Request, refused
from tests.support.hbase_owners import Owner, close, made
from txaware.model.interfaces import Emptiness, Write
from txaware.model.reports import CleanUp
from txaware.model.settings import Settings
from txaware.model.topics import Topic, TopicName, data_prefix
from txaware.service.retention import planning
from txaware.service.retention.clean_up import Retention
from txaware.service.retention.clean_up_plan import Plan
from txaware.service.retention.planning import Planning
from txaware.service.store_context import StoreContext
from txaware.store.columns import value_head
from txaware.store.hbase import table as hbase_table
from txaware.store.hbase.table import HBaseTable
from txaware.store.keys import MARK, MESSAGE, PAYLOAD, pointer_key, row_key, topic_key
from txaware.store.outline import Outline

HOUR_MS, TTL_S = 3_600_000, 3600
PLAIN = value_head(None)


class Store:
    """A table in a fake HBase, whose calls are counted, and a clean-up of it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.owner = Owner(made(FakeHBase(self.clock)), self.clock)
        self.table: HBaseTable = self.owner.table()
        self.coordinator = EmbeddedCoordinator(
            self.table.journal, clock_ms=self.table.clock.now_ms
        )
        barrier = self.coordinator.barrier
        site = StoreContext(
            self.table, self.coordinator, barrier, Settings(), self.clock
        )
        self.retention = Retention(site)

    @property
    def calls(self) -> int:
        return self.owner.way.number

    def write(self, writes: list[Write]) -> None:
        for at in range(0, len(writes), 1000):
            self.table.submit(writes[at : at + 1000])()

    def close(self) -> None:
        self.coordinator.close()
        close(self.table)


@pytest.fixture
def store() -> Iterator[Store]:
    found = Store()
    yield found
    found.close()


def topics(count: int) -> list[Topic]:
    return [Topic(TopicName(f"t{n:05}"), 1, TTL_S) for n in range(count)]


def rows_of(topic: Topic) -> Write:
    return topic_key(topic.topic), topic.to_bytes()


def message(topic: Topic, time_ms: int, sequence: int = 0) -> Write:
    return MESSAGE + topic.prefix + row_key(time_ms, sequence), PLAIN + b"x"


def test_idle_topics_cost_some_calls_for_all_and_not_a_hundred_each(
    store: Store,
) -> None:
    made_ones = topics(400)
    now_ms = store.clock()
    store.write([rows_of(topic) for topic in made_ones])
    store.write([message(topic, now_ms - n) for n, topic in enumerate(made_ones)])
    for _ in range(2):
        before = store.calls
        assert store.retention.clean_up() == CleanUp(topics=400)
        assert store.calls - before < 400


def test_what_is_due_in_one_of_many_goes(store: Store) -> None:
    made_ones = topics(100)
    now_ms = store.clock()
    store.write([rows_of(topic) for topic in made_ones])
    store.write([message(topic, now_ms) for topic in made_ones])
    store.write([message(made_ones[50], now_ms - 2 * HOUR_MS)])
    assert store.retention.clean_up().expired_messages == 1
    store.clock.advance_s(TTL_S + 1)
    assert store.retention.clean_up().expired_messages == 100
    assert store.retention.clean_up().expired_messages == 0


def test_topics_with_very_many_rows_are_given_up_on_and_looked_into(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hbase_table, "PAGE_ROWS", 2)
    monkeypatch.setattr(hbase_table, "FREE_PAGES", 1)
    made_ones = topics(40)
    now_ms = store.clock()
    store.write([rows_of(topic) for topic in made_ones])
    for topic in made_ones:
        store.write([message(topic, now_ms, n) for n in range(9)])
    store.write([message(made_ones[-1], now_ms - 2 * HOUR_MS)])
    outline = store.table.outline(MESSAGE)
    assert outline._unknown_from is not None
    before = store.calls
    assert store.retention.clean_up().expired_messages == 1
    first = store.calls - before
    before = store.calls
    assert store.retention.clean_up().expired_messages == 0
    assert store.calls - before < first / 2  # when the first of each expires is known


def test_while_hbase_refuses_the_look_each_topic_is_looked_into(store: Store) -> None:
    """One region that is away keeps no other topic from its clean-up."""
    made_ones = topics(20)
    store.write([rows_of(topic) for topic in made_ones])
    store.write([message(made_ones[3], store.clock() - 2 * HOUR_MS)])

    def fault(_: int, request: Request) -> Any:
        if request.name != "scannerOpenWithScan":
            return None
        return refused if request.arguments[1].filterString else None

    store.owner.way.fault = fault
    assert store.retention.clean_up().expired_messages == 1


# A few topics and generations, times, tables and sizes, so that all that can be near
# the bounds of a look is near them often.
ROWS = st.tuples(
    st.sampled_from([MESSAGE, MESSAGE, PAYLOAD, MARK]),
    st.integers(0, 5),
    st.integers(1, 3),
    st.integers(0, 40),
    st.integers(1, 6),
)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(ROWS, min_size=3, max_size=40),
    generations=st.lists(st.sampled_from([1, 2, 3, -1, -2]), min_size=6, max_size=6),
    page=st.sampled_from([1, 1, 2, 4]),
    free=st.sampled_from([0, 0, 1, 3]),
    held=st.booleans(),
    invalid=st.booleans(),
    seed=st.integers(0, 9),
)
def test_the_plan_is_the_one_that_looks_into_every_topic(
    rows: list[tuple[bytes, int, int, int, int]],
    generations: list[int],
    page: int,
    free: int,
    held: bool,
    invalid: bool,
    seed: int,
) -> None:
    store = Store()
    chance = random.Random(seed)
    named = [TopicName(f"t{n}") for n in range(6)]
    all_ = [
        Topic(name, generation, TTL_S)
        for name, generation in zip(named, generations, strict=True)
    ]
    now_ms = store.clock()
    extra = Topic(TopicName("extra"), 1, TTL_S)
    all_.append(extra)
    writes: dict[bytes, bytes] = {}
    for tag, number, generation, minutes, count in rows:
        generation = min(generation, abs(generations[number]))
        prefix = tag + data_prefix(named[number], generation)
        for sequence in range(count):
            time_ms = now_ms - minutes * HOUR_MS // 10
            end = row_key(time_ms, sequence)
            pointer = pointer_key(time_ms * 1_000_000)
            tail = {MESSAGE: end, PAYLOAD: pointer + end, MARK: pointer}[tag]
            writes[prefix + tail] = PLAIN + b"x" if tag != MARK else b""
    store.write([rows_of(topic) for topic in all_])
    store.write(list(writes.items()))
    tx = store.coordinator.start_short()
    if held:
        topic = chance.choice([one for one in all_ if one.generation > 0] or [extra])
        key = MESSAGE + topic.prefix + row_key(now_ms)
        row = value_head(tx.transaction_id) + b"held"
        store.table.hold(tx.transaction_id, [(key, row)])
    if invalid:
        store.coordinator.invalidate(tx)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hbase_table, "PAGE_ROWS", page)
        patch.setattr(hbase_table, "FREE_PAGES", free)
        patch.setattr(planning, "FEW_TOPICS", 0)
        seen = planned(store, all_)
        patch.setattr(HBaseTable, "outline", lambda *_: None)
        assert planned(store, all_).pieces == seen.pieces
    store.close()


def test_a_row_of_an_open_transaction_is_seen_before_it_is_in_hbase(
    store: Store,
) -> None:
    (topic,) = topics(1)
    tx = store.coordinator.start_short()
    key, _ = message(topic, store.clock())
    row = value_head(tx.transaction_id) + b"held"
    assert store.table.hold(tx.transaction_id, [(key, row)])
    assert not store.owner.way.hbase.tables[b"t_messages"]
    assert store.table.outline(MESSAGE).may_have(MESSAGE + topic.prefix, b"", None)


def planned(store: Store, topics: list[Topic]) -> Plan:
    made_one: Planning = attrs.evolve(store.retention._planning, firsts={})
    snapshot = store.coordinator.snapshot()
    return made_one.plan(topics, snapshot, now_ms=store.clock(), pieces=1)


def test_an_outline_knows_only_what_was_looked_at() -> None:
    one = data_prefix(TopicName("a"), 1)
    two = data_prefix(TopicName("b"), 1)
    outline = Outline()
    outline.saw([MESSAGE + one + row_key(5), MESSAGE + one + row_key(9)])
    may_have: Emptiness = outline
    inside = (MESSAGE + one, row_key(5), row_key(6))
    assert may_have.may_have(*inside)
    assert may_have.may_have(MESSAGE + one, row_key(9), row_key(10))
    assert not may_have.may_have(MESSAGE + one, b"", row_key(5))
    assert not may_have.may_have(MESSAGE + one, row_key(10), None)
    assert not may_have.may_have(MESSAGE + two, b"", None)
    assert may_have.may_have(MESSAGE + TopicName("a").key, b"", bytes([0, 0, 0, 2]))
    assert not may_have.may_have(MESSAGE + TopicName("a").key, b"", bytes(4))
    outline.passed_over(MESSAGE + one)
    assert may_have.may_have(MESSAGE + one, row_key(10), None)
    outline.saw([MESSAGE + b"no topic"])
    assert may_have.may_have(MESSAGE + two, b"", None) == (two > b"no topic")
