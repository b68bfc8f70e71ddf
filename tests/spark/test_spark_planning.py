"""What Spark's sources plan, without a JVM: parts, places, limits, decided ranges."""

from array import array
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StructField, StructType

from coordinator import codec
from coordinator.transaction import Transaction
from tests.support.messagings import Site, payloads, publish
from tests.support.spark_histories import (
    LEAST,
    MOST,
    RANDOM,
    SCHEMA,
    TINY,
    Action,
    History,
    histories,
    in_new_topics,
    polled,
)
from txaware.client import HttpService
from txaware.errors import BadRequest, TopicNotFound, Unavailable
from txaware.messaging import Messaging
from txaware.model.interfaces import MessagingService
from txaware.model.messages import Bounds, Message, Outgoing
from txaware.protocol.formats import ColumnPiece
from txaware.spark.columns import MessageColumns, TableMaker
from txaware.spark.options import Options
from txaware.spark.partitions import Span, pages
from txaware.spark.partitions import read as read_span
from txaware.spark.selection import QuerySelection, place
from txaware.spark.stream_source import StreamAdmission


@pytest.fixture(scope="module", params=["memory", "http"])
def tiny(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], History]]:
    """Histories, each in a new topic, where pages are small."""
    yield from in_new_topics(
        Site(request.param, tmp_path_factory.mktemp("site"), **TINY)
    )


def selection(
    topic: str, *, several: bool = False, **options: object
) -> QuerySelection:
    texts = {name: str(value) for name, value in options.items() if value is not None}
    return QuerySelection.of(
        Options.of({"topics" if several else "topic": topic, **texts})
    )


def read(messaging: Messaging, planned: list[Span]) -> list[Message]:
    """What the parts have; a task gets the same of a server, as columns."""
    found = [one for span in planned for page in pages(messaging, span) for one in page]
    service = service_of(messaging)
    if isinstance(service, HttpService):
        rows = [(one.id, one.payload) for one in found]
        assert as_columns(service, planned) == rows
    return found


def as_columns(service: HttpService, planned: list[Span]) -> list[tuple[bytes, bytes]]:
    table = TableMaker(StructType([*SCHEMA, StructField("id", BinaryType())]))
    batches = [batch for span in planned for batch in read_span(service, span, table)]
    return [
        (row["id"], row["payload"]) for batch in batches for row in batch.to_pylist()
    ]


def service_of(messaging: Messaging) -> MessagingService:
    return messaging._parts.service


def planned(messaging: Messaging, chosen: QuerySelection) -> list[Span]:
    snapshot, ranges = chosen.ranges(messaging, chosen.names(messaging))
    return chosen.spans(messaging, snapshot, ranges)


@RANDOM
@given(data=st.data(), actions=histories, later=histories)
def test_parts_together_are_what_one_reader_gets(
    tiny: Callable[[], History],
    data: st.DataObject,
    actions: list[Action],
    later: list[Action],
) -> None:
    history = tiny()
    messaging, topic = history.site.messaging, history.topic
    for action in actions:
        history.do(*action)
    everything = polled(messaging, topic, None)
    isolation = data.draw(st.sampled_from(["committed", "uncommitted"]))
    places = st.none() | st.sampled_from([each.id for each in everything] or [LEAST])
    start, end = data.draw(places), data.draw(places)
    part_bytes = data.draw(st.sampled_from([1, 30, 100, 1000, 10**6]))
    chosen = selection(
        topic, start=start, end=end, isolation=isolation, part_bytes=part_bytes
    )
    snapshot, ranges = chosen.ranges(messaging, [topic])
    parts = chosen.spans(messaging, snapshot, ranges)
    expected = [
        one
        for one in polled(messaging, topic, snapshot, start or LEAST)
        if one.id < (end or MOST)
    ]
    # What happens between the planning and the tasks is not seen.
    history.end_all(data.draw(st.sampled_from(["commit", "invalidate"])))
    for action in later:
        history.do(*action)
    assert read(messaging, parts) == expected
    assert read(messaging, parts) == expected  # by a task that is repeated
    if part_bytes == 1 and len(expected) > 1:
        assert len(parts) > 1


