"""Keys and headers: what may be one, and headers as bytes."""

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import txaware
from txaware.errors import BadRequest, RequestTooLarge
from txaware.model.labels import (
    MAX_HEADERS_BYTES,
    MAX_KEY_BYTES,
    FixedHeaders,
    Labels,
    packed,
    part_of,
    unpacked,
)
from txaware.model.message_fields import tagged_fields
from txaware.model.messages import Message, MessageId, Outgoing
from txaware.model.requests import Payload, alike, checked_payloads, usual_bytes

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
headers = st.dictionaries(names, st.binary(max_size=300), max_size=5)
keys = st.none() | st.binary(max_size=MAX_KEY_BYTES)
ID = MessageId.of(1_700_000_000_123, 4)


@given(headers)
def test_headers_come_back_in_their_order(written: dict[str, bytes]) -> None:
    read = unpacked(packed(written))
    assert read == written
    assert [*read] == [*written]


@given(headers.filter(bool), st.integers(1, 50))
def test_headers_that_are_cut_off_are_noticed(
    written: dict[str, bytes], cut: int
) -> None:
    data = packed(written)
    shorter = data[: max(0, len(data) - cut)]
    whole = 0
    for name, value in written.items():
        ends_at = whole + len(packed({name: value}))
        if len(shorter) < ends_at:
            break
        whole = ends_at
    if len(shorter) > whole:
        with pytest.raises(BadRequest, match="are no headers"):
            unpacked(shorter)
    else:
        assert packed(unpacked(shorter)) == shorter


def test_the_bytes_of_headers() -> None:
    """Sizes of name and value, then both; a store and the wire keep them."""
    assert packed({"ä": b"xyz"}).hex() == "000200000003c3a478797a"
    assert packed({}) == packed(None) == b""


LONG = MAX_HEADERS_BYTES
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"key": "text"}, "a key is bytes or None, not 'text'"),
    ({"key": 5}, "a key is bytes or None, not 5"),
    ({"key": bytes(MAX_KEY_BYTES + 1)}, "up to 1024 bytes, and this one 1025"),
    ({"headers": [("a", b"b")]}, "a dict of str to bytes"),
    ({"headers": ""}, "a dict of str to bytes, not ''"),
    ({"headers": {"a": "text"}}, "the header 'a' is bytes, not str"),
    ({"headers": {"a": None}}, "the header 'a' is bytes, not NoneType"),
    ({"headers": {b"a": b"b"}}, "the name of a header is a str"),
    ({"headers": {"": b"b"}}, "has 1 to 65535 bytes"),
    ({"headers": {"\ud800": b"b"}}, "is no text"),
    ({"headers": {"a": bytes(LONG)}}, "up to 65536 bytes"),
    ({"headers": {"a" * LONG: b""}}, "has 1 to 65535 bytes"),
]


@pytest.mark.parametrize(("wrong", "why"), WRONG)
def test_a_wrong_key_or_header_is_one_sentence(wrong: dict[str, Any], why: str) -> None:
    message = Outgoing(b"a", **wrong)
    mixed: list[list[Payload]] = [[message], [b"a", message]]
    mixed.append([Outgoing(b"a", key=b"k"), message])
    for listed in mixed:
        with pytest.raises(BadRequest) as caught:
            checked_payloads(listed, limit_bytes=1 << 20)
        assert why in str(caught.value)
        assert "\n" not in str(caught.value)


def test_the_largest_key_and_headers_are_taken() -> None:
    largest = Outgoing(b"", bytes(MAX_KEY_BYTES), {"a": bytes(MAX_HEADERS_BYTES - 7)})
    found = checked_payloads([largest], limit_bytes=1 << 20)
    assert found.size_bytes == MAX_KEY_BYTES + MAX_HEADERS_BYTES
    assert found.messages() == [largest]


def test_the_limit_of_a_message_counts_its_key_and_headers() -> None:
    checked_payloads([Outgoing(bytes(90), bytes(10))], limit_bytes=100)
    for message in (
        Outgoing(bytes(91), bytes(10)),
        Outgoing(bytes(95), None, {"a": b""}),
    ):
        with pytest.raises(RequestTooLarge, match="above the limit of 100 bytes"):
            checked_payloads([b"", message], limit_bytes=100)


@given(st.lists(st.tuples(st.binary(max_size=9), keys, headers), max_size=5))
def test_messages_come_back_as_they_were_checked(
    described: list[tuple[bytes, bytes | None, dict[str, bytes]]],
) -> None:
    listed = [
        Outgoing(payload, key, found or None) for payload, key, found in described
    ]
    plain = [one if one.key or one.headers else one.payload for one in listed]
    for messages in (listed, plain):
        found = checked_payloads(messages, limit_bytes=1 << 20)
        sizes = [len(p) + len(k or b"") + len(packed(h)) for p, k, h in described]
        assert found.size_bytes == sum(sizes)
        assert checked_payloads(found.messages(), limit_bytes=1 << 20) == found
    if all(key is None and not found for _, key, found in described):
        assert checked_payloads(listed, limit_bytes=1 << 20).labels is None


