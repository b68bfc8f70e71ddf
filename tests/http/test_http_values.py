"""What administration answers, as JSON and back."""

import json
from collections import Counter
from contextlib import suppress
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txaware.errors import BadRequest
from txaware.model.messages import BlockedBy, Bounds, MessageId
from txaware.model.metrics import (
    GroupLag,
    Histogram,
    Metrics,
    RetentionMetrics,
    Timing,
    TopicMetrics,
    WriteMetrics,
)
from txaware.model.queues import Popped
from txaware.model.reports import CleanUp, Peeked, Problem, Pruned, Report, TopicReport
from txaware.model.topics import Topic, TopicName
from txaware.protocol import places
from txaware.protocol.jobs import POP, PUSH
from txaware.protocol.publishes import STORE
from txaware.protocol.shape import pack
from txaware.protocol.topics import DESCRIBE_TOPIC
from txaware.protocol.values import (
    from_json,
    popped_of_frame,
    popped_to_json,
    popped_to_pack,
    read_json,
    structured,
    to_json,
    unstructured,
)

MOST = 2**63 - 1
ID = MessageId.of(1_700_000_000_000, 7)
BOUNDS = Bounds(None, ID, ID)
HISTOGRAM = Histogram([0.5, 1.0], [1, 2, 3], 4.5)
METRICS = Metrics(
    topics={"a_b:c-d": TopicMetrics(3, publish=Timing(2, 0.5, 0.25))},
    groups=[GroupLag("g", "t", 12, 3)],
    expired_unseen={"t_t": 1},
    cache_bytes=1,
    cache_hits=2,
    cache_misses=3,
    publish_latency_s=HISTOGRAM,
    poll_latency_s=Histogram([], [0]),
    writes=WriteMetrics(HISTOGRAM, HISTOGRAM, HISTOGRAM, 1),
    retention=RetentionMetrics({"expired": 1}, last_ended_ms=5),
    open_transactions=None,
    oldest_open_ms=None,
    invalid_transactions=4,
)
VALUES: list[Any] = [
    Peeked(ID, b"\0\xff", None, "plain"),
    Peeked(ID, None, 5, "in progress"),
    BOUNDS,
    TopicReport(1, 2, 3, 4, 5, None, 6, [7, 8], BlockedBy(7, 9), BOUNDS),
    TopicReport(0, 0, 0, 0, 0, None, None, [], None, BOUNDS),
    CleanUp(1, expired_messages=2, least_needed=2**62),
    Pruned(3, None),
    Report({"topics": 1}, (Problem("k", "00", "a sentence"),), 1, {"t": 5}),
    Report({"topics": 1}, (), 0, None),
    METRICS,
    attrs.evolve(METRICS, writes=None, open_transactions=3),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert from_json(type(value), to_json(value)) == value


def test_a_list_of_values_comes_back_as_a_list() -> None:
    peeked = [Peeked(ID, b"a", 5, "committed")] * 2
    assert from_json(list[Peeked], to_json(peeked)) == peeked
    assert from_json(list[str], to_json(["a", "b"])) == ["a", "b"]


@given(st.binary(), st.integers(0, 2**63 - 1))
def test_any_payload_and_pointer_come_back(payload: bytes, pointer: int) -> None:
    peeked = Peeked(ID, payload, pointer, "committed")
    assert from_json(Peeked, to_json(peeked)) == peeked


def test_names_are_in_camel_case_and_keys_stay_as_they_are() -> None:
    shown = json.loads(to_json(METRICS))
    assert shown["topics"]["a_b:c-d"]["messagesIn"] == 3
    assert shown["topics"]["a_b:c-d"]["publish"]["totalS"] == 0.5
    assert shown["expiredUnseen"] == {"t_t": 1}
    assert shown["openTransactions"] is None


def test_ids_are_hex_and_bytes_are_base64() -> None:
    assert json.loads(to_json(Peeked(ID, b"\0\xff", None, "plain"))) == {
        "id": str(ID),
        "payload": "AP8=",
        "pointer": None,
        "state": "plain",
        "key": None,
        "headers": {},
    }


def test_counters_and_views_are_mappings() -> None:
    report = Report(Counter(a=1), (), 0, MappingProxyType({"t": 1}))
    assert from_json(Report, to_json(report)).needed == {"t": 1}


def test_what_a_newer_server_says_as_well_is_passed_over() -> None:
    shown = {**json.loads(to_json(Pruned(3, None))), "more": [1]}
    assert from_json(Pruned, json.dumps(shown).encode()) == Pruned(3, None)


def test_what_an_older_server_does_not_say_has_its_default() -> None:
    assert from_json(CleanUp, b'{"topics":1}') == CleanUp(1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"null",
        b"5",
        b'"x"',
        b"[]",
        b"{}",
        b"[1]",
        b"{",
        b"[" * 100_000,
        b'{"pruned":"3","leastNeeded":null}',
        b'{"pruned":3.0,"leastNeeded":null}',
        b'{"pruned":true,"leastNeeded":null}',
        b'{"pruned":NaN,"leastNeeded":null}',
        b'{"pruned":3,"leastNeeded":"x"}',
    ],
)
def test_anything_else_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest):
        from_json(Pruned, body)


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        (Pruned, b"5", "the body is no Pruned: Pruned is an object, not 5"),
        (Pruned, b'{"pruned":3}', "the body is no Pruned: it has no leastNeeded"),
        (Pruned, b'{"pruned":"3"}', "pruned: Expected `int`, got `str`"),
        (Peeked, b'{"id":"x"}', "the body is no Peeked: id: 'x' is no message id"),
        (Report, b'{"counts":{},"problems":[{"kind":1}]}', "problems: kind: Expected"),
        (Report, b'{"counts":[]}', "counts: it is an object, not an array of 0"),
        (Report, b'{"counts":{},"problems":{}}', "problems: {} is no list"),
    ],
)
def test_what_does_not_fit_says_which_field(kind: type, body: bytes, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        from_json(kind, body)


@pytest.mark.parametrize("field", ["id", "payload", "pointer", "state"])
@pytest.mark.parametrize("wrong", [1.5, [], {}, True, "!", "ü", "0" * 39])
def test_a_field_of_the_wrong_kind_is_a_bad_request(field: str, wrong: Any) -> None:
    if field == "state" and isinstance(wrong, str):
        return
    shown = {**json.loads(to_json(Peeked(ID, b"a", 5, "plain"))), field: wrong}
    with pytest.raises(BadRequest):
        from_json(Peeked, json.dumps(shown).encode())


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for read in (
        lambda: from_json(Metrics, data),
        lambda: from_json(list[Peeked], data),
        lambda: DESCRIBE_TOPIC.answered(DESCRIBE_TOPIC.build_request("t"), data),
        lambda: read_json(data),
    ):
        try:
            read()
        except BadRequest:
            continue


def test_a_topic_is_shown_as_cdap_shows_it() -> None:
    topic = Topic(TopicName("t", "n"), 3, 5, {"a": "b"})
    shown = DESCRIBE_TOPIC.written(topic)
    assert shown is not None
    assert json.loads(shown) == {
        "name": "t",
        "properties": {"a": "b", "generation": "3", "ttl": "5"},
    }
    assert DESCRIBE_TOPIC.answered(DESCRIBE_TOPIC.build_request("n:t"), shown) == topic


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"ttl": "5"},
        {"generation": "1"},
        {"ttl": "x", "generation": "1"},
        {"ttl": "5", "generation": "-1"},
        {"ttl": "5", "generation": 1},
        {"ttl": 5, "generation": "1"},
        {"ttl": "5", "generation": "²"},
        None,
    ],
)
def test_a_topic_without_its_properties_is_a_bad_request(properties: object) -> None:
    body = json.dumps({"name": "t", "properties": properties}).encode()
    with pytest.raises(BadRequest):
        DESCRIBE_TOPIC.answered(DESCRIBE_TOPIC.build_request("t"), body)