@pytest.mark.parametrize("end", [None, "next", "9999999999999"])
def test_a_transaction_that_commits_between_two_topics_is_read_whole(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch, end: str | None
) -> None:
    for name in ("a", "b"):
        messaging.create_topic(name)
        messaging.publish(name, [b"before"])
    bounds, looked_at = Messaging.bounds, list[str]()

    def watched(self: Messaging, topic: str) -> Bounds:
        if looked_at == ["a"]:
            with messaging.transaction():
                for name in ("a", "b"):
                    messaging.publisher(name).publish(b"committed")
            publish(messaging, b"open", transaction=open_tx, topic="b")
        looked_at.append(topic)
        return bounds(self, topic)

    open_tx = messaging.coordinator.start_short()
    monkeypatch.setattr(Messaging, "bounds", watched)
    chosen = selection("a, b", end=end, several=True)
    snapshot, ranges = chosen.seen_by_one(messaging, ["a", "b"])
    spans = chosen.spans(messaging, snapshot, ranges)
    later = messaging.coordinator.start_short()
    publish(messaging, b"later", transaction=later, topic="a")
    assert payloads(read(messaging, spans)) == [b"before", b"committed"] * 2


def test_a_topic_that_was_created_again_since_the_planning_is_an_error(
    tmp_path: Path,
) -> None:
    with closing(Site("http", tmp_path)) as site:
        messaging = site.messaging
        messaging.create_topic("t")
        messaging.publish("t", [b"1", b"2"])
        (part,) = planned(messaging, selection("t"))
        messaging.delete_topic("t")
        messaging.create_topic("t")
        service = service_of(messaging)
        assert isinstance(service, HttpService)
        with pytest.raises(Unavailable, match="deleted and created again since"):
            list(read_span(service, part, TableMaker(SCHEMA)))


def span(messaging: Messaging, snapshot: Transaction | None = None) -> Span:
    encoded = None if snapshot is None else codec.encode(snapshot)
    return Span("t", LEAST, messaging.bounds("t").next, encoded)


def test_a_row_that_is_undecided_right_behind_a_part_does_no_harm(
    messaging: Messaging,
) -> None:
    messaging.publish("t", [b"1"])
    parts = planned(messaging, selection("t"))
    publish(messaging, b"2", transaction=messaging.coordinator.start_short())
    assert payloads(read(messaging, parts)) == [b"1"]


def test_a_row_that_is_undecided_within_a_part_is_an_error(
    messaging: Messaging,
) -> None:
    tx = messaging.coordinator.start_short()
    publish(messaging, b"1", transaction=tx)
    messaging.publish("t", [b"2"])
    wrong = span(messaging, messaging.coordinator.snapshot())
    with pytest.raises(Unavailable, match=f"transaction {tx.transaction_id} was not"):
        read(messaging, [wrong])


def test_rows_may_expire_between_the_planning_and_the_tasks(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t", ttl_s=60)
    messaging.publish("t", [b"1"])
    parts = planned(messaging, selection("t"))
    site.clock.advance_s(50)
    publish(messaging, b"2", transaction=messaging.coordinator.start_short(600))
    site.clock.advance_s(20)
    site.embedded.clean_up()
    assert read(messaging, parts) == []


def test_the_end_is_before_an_open_transaction_of_long_ago(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"1"])
    site.clock.advance_s(3600)
    tx = site.embedded.coordinator.start_short(50_000)
    for number in range(2, 5):
        site.clock.advance_s(3600)
        messaging.publish("t", [b"%d" % number])
    publish(messaging, b"5", transaction=tx)
    messaging.publish("t", [b"6"])
    assert payloads(read(messaging, planned(messaging, selection("t")))) == [
        *(b"1", b"2", b"3", b"4")
    ]


def test_a_large_first_message_does_not_hide_an_open_transaction(
    tmp_path: Path,
) -> None:
    site = Site("memory", tmp_path, poll_limit_bytes=10)
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"larger than a page"])
    publish(messaging, b"open", transaction=messaging.coordinator.start_short())
    assert len(read(messaging, planned(messaging, selection("t")))) == 1
    site.close()


