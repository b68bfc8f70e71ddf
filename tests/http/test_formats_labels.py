"""Keys and headers in the bodies: Avro with fastavro beside it, and JSON."""

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.format_values import avro_read, ids, payloads, same_page, written
from txaware.errors import BadRequest
from txaware.model.labels import MAX_KEY_BYTES, Labels, packed, unpacked
from txaware.model.messages import Message, MessageId, Outgoing, Page, PageEnd
from txaware.model.requests import checked_payloads
from txaware.protocol import formats
from txaware.protocol.formats import (
    AVRO,
    COLUMNS,
    JSON,
    LABELLED,
    LABELLED_COLUMNS,
    OWN,
    STABLE,
    ColumnarPage,
    Format,
    PollRequest,
    PublishRequest,
)
from txaware.server.page_encoders import gathering
from txaware.store.columns import HEADERS, KEY, value_head
from txaware.store.message_table import decode_block
from txaware.store.payload_table import StoredPayloads

keys = st.none() | st.binary(max_size=40) | st.just(bytes(MAX_KEY_BYTES))
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
headers = st.dictionaries(names, st.binary(max_size=300), max_size=3)
messages = st.builds(Message, ids, payloads, keys, headers)
pages = st.builds(Page, st.lists(messages, max_size=8), next_id=ids)
cuts = st.lists(st.integers(0, 8), max_size=3)
ID = MessageId.of(1_700_000_000_000, 1)


@given(st.lists(st.builds(Outgoing, payloads, keys, headers), max_size=8))
def test_what_the_client_publishes_arrives_unchanged(listed: list[Outgoing]) -> None:
    checked = checked_payloads(listed, limit_bytes=1 << 20)
    request = PublishRequest(5, [*checked.payloads], labels=checked.labels)
    body = formats.encode_publish(request)
    format_: Format = OWN if checked.labels is None else LABELLED
    arrived = format_.publish_request(body)
    assert arrived == request
    assert checked_payloads(arrived.labelled, limit_bytes=1 << 20) == checked
    sent = avro_read(format_.media_type, "PublishRequest", body=body)
    assert sent["messages"] == checked.payloads


def test_golden_labels() -> None:
    """The bytes that a client of today sends to a server of tomorrow."""
    labels = Labels([b"k", None], [packed({"h": b"v"}), b""])
    body = formats.encode_publish(PublishRequest(None, [b"a", b"b"], labels=labels))
    assert body.hex() == "".join(
        (
            *("02", "04", "0261", "0262", "00", "000000"),  # as without labels
            *("02", "040100"),  # the first of two has a key
            *("18", "00000000", "01000000", "01000000", "02", "6b"),
            *("18", "00000000", "08000000", "08000000"),
            *("10", "0001", "00000001", "6876"),
        )
    )


@given(pages, st.none() | ids, cuts)
def test_pages_say_what_is_stable(
    page: Page, last_stable: MessageId | None, at: list[int]
) -> None:
    page.last_stable = last_stable
    body = written(STABLE.page_writer(PollRequest()), page, cuts=at)
    assert same_page(formats.decode_stable_page(body), page)
    read = avro_read(STABLE.media_type, "PollResponse", body=body)
    assert read["lastStable"] == last_stable
    cut_off = written(LABELLED.page_writer(PollRequest()), page, cuts=at)
    with pytest.raises(BadRequest):
        formats.decode_stable_page(cut_off)


@given(pages, cuts)
def test_pages_come_back_as_they_were_however_they_are_cut(
    page: Page, at: list[int]
) -> None:
    body = written(LABELLED.page_writer(PollRequest()), page, cuts=at)
    assert same_page(formats.decode_labelled_page(body), page)
    pieces = avro_read(LABELLED.media_type, "PollResponse", body=body)["pieces"]
    assert [one["payload"] for piece in pieces for one in piece["messages"]] == [
        one.payload for one in page
    ]


@given(pages, cuts, st.integers(0, 9))
def test_columns_come_back_as_they_were_however_they_are_cut(
    page: Page, at: list[int], before: int
) -> None:
    body = written(LABELLED_COLUMNS.page_writer(PollRequest()), page, cuts=at)
    avro_read(LABELLED_COLUMNS.media_type, "PollResponse", body=body)
    assert [*rows_of(formats.decode_labelled_columns(body))] == [*page]
    rising = [
        Message(MessageId.of(at), one.payload, one.key, one.headers)
        for at, one in enumerate(page)
    ]
    writer = LABELLED_COLUMNS.page_writer(PollRequest())
    found = formats.decode_labelled_columns(written(writer, Page(rising, next_id=ID)))
    for piece in found.pieces:
        cut = ColumnarPage([piece.before(MessageId.of(before))], ID, None, None)
        assert [*rows_of(cut)] == rising[:before]