@given(
    st.lists(
        st.builds(
            Popped,
            st.text("0123456789abcdef"),
            st.binary(),
            st.none() | st.binary(),
            st.dictionaries(st.text(), st.binary(), max_size=2),
            st.integers(1, MOST),
            st.integers(0, MOST),
            st.text("0123456789abcdef"),
            st.none() | st.integers(0, MOST),
        ),
        max_size=3,
    )
)
def test_popped_items_are_written_as_every_other_value(popped: list[Popped]) -> None:
    assert popped_to_json(popped) == to_json(popped)
    assert from_json(list[Popped], popped_to_json(popped)) == popped
    in_frame = unstructured(popped)
    assert popped_to_pack(popped) == in_frame
    assert structured(list[Popped], in_frame) == popped
    assert popped_of_frame(pack(in_frame)) == popped


@pytest.mark.parametrize(
    "wrong", [{"deliveries": "1"}, {"payload": "cGF5"}, {"id": 7}, {"key": 1}]
)
def test_a_popped_item_in_a_frame_that_is_none_is_a_bad_request(
    wrong: dict[str, object],
) -> None:
    item = popped_to_pack([Popped("a", b"b", None, {}, 1, 2, "c", None)])[0]
    assert POP.unpacked(None, pack([item | {"unknown": 1}]))
    with pytest.raises(BadRequest):
        POP.unpacked(None, pack([item | wrong]))
    del item["lease"]
    with pytest.raises(BadRequest):
        POP.unpacked(None, pack([item]))


def test_a_default_that_is_passed_is_checked_where_its_check_makes_another() -> None:
    assert STORE.build_request("t", [b"a"], transaction=5, attempt=None).attempt == b""
    assert PUSH.build_request("q", [b"a"], delay_s=0).delay_s == 0
    with pytest.raises(BadRequest):
        PUSH.build_request("q", [b"a"], delay_s=False)


@pytest.mark.parametrize("name", ["n:.", "n:a", "a"])
def test_a_place_of_a_frame_is_the_one_of_its_path(name: str) -> None:
    for place in (places.GROUP_NAME, places.TOPIC, places.TRANSACTIONAL_ID):
        with suppress(BadRequest):
            words = {key: unquote(one) for key, one in place.words(name).items()}
            assert place.sent(name) == (words, place.name(words))