@given(st.lists(st.tuples(keys, headers), max_size=6), st.integers(0, 6))
def test_labels_are_cut_and_joined(
    described: list[tuple[bytes | None, dict[str, bytes]]], at: int
) -> None:
    at = min(at, len(described))
    whole = Labels(
        [key for key, _ in described], [packed(found) for _, found in described]
    )
    ends = [(part_of(whole, 0, at), at), (whole.part(at, 99), len(described) - at)]
    assert Labels.joined(ends) == whole
    assert Labels.joined([(None, 5), (None, 2)]) is None
    joined = Labels.joined([(None, 2), (whole, len(described))])
    assert joined is not None
    assert joined.part(2, 99) == whole


@given(st.binary(max_size=9), keys, headers)
def test_a_message_has_its_key_its_headers_and_its_time(
    payload: bytes, key: bytes | None, found: dict[str, bytes]
) -> None:
    message = Message(ID, payload, key, found)
    assert (message.id, message.payload) == (ID, payload)
    assert (message.key, message.headers) == (key, found)
    assert message.time.isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert message.size_bytes == len(payload) + len(key or b"") + len(packed(found))
    assert hash(message) == hash(Message(ID, payload, key, dict(found)))
    assert pickle.loads(pickle.dumps(message)) == message == copy.deepcopy(message)


def test_a_message_shows_the_labels_that_it_has() -> None:
    shown = f"Message(id=MessageId({ID}), payload=b'a'"
    assert repr(Message(ID, b"a")) == f"{shown})"
    labels = ", key=b'k', headers={'h': b'v'})"
    assert repr(Message(ID, b"a", b"k", {"h": b"v"})) == shown + labels


def test_headers_of_a_message_belong_to_who_asked() -> None:
    message = Message(ID, b"", None, {"a": b"b"})
    message.headers["a"] = b"changed"
    assert message.headers == {"a": b"b"}


def test_a_message_as_a_dict_is_json() -> None:
    message = Message(ID, b"\xff", b"k", {"ä": "ö".encode(), "b": b"\xff"})
    assert json.loads(json.dumps(message.as_dict())) == {
        "id": str(ID),
        "time": "2023-11-14T22:13:20.123+00:00",
        "payload": {"base64": "/w=="},
        "key": "k",
        "headers": {"ä": "ö", "b": {"base64": "/w=="}},
        **{field.name: None for field in tagged_fields()},
    }
    plain = Message(ID, b"a").as_dict()
    assert (plain["key"], plain["headers"]) == (None, {})


@given(
    st.builds(
        Outgoing,
        st.binary(max_size=9) | st.just(bytearray(b"odd")),
        st.none() | st.binary(max_size=9) | st.just(b"-" * (MAX_KEY_BYTES + 1)),
        st.none()
        | st.just(FixedHeaders({"c": b"d"}))
        | st.sampled_from(
            [
                {},
                {"a": b"b"},
                {"": b"b"},
                {"a": "text"},
                {1: b""},
                {"a": b"-" * (1 << 16)},
            ]
        ),
        st.none() | st.just(5.0) | st.just(-1.0),
    )
    | st.binary(max_size=9)
)
def test_a_message_that_is_checked_at_once_is_as_the_whole_check_has_it(
    message: Any,
) -> None:
    at_once = usual_bytes(message)
    try:
        both = checked_payloads([message, b"beside"], limit_bytes=1 << 20)
        found = checked_payloads([message], limit_bytes=1 << 20)
    except BadRequest:
        assert at_once == 0
        assert alike([message]) is None
    else:
        assert at_once in (0, found.size_bytes)
        assert found == both.part(0, 1)


def test_events_with_the_same_headers_have_those_of_their_own_beside_them() -> None:
    same, own = FixedHeaders({"type": b"a"}), {"type": b"b"}
    messages: list[Payload] = [
        Outgoing(b"1", None, same),
        Outgoing(b"2", b"k", same),
        Outgoing(b"3", None, own),
        Outgoing(b"4", None, same, 60),
        b"5",
        Outgoing(b"6", None, same),
    ]
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("t")
        messaging.publish("t", messages)
        found = messaging.poll("t")
    said = [one if isinstance(one, Outgoing) else Outgoing(one) for one in messages]
    assert [(one.payload, one.key, one.headers) for one in found] == [
        (one.payload, one.key, dict(one.headers or {})) for one in said
    ]
