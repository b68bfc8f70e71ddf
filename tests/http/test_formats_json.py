"""JSON bodies: every form that is read, every one that is refused, and the answers."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator import codec
from tests.support.format_values import (
    MAX_INT,
    MAX_LONG,
    pages,
    poll_requests,
    receipts,
    responses,
    written,
)
from txaware.errors import BadRequest, RequestTooLarge
from txaware.model.messages import (
    BlockedBy,
    Message,
    MessageId,
    Outgoing,
    Page,
    PageEnd,
    PublishResponse,
    Receipt,
    page_of,
)
from txaware.protocol.formats import (
    JSON,
    MAX_MESSAGES,
    PollRequest,
    PublishRequest,
)
from txaware.protocol.json_values import MAX_MARKS, has_marks

ID = MessageId.of(1_700_000_000_000, 1)
TWO_WAYS = r'{"utf8": "..."}.*{"base64": "..."}'
RANGE = {
    "startTimestamp": 1_700_000_000_000,
    "startSequenceId": 0,
    "endTimestamp": 1_700_000_000_000,
    "endSequenceId": 1,
}
RESPONSE = PublishResponse(5, *RANGE.values())


def body_of(value: object) -> bytes:
    return json.dumps(value).encode()


def published(**fields: object) -> PublishRequest:
    return JSON.publish_request(body_of({"messages": [], **fields}))


def polled(**fields: object) -> PollRequest:
    return JSON.poll_request(body_of(fields))


@pytest.mark.parametrize("pointer", [5, {"long": 5}])
def test_a_pointer_is_plain_or_tagged(pointer: object) -> None:
    assert published(transactionWritePointer=pointer) == PublishRequest(5, [])


@pytest.mark.parametrize("fields", [{}, {"transactionWritePointer": None}])
def test_a_pointer_may_be_null_or_missing(fields: dict[str, object]) -> None:
    assert published(messages=["a"], **fields) == PublishRequest(None, [b"a"])


@pytest.mark.parametrize(
    ("message", "payload"),
    [
        ("a", b"a"),
        ("", b""),
        ("\u0000\u00ff", b"\0\xff"),
        ({"utf8": "\u20ac"}, b"\xe2\x82\xac"),
        ({"base64": "AP8="}, b"\0\xff"),
        ({"base64": "AP8=", "expireAfterMs": None}, b"\0\xff"),
        ({"utf8": "a", "expireAfterMs": 5000}, Outgoing(b"a", expire_after_s=5.0)),
        (
            {"utf8": "a", "expireAfterMs": {"long": 1}},
            Outgoing(b"a", expire_after_s=0.001),
        ),
    ],
)
def test_a_message_is_a_string_a_byte_a_character_or_utf8_or_base64(
    message: object, payload: bytes | Outgoing
) -> None:
    assert published(messages=[message]).messages == [payload]


@given(st.binary(max_size=50))
def test_all_bytes_can_be_published_by_avros_rule(payload: bytes) -> None:
    assert published(messages=[payload.decode("latin-1")]).messages == [payload]


@given(st.integers(1, 2**50))
def test_a_message_expires_after_the_milliseconds_it_names(after_ms: int) -> None:
    (message,) = published(messages=[{"utf8": "", "expireAfterMs": after_ms}]).messages
    assert isinstance(message, Outgoing)
    assert message.expire_after_s is not None
    assert int(message.expire_after_s * 1000) == after_ms


@pytest.mark.parametrize("tag", [False, True])
def test_receipts_and_attempt_travel_and_null_receipts_are_not_none_of_them(
    tag: bool,
) -> None:
    listed = [{"pointer": 5, "topic": "ns:t", "attempt": "YTE=", "count": 3}]
    request = published(
        receipts={"array": listed} if tag else listed,
        attempt={"bytes": "a1"} if tag else "YTE=",
    )
    assert request.receipts == [Receipt(5, "ns:t", b"a1", 3)]
    assert request.attempt == b"a1"
    assert published(receipts=[]).receipts == []
    assert published(receipts=None, attempt=None) == published()
    assert published(attempt="").attempt == b""


PUBLISH_REFUSED = {
    "no messages": ({}, r"messages is missing; \[\]"),
    "a typo": ({"mesages": [], "messages": []}, "'mesages', which is none of"),
    "above U+00FF": ({"messages": ["\u20ac"]}, TWO_WAYS),
    "a lone surrogate": ({"messages": ["\ud800"]}, TWO_WAYS),
    "a lone surrogate in utf8": ({"messages": [{"utf8": "\ud800"}]}, "surrogate"),
    "base64 with a stranger": ({"messages": [{"base64": "A!A="}]}, "not base64"),
    "base64 without padding": ({"messages": [{"base64": "AP8"}]}, "not base64"),
    "base64 behind padding": ({"messages": [{"base64": "AP8=AP8="}]}, "not base64"),
    "base64 that is not ASCII": ({"messages": [{"base64": "\xe9"}]}, "not base64"),
    "base64 of a number": ({"messages": [{"base64": 5}]}, "base64, not 5"),
    "two ways at once": ({"messages": [{"utf8": "", "base64": ""}]}, "either utf8 or"),
    "no way": ({"messages": [{"expireAfterMs": 5}]}, "either utf8 or base64"),
    "another way": ({"messages": [{"hex": "00"}]}, "'hex', which is none of utf8"),
    "a number": ({"messages": [5]}, "no string is an object, not 5"),
    "a message of null": ({"messages": [None]}, "not null"),
    "a string of messages": ({"messages": "abc"}, "an array, not 'abc'"),
    "an object of messages": ({"messages": {"a": 1}}, "not an object with 'a'"),
    "a pointer of text": ({"transactionWritePointer": "5"}, "whole number, not '5'"),
    "a pointer of true": ({"transactionWritePointer": True}, "number, not true"),
    "another tag": ({"transactionWritePointer": {"int": 5}}, "object with 'int'"),
    "two tags": ({"transactionWritePointer": {"long": 5, "a": 1}}, "'long', 'a'"),
    "a tagged null": ({"transactionWritePointer": {"long": None}}, "written plainly"),
    "tags in tags": ({"transactionWritePointer": {"long": {"long": 5}}}, "number"),
    "2^63": ({"transactionWritePointer": 2**63}, "64 bits"),
    "a huge number": ({"transactionWritePointer": 10**30}, "31 digits"),
    "expiry of text": ({"messages": [{"utf8": "", "expireAfterMs": "5"}]}, "number"),
    "receipts of text": ({"receipts": "abc"}, "array"),
    "a receipt of text": ({"receipts": ["abc"]}, "a receipt is an object"),
    "half a receipt": ({"receipts": [{"pointer": 5}]}, "a receipt has no topic"),
    "a count of 33 bits": (
        {"receipts": [{"pointer": 5, "topic": "", "attempt": "", "count": 2**31}]},
        "32 bits",
    ),
    "a surrogate in a topic": (
        {"receipts": [{"pointer": 5, "topic": "\udc00", "attempt": "", "count": 1}]},
        "surrogate",
    ),
    "an attempt of a number": ({"attempt": 5}, "attempt is a string of base64"),
}


@pytest.mark.parametrize(
    ("fields", "reason"), PUBLISH_REFUSED.values(), ids=PUBLISH_REFUSED
)
def test_json_that_is_no_publish_request_is_refused(
    fields: dict[str, object], reason: str
) -> None:
    asked = fields if not fields or "messages" in fields else {"messages": [], **fields}
    with pytest.raises(BadRequest, match=reason) as caught:
        JSON.publish_request(body_of(asked))
    str(caught.value).encode()


NO_JSON = {
    "nothing": (b"", "not JSON"),
    "no UTF-8": (b'{"messages": ["\xff"]}', "not JSON in UTF-8"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "BOM"),
    "UTF-16": ('{"messages": []}'.encode("utf-16"), "not JSON in UTF-8"),
    "something behind": (b'{"messages": []} x', "Extra data"),
    "a comma too much": (b'{"messages": [],}', "not JSON"),
    "a control character": (b'{"messages": ["\n"]}', "control character"),
    "null": (b"null", "an object, not null"),
    "an array": (b"[]", "an object, not an array"),
    "NaN": (b'{"messages": [], "attempt": NaN}', "whole here, not NaN"),
    "-Infinity": (b'{"messages": [], "attempt": -Infinity}', "not -Infinity"),
    "a fraction": (b'{"messages": [], "transactionWritePointer": 5.0}', "not 5.0"),
    "an exponent": (b'{"messages": [], "transactionWritePointer": 1e400}', "whole"),
    "5,000 digits": (
        b'{"transactionWritePointer": ' + b"1" * 5000 + b"}",
        "5000 digits",
    ),
    "nested": (b"[" * 100_000, "nested too deep"),
    "nested objects": (b'{"messages":' * 100_000, "nested too deep"),
}


@pytest.mark.parametrize(("body", "reason"), NO_JSON.values(), ids=NO_JSON)
def test_a_body_that_is_no_strict_json_object_is_refused(
    body: bytes, reason: str
) -> None:
    for read in (JSON.publish_request, JSON.poll_request, JSON.rollback_request):
        with pytest.raises(BadRequest, match=reason):
            read(body)


def test_an_error_message_stays_short() -> None:
    for value in ("x" * 10**6, {"x" * 10**6: 1}, ["x"] * 10**5):
        with pytest.raises(BadRequest) as caught:
            published(transactionWritePointer=value)
        assert len(str(caught.value)) < 200


def test_no_json_holds_more_messages_than_the_limit() -> None:
    assert len(published(messages=[""] * MAX_MESSAGES).messages) == MAX_MESSAGES
    with pytest.raises(RequestTooLarge, match=str(MAX_MESSAGES)):
        published(messages=[""] * (MAX_MESSAGES + 1))


@pytest.mark.parametrize("filler", [b"{},", b"[],", b'"",', b"1,", b'{"":{"":1}},'])
def test_json_of_too_many_values_is_refused_before_it_is_read(filler: bytes) -> None:
    body = b"[" + filler * (MAX_MARKS + 1) + b"not JSON"
    with pytest.raises(RequestTooLarge):
        JSON.publish_request(body)


def test_a_text_of_many_commas_and_brackets_is_one_value() -> None:
    text = ',{["\\' * (MAX_MARKS // 2)
    assert published(messages=[text]).messages == [text.encode()]


@given(st.binary(max_size=30) | st.text('",{[\\a', max_size=30).map(str.encode))
def test_marks_are_counted_outside_strings(body: bytes) -> None:
    count, quoted, escaped = 0, False, False
    for char in body.decode("latin-1"):
        count += char in ",{[" and not quoted
        quoted ^= char == '"' and not escaped
        escaped = quoted and char == "\\" and not escaped
    assert not has_marks(body, more_than=count)
    assert all(has_marks(body, more_than=fewer) for fewer in range(count))


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("pointer", [5, {"long": 5}])
def test_a_rollback_is_flat_or_nested(nested: bool, pointer: object) -> None:
    ends = {"rollbackRange": RANGE} if nested else RANGE
    body = body_of({"transactionWritePointer": pointer, **ends})
    assert JSON.rollback_request(body) == RESPONSE


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"transactionWritePointer": None}, "whole number, not null"),
        ({"startSequenceId": 2**31}, "32 bits"),
        ({"endTimestamp": -(2**63) - 1}, "64 bits"),
        ({"rollbackRange": RANGE}, "a PublishResponse has a field"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_rollback_of_anything_else_is_refused(
    changed: dict[str, object], reason: str
) -> None:
    whole = {"transactionWritePointer": 5, **RANGE}
    with pytest.raises(BadRequest, match=reason):
        JSON.rollback_request(body_of({**whole, **changed}))
    for name in whole:
        fewer = {field: value for field, value in whole.items() if field != name}
        with pytest.raises(BadRequest, match=f"has no {name}"):
            JSON.rollback_request(body_of(fewer))


@given(responses, receipts)
def test_answers_are_requests_again(
    response: PublishResponse, receipt: Receipt
) -> None:
    assert JSON.rollback_request(JSON.publish_response(response)) == response
    fields = json.loads(JSON.receipt(receipt))
    assert published(receipts=[fields]).receipts == [receipt]


def test_the_answer_to_a_publish_has_the_names_of_cdap() -> None:
    fields = {"transactionWritePointer": 5, **RANGE}
    assert json.loads(JSON.publish_response(RESPONSE)) == fields


def test_a_poll_of_nothing_is_for_everything() -> None:
    assert polled() == PollRequest()
    nothing = {"startFrom": None, "limit": None, "transaction": None}
    assert polled(**nothing) == PollRequest()


@pytest.mark.parametrize(
    ("start_from", "start"),
    [
        (0, 0),
        ({"long": 5}, 5),
        (-1, -1),
        (str(ID), ID),
        (str(ID).upper(), ID),
        ({"bytes": ID.decode("latin-1")}, ID),
        ({"bytes": ID.decode("latin-1") + "more"}, ID),
    ],
)
def test_a_poll_starts_from_a_time_or_an_id(
    start_from: object, start: MessageId | int
) -> None:
    assert polled(startFrom=start_from) == PollRequest(start=start)


@given(poll_requests, st.booleans())
def test_a_poll_in_json_is_what_it_says(request: PollRequest, tagged: bool) -> None:
    tx, limit = request.transaction, request.limit
    data = b"" if tx is None else codec.encode(tx)
    plain = (
        {"bytes": data.decode("latin-1")} if tagged else base64.b64encode(data).decode()
    )
    start = request.start
    asked = polled(
        startFrom=str(start) if isinstance(start, bytes) else start,
        inclusive=request.inclusive,
        limit={"int": limit} if tagged and limit is not None else limit,
        transaction=None if tx is None else plain,
        isolation=request.isolation,
        waitMs=int(request.wait_s * 1000),
    )
    assert asked == request


POLL_REFUSED = {
    "an unknown field": ({"start": 5}, "'start', which is none of startFrom"),
    "39 digits": ({"startFrom": "0" * 39}, "40 hex digits"),
    "a time as text": ({"startFrom": "1700000000000"}, "40 hex digits or a time"),
    "40 that are not hex": ({"startFrom": "g" * 40}, "40 hex digits"),
    "19 bytes": ({"startFrom": {"bytes": "0" * 19}}, "20 bytes, not 19"),
    "a euro sign": ({"startFrom": {"bytes": "\u20ac" * 20}}, "U\\+00FF"),
    "start of true": ({"startFrom": True}, "whole number, not true"),
    "start of an array": ({"startFrom": []}, "whole number"),
    "inclusive of 1": ({"inclusive": 1}, "true or false, not 1"),
    "inclusive of null": ({"inclusive": None}, "true or false, not null"),
    "a limit of 33 bits": ({"limit": 2**31}, "32 bits"),
    "a limit of true": ({"limit": True}, "whole number, not true"),
    "a limit of a long": ({"limit": {"long": 5}}, "whole number"),
    "a transaction of 5": ({"transaction": 5}, "base64, not 5"),
    "a transaction of nothing": ({"transaction": ""}, "ends too early"),
    "a transaction that is cut": ({"transaction": "CgAB"}, "ends too early"),
    "isolation of 5": ({"isolation": 5}, "isolation is a string"),
    "waitMs of null": ({"waitMs": None}, "waitMs is a whole number"),
    "waitMs of text": ({"waitMs": "5"}, "waitMs is a whole number"),
    "page of text": ({"page": "true"}, "true or false"),
    "payloadAs of hex": ({"payloadAs": "hex"}, "avro.*utf8.*base64.*not 'hex'"),
    "payloadAs of null": ({"payloadAs": None}, "payloadAs is one of"),
}


@pytest.mark.parametrize(("fields", "reason"), POLL_REFUSED.values(), ids=POLL_REFUSED)
def test_json_that_is_no_poll_is_refused(
    fields: dict[str, object], reason: str
) -> None:
    with pytest.raises(BadRequest, match=reason):
        JSON.poll_request(body_of(fields))


@pytest.mark.parametrize("number", [MAX_INT, -MAX_INT - 1])
def test_the_outermost_numbers_are_taken(number: int) -> None:
    assert polled(limit=number).limit == number
    assert published(transactionWritePointer=MAX_LONG).pointer == MAX_LONG


@given(pages, st.lists(st.integers(0, 8), max_size=3))
def test_a_page_is_json_however_it_is_cut(page: Page, cuts: list[int]) -> None:
    array = written(JSON.page_writer(PollRequest()), page, cuts=cuts)
    whole = written(JSON.page_writer(PollRequest(page=True)), page, cuts=cuts)
    fields = json.loads(whole)
    assert fields.pop("messages") == json.loads(array)
    assert [
        (each["id"], each["payload"].encode("latin-1")) for each in json.loads(array)
    ] == [(str(one.id), one.payload) for one in page]
    blocked = page.blocked_by
    assert fields == {
        "next": str(page.next),
        "blockedBy": blocked
        and {"pointer": blocked.pointer, "sinceMs": blocked.since_ms},
        "skippedBefore": page.skipped_before,
        "lastStable": None,
    }


def test_a_field_that_is_named_twice_counts_with_its_last_value() -> None:
    body = b'{"messages": ["a"], "messages": [{"utf8": "b", "utf8": "c"}]}'
    assert JSON.publish_request(body).messages == [b"c"]


def test_answers_without_and_with_page() -> None:
    end = PageEnd(ID, BlockedBy(5, 7), last_stable=ID.after())
    page = page_of([Message(ID, b"a\xff")], end)
    array = f'[{{"id":"{ID}","payload":"a\u00ff"}}]'
    assert written(JSON.page_writer(PollRequest()), page).decode() == array
    assert written(JSON.page_writer(PollRequest(page=True)), page).decode() == (
        f'{{"messages":{array},"next":"{ID}",'
        f'"blockedBy":{{"pointer":5,"sinceMs":7}},"skippedBefore":null,'
        f'"lastStable":"{ID.after()}"}}'
    )


@pytest.mark.parametrize(
    ("payload_as", "payload", "text"),
    [
        ("avro", b"\xe2\x82\xac", "\u00e2\u0082\u00ac"),
        ("utf8", b"\xe2\x82\xac", "\u20ac"),
        ("utf8", b"a\xff", {"base64": "Yf8="}),
        ("base64", b"a\xff", "Yf8="),
        ("utf8", b'"\\\n\0', '"\\\n\0'),
    ],
)
def test_a_payload_comes_as_it_was_asked_for(
    payload_as: str, payload: bytes, text: Any
) -> None:
    writer = JSON.page_writer(polled(payloadAs=payload_as))
    page = Page([Message(ID, payload)], next_id=ID)
    assert json.loads(written(writer, page)) == [{"id": str(ID), "payload": text}]


@given(st.binary(max_size=20))
def test_what_comes_as_utf8_can_be_published_again(payload: bytes) -> None:
    writer = JSON.page_writer(PollRequest(payload_as="utf8"))
    (message,) = json.loads(written(writer, Page([Message(ID, payload)], next_id=ID)))
    text = message["payload"]
    again = {"utf8": text} if isinstance(text, str) else text
    assert published(messages=[again]).messages == [payload]