def test_where_it_begins_and_ends_is_an_id_a_time_or_a_word(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    for number in range(4):
        messaging.publish("t", [b"%d" % number])
        site.clock.advance_s(60)
    found = messaging.poll("t")
    time_ms = found[2].id.publish_time_ms
    iso = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
    bounds = messaging.bounds("t")
    for text in (str(found[2].id), str(time_ms), iso, iso.replace("+00:00", "Z")):
        assert payloads(read(messaging, planned(messaging, selection("t", start=text))))
        at = place(text, bounds, default="first")
        assert (at.publish_time_ms, at <= found[2].id) == (time_ms, True)
        before = planned(messaging, selection("t", end=text))
        assert payloads(read(messaging, before)) == [b"0", b"1"]
    assert place("first", bounds, default="next") == found[0].id
    assert place(None, bounds, default="next") == bounds.next
    assert planned(messaging, selection("t", start="next")) == []
    assert planned(messaging, selection("t", start=iso, end="first")) == []


@pytest.mark.parametrize("text", ["yesterday", "-5", "1960-01-01", "9" * 30, "f" * 39])
def test_what_is_no_place_is_refused(messaging: Messaging, text: str) -> None:
    with pytest.raises(BadRequest, match="is no place in a topic; an id of 40 hex"):
        place(text, messaging.bounds("t"), default="first")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"topic": "a"}, ["a"]),
        ({"topics": "b, a,ns:b"}, ["b", "a", "ns:b"]),
        ({"topic_pattern": "a*"}, ["a", "ab"]),
        ({"topic_pattern": "ns:*"}, ["ns:a", "ns:b"]),
        ({"topic_pattern": "*:a"}, ["a", "ns:a"]),
        ({"topic_pattern": "x*"}, []),
    ],
)
def test_topics_are_named_listed_or_match(
    site: Site, options: dict[str, str], names: list[str]
) -> None:
    for name in ("a", "ab", "b", "ns:a", "ns:b"):
        site.messaging.create_topic(name)
    assert QuerySelection.of(Options.of(options)).names(site.messaging) == names


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "one of the options topic, topics"),
        ({"topic": "a", "topics": "b"}, "one of the options topic, topics"),
        ({"topic": "a", "topic_pattern": "*"}, "one of the options topic, topics"),
        ({"topics": "a,,b"}, "''"),
        ({"topic": "a", "isolation": "dirty"}, "committed or uncommitted"),
        ({"topic": "a", "part_bytes": "0"}, "part_bytes is a whole number above 0"),
        ({"topic": "a", "part_bytes": "16m"}, "part_bytes is a whole number above 0"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        QuerySelection.of(Options.of(options))


def test_a_topic_that_is_named_has_to_be_there(messaging: Messaging) -> None:
    with pytest.raises(TopicNotFound, match="nowhere"):
        selection("nowhere").names(messaging)


def admitted(messaging: Messaging, admission: StreamAdmission) -> list[bytes]:
    whole = span(messaging)
    stop = admission.admit(messaging, whole, topics_left=1)
    return payloads(read(messaging, [attrs.evolve(whole, stop=stop)]))


@pytest.mark.parametrize(
    ("messages", "size_bytes", "count"),
    [
        (None, None, 6),
        (4, None, 4),
        (6, None, 6),
        (100, None, 6),
        (None, 100, 3),
        (None, 95, 3),
        (None, 94, 2),
        (None, 1, 1),
        (2, 100, 2),
        (5, 40, 1),
    ],
)
def test_a_batch_takes_as_many_as_both_limits_allow(
    messaging: Messaging, messages: int | None, size_bytes: int | None, count: int
) -> None:
    lengths = [35, 30, 30, 40, 1000, 5]
    messaging.publish("t", [b"x" * length for length in lengths])
    found = admitted(messaging, StreamAdmission(messages, size_bytes))
    assert list(map(len, found)) == lengths[:count]


def test_places_of_payloads_that_do_not_rise_are_an_error_and_no_crash() -> None:
    piece = ColumnPiece(bytes(40), array("i", (0, 5, 3)).tobytes(), b"abc")
    with pytest.raises(Unavailable, match="the answer of the server cannot be read"):
        MessageColumns.joined("t", [piece])


@pytest.mark.parametrize("kind", ["memory", "http"])
def test_each_partition_of_a_topic_is_read_by_tasks_of_its_own(
    kind: str, tmp_path: Path
) -> None:
    with closing(Site(kind, tmp_path)) as site:
        messaging = site.messaging
        messaging.create_topic("orders", partitions=3)
        messaging.create_topic("t")
        sent = [Outgoing(b"%d" % n, b"key-%d" % n) for n in range(40)]
        messaging.publish("orders", [*sent])
        with messaging.transaction() as tx:
            messaging.publish("orders.1", [b"open"], transaction=tx.transaction)
            chosen = selection("orders,t", several=True)
            names = chosen.names(messaging)
            assert names == ["orders.0", "orders.1", "orders.2", "t"]
            snapshot, ranges = chosen.ranges(messaging, names)
            spans = chosen.spans(messaging, snapshot, ranges)
            assert [span.topic for span in spans] == names[:3]
            read = [
                one for span in spans for page in pages(messaging, span) for one in page
            ]
            assert sorted(one.payload for one in read) == sorted(
                one.payload for one in sent
            )
            assert {one.partition for one in read} == {0, 1, 2}
        assert selection("orders.2").names(messaging) == ["orders.2"]
        starts = chosen.starts(messaging)
        assert starts.keys() == set(names)
        messaging.update_topic("orders", partitions=4)
        assert chosen.names(messaging) == [*names[:3], "orders.3", "t"]