def rows_of(page: ColumnarPage) -> Iterator[Message]:
    """The messages of columns, one by one."""
    for piece in page.pieces:
        labels = piece.labels or Labels.nothing(len(piece))
        places = [
            int.from_bytes(piece.places[at : at + 4], "little")
            for at in range(0, len(piece.places), 4)
        ]
        for number in range(len(piece)):
            payload = piece.payloads[places[number] : places[number + 1]]
            key, found = labels.keys[number], unpacked(labels.headers[number])
            yield Message(MessageId(piece.id_at(number)), payload, key, found)


@given(pages)
@pytest.mark.parametrize("avro", [AVRO, OWN])
def test_the_types_of_before_have_the_bytes_of_before(avro: Format, page: Page) -> None:
    bare = [Message(one.id, one.payload) for one in page]
    expected = written(avro.page_writer(PollRequest()), Page(bare, next_id=page.next))
    assert written(avro.page_writer(PollRequest()), page) == expected


described = st.lists(st.tuples(payloads, keys, headers), min_size=1, max_size=6)


@pytest.mark.parametrize("format_", [AVRO, OWN, COLUMNS, LABELLED, LABELLED_COLUMNS])
@given(described, described, st.builds(Message, ids, payloads, keys, headers))
def test_what_the_server_gathers_is_what_the_format_writes(
    format_: Format, rows: list[Any], stored: list[Any], alone: Message
) -> None:
    """Rows of a block, payloads of a reference, and a message that stands alone."""
    writer = format_.page_writer(PollRequest())
    gathered = gathering(writer)()
    block = decode_block([*map(_row, range(len(rows)), rows)])
    kept = StoredPayloads(
        [b"%010d" % number for number in range(len(stored))],
        [payload for payload, _, _ in stored],
        Labels(
            [key for _, key, _ in stored], [packed(found) for _, _, found in stored]
        ),
    )
    gathered.add_rows(block, 0, len(block))
    gathered.add_payloads(bytes(10), kept)
    gathered.add(alone)
    end = writer.end(PageEnd(ID))
    body = writer.begin() + gathered.written() + end
    expected = [*block.messages(0, len(block)), *kept.messages(bytes(10)), alone]
    read = avro_read(
        format_.media_type,
        "ConsumeResponse" if format_ is AVRO else "PollResponse",
        body=body,
    )
    if format_ is LABELLED:
        assert [*formats.decode_labelled_page(body)] == expected
    elif format_ is LABELLED_COLUMNS:
        assert [*rows_of(formats.decode_labelled_columns(body))] == expected
    elif format_ is COLUMNS:
        assert b"".join(piece["payloads"] for piece in read["pieces"]) == b"".join(
            one.payload for one in expected
        )
    else:
        found = read if format_ is AVRO else read["messages"]
        assert [(one["id"], one["payload"]) for one in found] == [
            (one.id, one.payload) for one in expected
        ]


def _row(number: int, message: Any) -> tuple[bytes, bytes]:
    payload, key, found = message
    more = {HEADERS: packed(found)} if found else {}
    more |= {} if key is None else {KEY: key}
    return b"%010d" % number, value_head(None, more=more) + payload


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({"hasKey": b"\1"}, "which message has a key"),
        ({"hasKey": b"\1\2"}, "which message has a key"),
        ({"keyPlaces": b""}, "labels of other messages"),
        ({"keyPlaces": bytes(4) * 2}, "labels of other messages"),
        ({"keyPlaces": bytes(12)}, "do not fill"),
        (
            {"keyPlaces": b"\1" + bytes(11)},
            "do not fill",
        ),
        ({"keys": b"kkkk"}, "do not fill"),
        ({"keyPlaces": bytes(4) + b"\4\0\0\0\3\0\0\0"}, "do not rise"),
        ({"headers": b"x"}, "labels of other messages"),
        (
            {"headerPlaces": bytes(4) + b"\1\0\0\0" * 2, "headers": b"x"},
            "are no headers",
        ),
        (
            {"keyPlaces": bytes(8) + b"\1\4\0\0", "keys": bytes(1025)},
            "a key has up to 1024 bytes",
        ),
    ],
)
def test_labels_that_fit_no_messages_are_refused(
    labels: dict[str, bytes], why: str
) -> None:
    good = {
        "hasKey": b"",
        "keyPlaces": bytes(4) + b"\1\0\0\0\3\0\0\0",
        "keys": b"kkk",
        "headerPlaces": b"",
        "headers": b"",
    }
    names_ = [field["name"] for field in SCHEMA["fields"]]
    value = dict.fromkeys(names_) | {"messages": [b"a", b"b"]}
    LABELLED.publish_request(avro_body(value | {"labels": good}))
    with pytest.raises(BadRequest, match=why):
        LABELLED.publish_request(avro_body(value | {"labels": good | labels}))


SCHEMA = formats.schemas()[LABELLED.media_type]["PublishRequest"]


def avro_body(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), value)
    return out.getvalue()


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
