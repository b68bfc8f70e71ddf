"""The stream source without a JVM: micro-batches, limits, topics that come and go."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.messagings import Site, commit, payloads, publish
from tests.support.spark_histories import (
    RANDOM,
    TINY,
    Action,
    History,
    Query,
    histories,
    in_new_topics,
    polled,
)
from txaware.auth import EVERYTHING, Principal, Tokens, new_token
from txaware.auth.rights import NamePattern
from txaware.errors import NotAuthorized
from txaware.model.messages import MessageId
from txaware.service.administration import Administration


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], History]]:
    """Histories, each in a new topic, where pages are small."""
    yield from in_new_topics(Site("http", tmp_path_factory.mktemp("site"), **TINY))


limits = st.sampled_from(
    [
        {},
        {"max_messages": 1},
        {"max_messages": 4},
        {"max_bytes": 100},
        {"max_messages": 3, "max_bytes": 150},
    ]
)


@settings(RANDOM, max_examples=20)
@given(rounds=st.lists(histories, max_size=4), limit=limits, how=st.booleans())
def test_micro_batches_together_are_what_one_reader_gets_and_repeat(
    tiny: Callable[[], History],
    rounds: list[list[Action]],
    limit: dict[str, int],
    how: bool,
) -> None:
    history = tiny()
    query = Query(history, part_bytes=50, **limit)
    for actions in rounds:
        for action in actions:
            history.do(*action)
        query.trigger()
    history.end_all("commit" if how else "invalidate")
    while query.trigger():
        pass
    snapshot = history.site.embedded.coordinator.snapshot()
    expected = polled(history.site.messaging, history.topic, snapshot)
    assert query.read == payloads(expected)
    for start, end, rows in query.batches:
        assert query.rows(start, end) == rows
        assert len(rows) <= limit.get("max_messages", len(rows))
        if len(rows) > 1:
            assert sum(map(len, rows)) <= limit.get("max_bytes", 10**6)


def over(site: Site, **options: object) -> Query:
    return Query(History(site, "t"), topic=None, **options)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Site]:
    """A site that sources can open by its address."""
    site = Site("http", tmp_path)
    yield site
    site.close()


def test_several_topics_share_a_limit_and_none_waits_for_ever(served: Site) -> None:
    for topic in ("a", "b", "c"):
        served.messaging.create_topic(topic)
    in_order = [b"%c%d" % (topic, number) for number in range(4) for topic in b"abc"]
    for payload in in_order:
        served.messaging.publish(payload[:1].decode(), [payload])
        served.clock.advance_s(1)
    query = over(served, topics="c,a,b", max_messages=1)
    while query.trigger():
        assert len(query.batches[-1][2]) <= 1
    assert sorted(query.read) == sorted(in_order)
    for count in range(len(in_order)):
        read = Counter(payload[:1] for payload in query.read[:count])
        assert max(read[one] - read[b"c"] for one in (b"a", b"b")) <= 2
    query = over(served, topics="c,a,b", max_messages=6)
    while query.trigger():
        pass
    assert [len(rows) for _, _, rows in query.batches if rows] == [6, 6]


def test_a_limit_of_bytes_holds_for_all_topics_together(served: Site) -> None:
    for topic in ("a", "b", "c"):
        served.messaging.create_topic(topic)
        served.messaging.publish(topic, [b"12345678"] * 2)
    query = over(served, topics="a,b,c", max_bytes=10)
    while query.trigger():
        pass
    assert [len(rows) for _, _, rows in query.batches if rows] == [1] * 6


def test_a_topic_that_comes_later_is_read_from_its_beginning(served: Site) -> None:
    served.messaging.create_topic("a")
    query = over(served, topic_pattern="*", start="next", max_messages=1)
    served.messaging.create_topic("b")
    served.messaging.publish("b", [b"first", b"second"])
    query.trigger()
    assert query.read == [b"first"]
    query.trigger()
    assert query.read == [b"first", b"second"]


def test_a_topic_that_comes_later_begins_at_the_time_that_was_asked_for(
    served: Site,
) -> None:
    served.messaging.create_topic("a")
    query = over(served, topic_pattern="*", start=served.clock.now_ms + 1000)
    served.messaging.create_topic("b")
    served.messaging.publish("b", [b"early"])
    served.clock.advance_s(2)
    served.messaging.publish("b", [b"late"])
    query.trigger()
    assert query.read == [b"late"]


def test_a_topic_that_was_deleted_and_created_again_goes_on(served: Site) -> None:
    served.messaging.create_topic("a")
    query = over(served, topic_pattern="*")
    served.messaging.publish("a", [b"old"])
    query.trigger()
    served.messaging.delete_topic("a")
    query.trigger()
    served.messaging.create_topic("a")
    served.messaging.publish("a", [b"new"])
    query.trigger()
    served.messaging.delete_topic("a")
    served.messaging.create_topic("a")
    served.messaging.publish("a", [b"newer"])
    query.trigger()
    assert query.read == [b"old", b"new", b"newer"]
    assert not query.trigger()


def test_rows_of_a_topic_that_may_not_be_read_any_more_are_not_passed_over(
    served: Site,
) -> None:
    for name in ("o-1", "o-2"):
        served.embedded.create_topic(name)
    tokens, all_of_it, less = Tokens(Path("no file")), new_token(), new_token()
    tokens.admit(all_of_it, Principal(name="ann", rules=(EVERYTHING,)))
    only_one = NamePattern.parse("o-1", of="topic")
    fewer = attrs.evolve(EVERYTHING, topics=(only_one,))
    tokens.admit(less, Principal(name="bob", rules=(fewer,)))
    with served.embedded.serve(tokens=tokens) as server:
        where = {"url": server.url, "topic_pattern": "o-*"}
        query = over(served, **where, token=all_of_it)
        other = over(served, **where, token=less)
        for name in ("o-1", "o-2"):
            served.embedded.publish(name, [name.encode()])
        query.trigger()
        assert sorted(query.read) == [b"o-1", b"o-2"]
        start, end, _ = query.batches[-1]
        with pytest.raises(NotAuthorized, match="bob may not consume from topic o-2"):
            other.source.partitions(start, end)
        served.embedded.delete_topic("o-2")
        assert query.rows(start, end) == [b"o-1"]


def test_nothing_new_is_no_batch_and_what_waits_is_reported(served: Site) -> None:
    messaging = served.messaging
    messaging.create_topic("a")
    query = over(served, topics="a")
    messaging.publish("a", [b"1"])
    tx = messaging.coordinator.start_short()
    publish(messaging, b"2", transaction=tx, topic="a")
    messaging.publish("a", [b"3"])
    assert query.trigger()
    assert not query.trigger()
    assert query.source.reportLatestOffset()["a"] == str(messaging.bounds("a").next)
    assert query.offset["a"] < query.source.reportLatestOffset()["a"]
    commit(messaging, tx)
    assert query.trigger()
    assert query.read == [b"1", b"2", b"3"]
    assert query.offset == query.source.reportLatestOffset()


def test_available_now_ends_with_what_was_there(served: Site) -> None:
    served.messaging.create_topic("a")
    served.messaging.publish("a", [b"%d" % number for number in range(5)])
    query = over(served, topic_pattern="*", max_messages=2)
    query.source.prepareForTriggerAvailableNow()
    served.messaging.publish("a", [b"later"])
    served.messaging.create_topic("b")
    while query.trigger():
        served.messaging.publish("a", [b"later"])
        served.messaging.publish("b", [b"later"])
    assert query.read == [b"0", b"1", b"2", b"3", b"4"]


def test_a_query_at_the_end_does_not_look_at_all_rows_again(
    served: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = served.messaging
    messaging.create_topic("a")
    tx = messaging.coordinator.start_short()
    messaging.publish("a", [b"x"] * 100)
    query = over(served, topics="a")
    query.trigger()
    before = served.embedded.metrics().topics["a"].messages_out
    behind, asked = messaging.bounds("a").next, []
    find = Administration.first_undecided

    def watched(*given: Any, **options: Any) -> MessageId:
        asked.append(options["start"])
        return find(*given, **options)

    monkeypatch.setattr(Administration, "first_undecided", watched)
    messaging.publish("a", [b"y"])
    query.trigger()
    query.source.reportLatestOffset()
    assert asked == [behind]
    assert served.embedded.metrics().topics["a"].messages_out - before == 1
    messaging.coordinator.abort(tx)
