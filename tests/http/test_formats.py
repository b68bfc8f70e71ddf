"""`avro/binary`: golden bytes, fastavro as the judge, and what is refused."""

import inspect
import json

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator import codec
from tests.support.format_values import (
    MAX_LONG,
    avro_read,
    avro_write,
    labelled_pages,
    messages,
    payloads,
    poll_requests,
    responses,
    written,
)
from txaware.errors import BadRequest, RequestTooLarge
from txaware.model.messages import (
    Message,
    MessageId,
    Page,
    PageEnd,
    PublishResponse,
    Receipt,
)
from txaware.protocol import formats
from txaware.protocol.formats import (
    AVRO,
    JSON,
    MAX_MESSAGES,
    MSGPACK,
    Format,
    PollRequest,
    PublishRequest,
)
from txaware.protocol.formats.avro_format import ITEMS, long_bytes

ID = MessageId.of(1_700_000_000_000, 1)
RESPONSE = PublishResponse(5, 1_700_000_000_000, 0, 1_700_000_000_000, 1)
RESPONSE_BYTES = bytes.fromhex("000a80a0abfef9620080a0abfef96202")
PAGE_END = PageEnd(ID)


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        ("0202026100", PublishRequest(None, [b"a"])),
        ("000a02026100", PublishRequest(5, [b"a"])),
        ("000a00", PublishRequest(5, [])),
    ],
)
def test_golden_publish_requests_are_read(body: str, request_: PublishRequest) -> None:
    assert AVRO.publish_request(bytes.fromhex(body)) == request_


def test_golden_publish_response_both_ways() -> None:
    assert AVRO.publish_response(RESPONSE) == RESPONSE_BYTES
    assert AVRO.rollback_request(RESPONSE_BYTES) == RESPONSE


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        ("04010202", PollRequest()),
        ("020001001402", PollRequest(start=0, limit=10)),
        ("0028" + ID.hex() + "000202", PollRequest(start=ID, inclusive=False)),
        ("002c" + ID.hex() + "ffff010202", PollRequest(start=ID)),
    ],
)
def test_golden_poll_requests_are_read(body: str, request_: PollRequest) -> None:
    assert AVRO.poll_request(bytes.fromhex(body)) == request_


def test_golden_results_are_written() -> None:
    empty, one = AVRO.page_writer(PollRequest()), AVRO.page_writer(PollRequest())
    assert empty.begin() + empty.messages([]) + empty.end(PAGE_END) == b"\0"
    assert one.messages([Message(ID, b"a")]) + one.end(PAGE_END) == bytes.fromhex(
        "0228" + ID.hex() + "026100"
    )
    item = ITEMS.item(ID, b"a")
    assert one.blocks([(1, item)], None) == one.messages([Message(ID, b"a")])


def test_a_store_is_answered_with_nothing_where_cdap_has_no_words() -> None:
    assert AVRO.receipt(Receipt(5, "t", b"a1", 3)) == b""


@given(st.none() | st.integers(1, MAX_LONG), st.lists(payloads, max_size=8))
def test_what_fastavro_publishes_is_read(
    pointer: int | None, published: list[bytes]
) -> None:
    value = {"transactionWritePointer": pointer, "messages": published}
    body = avro_write("PublishRequest", value=value)
    assert AVRO.publish_request(body) == PublishRequest(pointer, [*published])


@given(responses)
def test_fastavro_reads_a_response(response: PublishResponse) -> None:
    body = AVRO.publish_response(response)
    assert AVRO.rollback_request(body) == response
    read = avro_read("PublishResponse", body=body)
    assert read["endSequenceId"] == response.end_sequence_id


@given(labelled_pages, st.lists(st.integers(0, 8), max_size=3))
def test_fastavro_reads_a_page_however_it_is_cut(page: Page, cuts: list[int]) -> None:
    body = written(AVRO.page_writer(PollRequest()), page, cuts=cuts)
    items = [{"id": one.id, "payload": one.payload} for one in page]
    assert avro_read("ConsumeResponse", body=body) == items


@given(poll_requests)
def test_what_fastavro_polls_for_is_read(request: PollRequest) -> None:
    tx = request.transaction
    value = {
        "startFrom": request.start,
        "inclusive": request.inclusive,
        "limit": request.limit,
        "transaction": None if tx is None else codec.encode(tx),
    }
    arrived = AVRO.poll_request(avro_write("ConsumeRequest", value=value))
    for name in ("start", "inclusive", "limit", "transaction"):
        assert getattr(arrived, name) == getattr(request, name)


@given(st.lists(messages, max_size=8))
def test_encoded_items_are_what_messages_would_be(listed: list[Message]) -> None:
    writer = AVRO.page_writer(PollRequest())
    items = b"".join(ITEMS.item(one.id, one.payload) for one in listed)
    body = writer.blocks([(len(listed), items), (0, b"")], None) + b"\0"
    fields = [{"id": one.id, "payload": one.payload} for one in listed]
    assert avro_read("ConsumeResponse", body=body) == fields


