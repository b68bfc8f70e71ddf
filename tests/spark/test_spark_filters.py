"""Filters that Spark pushes down: they spare reading, and never a row that passes."""

import operator
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from tests.support.spark_fixtures import Shared
from txaware.model.messages import ID_BYTES, MessageId
from txaware.spark.filters import Narrowed

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARE: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualNullSafe: operator.eq,
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, values: value in values,
    StringStartsWith: lambda value, start: value.startswith(start),
}

# Few values each, so that filters often meet the edges of one another.
numbers = st.sampled_from([0, 0, 1, 2, 2**8 - 1, 2**16 - 1])
ids = st.builds(MessageId.of, numbers, numbers, numbers, numbers)
cut_ids = st.builds(lambda one, length: bytes(one[:length]), ids, st.integers(0, 20))
long_ids = st.builds(lambda one, more: bytes(one) + more, ids, st.binary(max_size=2))
zones = st.sampled_from([UTC, timezone(timedelta(hours=-11)), timezone.max])
times = st.builds(
    lambda us, zone: (EPOCH + timedelta(microseconds=us)).astimezone(zone),
    st.integers(-2000, 5000) | st.sampled_from([255_000, 255_999, 65_535_000]),
    zones,
)
topics = st.sampled_from(["a", "b", "ns:a"])
VALUES = {"id": ids | cut_ids | long_ids, "publish_time": times, "topic": topics}


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(VALUES)))
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from([IsNotNull((column,)), IsNotNull(("payload",))]))
    kind = draw(st.sampled_from(list(COMPARE)))
    values = VALUES[column]
    if kind is StringStartsWith:
        return StringStartsWith(("topic",), draw(st.sampled_from(["", "a", "ns"])))
    if kind is In:
        return In((column,), tuple(draw(st.lists(values, max_size=3))))
    one: Filter = kind((column,), draw(values))  # type: ignore[call-arg]
    return Not(one) if draw(st.integers(0, 9)) == 0 else one


def passes(one: Filter, topic: str, message_id: MessageId) -> bool:
    """Whether a row passes, by what the filter says."""
    if isinstance(one, Not):
        return not passes(one.child, topic, message_id)
    if isinstance(one, IsNotNull):
        return True
    row = {
        "id": bytes(message_id),
        "publish_time": EPOCH + timedelta(milliseconds=message_id.publish_time_ms),
        "topic": topic,
    }
    named: Any = one
    return COMPARE[type(one)](row[named.attribute[0]], named.value)


def is_read(narrowed: Narrowed, topic: str, message_id: MessageId) -> bool:
    is_wanted = narrowed.topics is None or topic in narrowed.topics
    return is_wanted and narrowed.start <= message_id < narrowed.stop


@settings(max_examples=500)
@given(st.lists(filters(), min_size=1, max_size=3), topics, ids)
def test_no_row_that_passes_is_spared(
    pushed: list[Filter], topic: str, message_id: MessageId
) -> None:
    if all(passes(one, topic, message_id) for one in pushed):
        assert is_read(Narrowed.by(pushed), topic, message_id)


@settings(max_examples=500)
@given(filters(), topics, ids)
def test_one_comparison_reads_nothing_else(
    pushed: Filter, topic: str, message_id: MessageId
) -> None:
    exact = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    value = getattr(pushed, "value", EPOCH)
    if not isinstance(pushed, exact) or (isinstance(value, str) and value < "a"):
        return
    if isinstance(value, datetime) and value < EPOCH:
        return  # spares nothing
    if pushed.attribute == ("topic",) and not isinstance(pushed, EqualTo):
        return
    narrowed = Narrowed.by([pushed])
    assert is_read(narrowed, topic, message_id) == passes(pushed, topic, message_id)


@pytest.mark.parametrize(
    "strange",
    [
        EqualTo(("id",), None),
        EqualTo(("publish_time",), None),
        EqualTo(("payload",), b"1"),
        EqualTo(("topic", "inner"), "a"),
        EqualTo(("id",), "text"),
        GreaterThan(("publish_time",), 5),
        In(("topic",), ("a", None)),
    ],
)
def test_what_is_not_understood_spares_nothing_that_could_pass(strange: Filter) -> None:
    assert is_read(Narrowed.by([strange]), "a", MessageId.of(5))


