"""Keys and headers in bodies of JSON."""

import json
from typing import Any

import pytest

from tests.support.format_values import written
from txaware.errors import BadRequest
from txaware.model.messages import Message, MessageId, Outgoing, Page
from txaware.protocol.formats import JSON, PollRequest

ID = MessageId.of(1_700_000_000_000, 1)


def published(message: object) -> Any:
    return JSON.publish_request(json.dumps({"messages": [message]}).encode()).messages


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"key": "k\u00ff"}, {"key": b"k\xff"}),
        ({"key": {"utf8": "\u20ac"}}, {"key": b"\xe2\x82\xac"}),
        ({"key": {"base64": "AP8="}}, {"key": b"\0\xff"}),
        ({"key": ""}, {"key": b""}),
        ({"key": None, "headers": None}, {}),
        ({"headers": {"a": "b"}}, {"headers": {"a": b"b"}}),
        ({"headers": {"ä": {"utf8": "ö"}}}, {"headers": {"ä": "ö".encode()}}),
        ({"headers": {"a": {"base64": "AP8="}}}, {"headers": {"a": b"\0\xff"}}),
        ({"key": "k", "expireAfterMs": 5000}, {"key": b"k", "expire_after_s": 5.0}),
    ],
)
def test_json_takes_keys_and_headers_beside_a_payload(
    fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    (message,) = published({"utf8": "a", **fields})
    assert message == (Outgoing(b"a", **expected) if expected else b"a")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"key": 5}, "key that is no string"),
        ({"key": "\u20ac"}, "key"),
        ({"key": {}}, "key is either utf8 or base64"),
        ({"key": {"utf8": "a", "base64": ""}}, "key is either utf8 or base64"),
        ({"key": {"other": "a"}}, "key"),
        ({"headers": []}, "headers"),
        ({"headers": {"a": 5}}, "the header 'a'"),
        ({"headers": {"a": None}}, "the header 'a'"),
        ({"header": {}}, "none of"),
    ],
)
def test_json_refuses_other_keys_and_headers(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        published({"utf8": "a", **fields})


@pytest.mark.parametrize(
    ("payload_as", "expected"),
    [
        ("avro", {"key": "k\u00ff", "headers": {"ä": "v"}}),
        ("utf8", {"key": {"base64": "a/8="}, "headers": {"ä": "v"}}),
        ("base64", {"key": "a/8=", "headers": {"ä": "dg=="}}),
    ],
)
def test_json_answers_keys_and_headers_as_it_does_payloads(
    payload_as: str, expected: dict[str, Any]
) -> None:
    page = Page(
        [Message(ID, b"", b"k\xff", {"ä": b"v"}), Message(ID, b"a")], next_id=ID
    )
    writer = JSON.page_writer(PollRequest(payload_as=payload_as))
    labelled, plain = json.loads(written(writer, page))
    assert labelled == {"id": str(ID), "payload": "", **expected}
    assert {*plain} == {"id", "payload"}