def test_a_block_is_closed_as_soon_as_it_holds_60_000_bytes() -> None:
    writer = AVRO.page_writer(PollRequest())
    two = writer.messages([Message(ID, bytes(30_000))] * 2)
    assert len(two) == 60_049
    assert writer.messages([Message(ID, bytes(30_000))] * 6) == two * 3
    # 59,999, so that a second one fits; 60,000, so that none does.
    shorter = writer.messages([Message(ID, bytes(59_971))] * 2)
    assert shorter[:1] == long_bytes(2)
    full = writer.messages([Message(ID, bytes(59_972))] * 2)
    assert full[:1] == long_bytes(1)
    assert full[: len(full) // 2] * 2 == full


def test_arrays_in_many_blocks_with_and_without_sizes_are_read() -> None:
    sized = long_bytes(-2) + long_bytes(4) + b"\2a\2b"
    body = b"\2" + sized + long_bytes(1) + b"\2c" + sized + b"\0"
    published = [b"a", b"b", b"c", b"a", b"b"]
    assert AVRO.publish_request(body) == PublishRequest(None, [*published])
    assert avro_read("PublishRequest", body=body)["messages"] == published


@given(st.integers(-MAX_LONG - 1, MAX_LONG))
def test_every_long_comes_back_as_it_was(number: int) -> None:
    body = b"\0" + long_bytes(number) + b"\0"
    assert AVRO.publish_request(body).pointer == number
    assert avro_read("PublishRequest", body=body)["messages"] == []


REFUSED = {
    "nothing": ("", "too early"),
    "no messages": ("000a", "too early"),
    "a count and no messages": ("0002", "too early"),
    "a message that is cut off": ("0202066162", "too early"),
    "the last message cut off": ("02040261066162", "too early"),
    "a third branch": ("0400", "branch 2"),
    "a branch below none": ("0100", "branch -1"),
    "a message of -1 bytes": ("0202016100", "less than no bytes"),
    "a long message of -9000 bytes": ("0202cf8c016100", "less than no bytes"),
    "the greatest size": ("0202feffffffffffffffff016100", "too early"),
    "65 bits": ("00ffffffffffffffffff0300", "64 bits"),
    "a number without end": ("00" + "80" * 100 + "0000", "64 bits"),
    "2^61 messages": ("02feffffffffffffff3f", "above the limit"),
    "-2^63 messages": ("02ffffffffffffffffff0100", "above the limit"),
    "something behind": ("020202610000", "1 follow"),
}


@pytest.mark.parametrize(("body", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_body_that_is_no_publish_request_is_refused(body: str, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        AVRO.publish_request(bytes.fromhex(body))


POLL_REFUSED = {
    "an id of 19 bytes": ("0026" + "00" * 19 + "010202", "20 bytes, not 19"),
    "an inclusive of 2": ("04020202", "boolean of 2"),
    "a limit of 33 bits": ("0401008080808010" + "02", "32 bits"),
    "a transaction that is none": ("040102000400ff", "transaction"),
    "no transaction": ("040102", "too early"),
}


@pytest.mark.parametrize(("body", "reason"), POLL_REFUSED.values(), ids=POLL_REFUSED)
def test_a_body_that_is_no_poll_is_refused(body: str, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        AVRO.poll_request(bytes.fromhex(body))


def test_a_rollback_without_a_pointer_or_with_a_wide_sequence_is_refused() -> None:
    with pytest.raises(BadRequest, match="transactionWritePointer"):
        AVRO.rollback_request(b"\2" + RESPONSE_BYTES[2:])
    with pytest.raises(BadRequest, match="32 bits"):
        AVRO.rollback_request(b"\0\x0a\0" + long_bytes(2**31) + b"\0\0")


@pytest.mark.parametrize("at_once", [1, MAX_MESSAGES])
def test_no_request_holds_more_messages_than_the_limit(at_once: int) -> None:
    block = long_bytes(at_once) + b"\0" * at_once
    blocks = MAX_MESSAGES // at_once
    most = b"\2" + block * blocks + b"\0"
    assert len(AVRO.publish_request(most).messages) == MAX_MESSAGES
    with pytest.raises(RequestTooLarge, match=str(MAX_MESSAGES)):
        AVRO.publish_request(b"\2" + block * (blocks + 1) + b"\0")


@pytest.mark.parametrize(
    ("content_type", "format_"),
    [
        ("avro/binary", AVRO),
        ("application/vnd.txaware+msgpack", MSGPACK),
        ("application/json", JSON),
        ("Application/JSON; Charset=UTF-8", JSON),
        ('application/json;charset="utf-8"', JSON),
    ],
)
def test_a_content_type_names_a_format(content_type: str, format_: Format) -> None:
    assert formats.format_of(content_type) is format_


@pytest.mark.parametrize(
    "content_type",
    [
        *(None, "", "avro/Binary", "avro/binary; charset=utf-8", " avro/binary"),
        *("application/vnd.TXaware+msgpack", "application/json; charset=latin-1"),
        *("application/json; q=1", "text/plain", "application/jsonx", "json"),
    ],
)
def test_any_other_content_type_is_refused_naming_all(
    content_type: str | None,
) -> None:
    with pytest.raises(BadRequest) as caught:
        formats.format_of(content_type)
    for format_ in (AVRO, MSGPACK, JSON):
        assert format_.media_type in str(caught.value)


@pytest.mark.parametrize(
    "content_type",
    ["application/vnd.txaware+avro", "application/vnd.txaware.columns.v2+avro"],
)
def test_a_type_of_clients_of_before_is_refused_in_one_sentence(
    content_type: str,
) -> None:
    with pytest.raises(BadRequest, match="the client is older than this server") as no:
        formats.format_of(content_type)
    assert content_type in str(no.value)
    assert not str(no.value).startswith(formats.WRONG_TYPE)


def test_the_schemas_are_avro_and_a_copy_of_the_callers_own() -> None:
    published = formats.schemas()
    assert {*published} == {AVRO.media_type}
    for schema in published[AVRO.media_type].values():
        fastavro.parse_schema(json.loads(json.dumps(schema)))
        schema.clear()
    assert all(formats.schemas()[AVRO.media_type].values())


def test_public_names_are_complete_and_explained() -> None:
    # Their order is ruff's, which puts constants first.
    public = {
        name
        for name, value in vars(formats).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == {*formats.__all__}
    assert all(inspect.getdoc(getattr(formats, name)) for name in public)