def test_a_value_that_no_id_can_reach_spares_everything() -> None:
    highest = EqualTo(("id",), b"\xff" * (ID_BYTES + 1))
    assert not is_read(Narrowed.by([highest]), "a", MessageId.of(2**63))


@pytest.fixture
def pushing(shared: Shared) -> Iterator[Shared]:
    """Spark tells its sources which filters there are."""
    shared.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield shared
    shared.spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def messages_out(shared: Shared, topic: str = "t") -> int:
    """How many messages were polled in all, by whomever."""
    return shared.messaging.metrics().topics[topic].messages_out


def forty(shared: Shared, topic: str = "t") -> list[MessageId]:
    """Publishes `0` to `39`, some ms apart, and answers their ids."""
    for number in range(40):
        shared.messaging.publish(topic, [b"%d" % number])
    found = shared.messaging.poll(topic, limit=100)
    assert len({message.id.publish_time_ms for message in found}) > 1
    return [message.id for message in found]


def frame(shared: Shared, **options: object) -> DataFrame:
    return shared.reader(pushdown="true", **options).load()


def numbers_of(found: DataFrame) -> list[int]:
    return sorted(int(bytes(row["payload"])) for row in found.collect())


@pytest.mark.spark
def test_what_is_before_the_first_id_is_not_read(pushing: Shared) -> None:
    found = forty(pushing)
    before = messages_out(pushing)
    rows = frame(pushing, topic="t").where(f"id >= X'{found[25]}'")
    assert numbers_of(rows) == list(range(25, 40))
    assert messages_out(pushing) - before == 15


@pytest.mark.spark
def test_only_parts_between_two_ids_are_planned(pushing: Shared) -> None:
    found = forty(pushing)
    parts = frame(pushing, topic="t", part_bytes=1)
    few = parts.where(f"id >= X'{found[10]}' and id < X'{found[15]}'")
    assert (parts.rdd.getNumPartitions(), few.rdd.getNumPartitions()) == (40, 5)
    assert numbers_of(few) == [10, 11, 12, 13, 14]


@pytest.mark.spark
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_of_the_session_are_understood(pushing: Shared, zone: str) -> None:
    found = forty(pushing)
    time = datetime.fromtimestamp(found[20].publish_time_ms / 1000, ZoneInfo(zone))
    since = next(at for at, one in enumerate(found) if one >= found[20].row_key[:8])
    before = messages_out(pushing)
    pushing.spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = frame(pushing, topic="t").where(
            f"publish_time >= timestamp'{time.replace(tzinfo=None)}'"
        )
        assert numbers_of(rows) == list(range(since, 40))
    finally:
        pushing.spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert messages_out(pushing) - before == 40 - since


@pytest.mark.spark
def test_topics_that_are_not_asked_for_are_not_touched(pushing: Shared) -> None:
    pushing.messaging.create_topic("u")
    for topic in ("t", "u"):
        pushing.messaging.publish(topic, [b"1"])
    rows = frame(pushing, topic_pattern="*").where("topic in ('u', 'x')")
    assert numbers_of(rows) == [1]
    assert (messages_out(pushing, "t"), messages_out(pushing, "u")) == (0, 1)


@pytest.mark.spark
def test_filters_that_leave_nothing_plan_nothing(pushing: Shared) -> None:
    forty(pushing)
    before = messages_out(pushing)
    nothing = frame(pushing, topic="t").where("publish_time < timestamp'2001-01-01'")
    assert numbers_of(nothing) == []
    assert messages_out(pushing) == before


@pytest.mark.spark
@pytest.mark.xfail(strict=True, reason="Spark 4.3 keeps the last filters of a load()")
def test_one_frame_serves_several_filters(pushing: Shared) -> None:
    found, whole = forty(pushing), frame(pushing, topic="t")
    few, others = (whole.where(f"id {op} X'{found[5]}'") for op in ("<", ">="))
    assert numbers_of(few.union(others)) == list(range(40))


@pytest.mark.spark
def test_without_the_option_spark_filters_by_itself(pushing: Shared) -> None:
    found = forty(pushing)
    rows = pushing.reader(topic="t").load().where(f"id >= X'{found[25]}'")
    assert numbers_of(rows) == list(range(25, 40))


@pytest.mark.spark
def test_without_its_setting_spark_refuses_the_option(shared: Shared) -> None:
    with pytest.raises(AnalysisException, match=r"filterPushdown\.enabled"):
        frame(shared, topic="t").where("topic = 't'").collect()
