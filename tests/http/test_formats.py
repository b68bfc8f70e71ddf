"""The two Avro types: golden bytes, fastavro as the judge, and what is refused."""

import inspect
import json
from array import array
from collections.abc import Iterable
from itertools import pairwise

import attrs
import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator import codec
from tests.support.format_values import (
    AVRO_TYPE,
    COLUMNS_TYPE,
    MAX_INT,
    MAX_LONG,
    OWN_TYPE,
    avro_read,
    avro_write,
    ids,
    messages,
    outgoing,
    pages,
    payloads,
    poll_requests,
    publish_requests,
    receipts,
    responses,
    same_page,
    written,
)
from txaware.errors import BadRequest, RequestTooLarge
from txaware.model.messages import (
    Message,
    MessageId,
    Outgoing,
    Page,
    PageEnd,
    PublishResponse,
    Receipt,
)
from txaware.protocol import formats
from txaware.protocol.formats import (
    AVRO,
    COLUMNS,
    JSON,
    LABELLED,
    LABELLED_COLUMNS,
    MAX_MESSAGES,
    OWN,
    STABLE,
    ColumnPiece,
    Format,
    PollRequest,
    PublishRequest,
    encode_item,
    long_bytes,
)

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
    whole = formats.encode_publish(request_)
    assert whole == bytes.fromhex(body + "000000")
    assert OWN.publish_request(whole) == request_


def test_golden_publish_response_both_ways() -> None:
    for avro in (AVRO, OWN):
        assert avro.publish_response(RESPONSE) == RESPONSE_BYTES
        assert avro.rollback_request(RESPONSE_BYTES) == RESPONSE
    assert formats.encode_rollback(RESPONSE) == RESPONSE_BYTES
    assert formats.decode_publish_response(RESPONSE_BYTES) == RESPONSE


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
    assert one.encoded(1, encode_item(ID, b"a")) == one.messages([Message(ID, b"a")])


def test_a_store_is_answered_with_nothing_where_cdap_has_no_words() -> None:
    receipt = Receipt(5, "t", b"a1", 3)
    assert AVRO.receipt(receipt) == b""
    assert formats.decode_receipt(OWN.receipt(receipt)) == receipt


@given(publish_requests)
def test_what_the_client_publishes_arrives_unchanged(request: PublishRequest) -> None:
    arrived = OWN.publish_request(formats.encode_publish(request))
    assert [*map(_payload, arrived.messages)] == [*map(_payload, request.messages)]
    assert [*map(_after_ms, arrived.messages)] == [*map(_after_ms, request.messages)]
    assert (arrived.pointer, arrived.attempt) == (request.pointer, request.attempt)
    assert arrived.receipts == request.receipts


def _payload(message: bytes | Outgoing) -> bytes:
    return message.payload if isinstance(message, Outgoing) else message


def _after_ms(message: bytes | Outgoing) -> int | None:
    # As the service takes it.
    after_s = message.expire_after_s if isinstance(message, Outgoing) else None
    return None if after_s is None else int(after_s * 1000)


def test_a_message_that_expires_within_a_millisecond_expires_after_one() -> None:
    request = PublishRequest(None, [Outgoing(b"a", expire_after_s=1e-9)])
    arrived = OWN.publish_request(formats.encode_publish(request))
    assert arrived.messages == [Outgoing(b"a", expire_after_s=0.001)]


@given(publish_requests)
def test_fastavro_reads_what_the_client_publishes(request: PublishRequest) -> None:
    body = formats.encode_publish(request)
    expiries = [*map(_after_ms, request.messages)]
    assert avro_read(OWN_TYPE, "PublishRequest", body=body) == {
        "transactionWritePointer": request.pointer,
        "messages": [*map(_payload, request.messages)],
        "expireAfterMs": expiries if any(expiries) else None,
        "attempt": request.attempt,
        "receipts": None
        if request.receipts is None
        else [_fields(receipt) for receipt in request.receipts],
    }


def _fields(receipt: Receipt) -> dict[str, object]:
    return attrs.asdict(receipt)


@given(st.none() | st.integers(1, MAX_LONG), st.lists(payloads, max_size=8))
def test_what_fastavro_publishes_is_read(
    pointer: int | None, published: list[bytes]
) -> None:
    value = {"transactionWritePointer": pointer, "messages": published}
    body = avro_write(AVRO_TYPE, "PublishRequest", value=value)
    assert AVRO.publish_request(body) == PublishRequest(pointer, [*published])


@given(poll_requests)
def test_what_the_client_polls_for_arrives_unchanged(request: PollRequest) -> None:
    body = formats.encode_poll(request)
    assert OWN.poll_request(body) == request
    fields = avro_read(OWN_TYPE, "PollRequest", body=body)
    assert fields["startFrom"] == request.start
    assert fields["waitMs"] == request.wait_s * 1000


def test_a_limit_above_the_greatest_int_asks_for_that_many() -> None:
    body = formats.encode_poll(PollRequest(limit=10**12))
    assert OWN.poll_request(body).limit == MAX_INT


@pytest.mark.parametrize(
    ("asked_s", "arrived_s"), [(float("inf"), 2**62 / 1000), (-1.0, 0), (1e-9, 0.001)]
)
def test_any_time_to_wait_is_one_on_the_wire(asked_s: float, arrived_s: float) -> None:
    body = formats.encode_poll(PollRequest(wait_s=asked_s))
    assert OWN.poll_request(body).wait_s == arrived_s


@given(poll_requests)
def test_what_fastavro_polls_for_is_read(request: PollRequest) -> None:
    tx = request.transaction
    value = {
        "startFrom": request.start,
        "inclusive": request.inclusive,
        "limit": request.limit,
        "transaction": None if tx is None else codec.encode(tx),
    }
    arrived = AVRO.poll_request(avro_write(AVRO_TYPE, "ConsumeRequest", value=value))
    for name in ("start", "inclusive", "limit", "transaction"):
        assert getattr(arrived, name) == getattr(request, name)


@given(responses, receipts)
def test_answers_come_back_as_they_were(
    response: PublishResponse, receipt: Receipt
) -> None:
    body = OWN.publish_response(response)
    assert formats.decode_publish_response(body) == response
    assert AVRO.rollback_request(formats.encode_rollback(response)) == response
    read = avro_read(AVRO_TYPE, "PublishResponse", body=body)
    assert read["endSequenceId"] == response.end_sequence_id
    assert formats.decode_receipt(OWN.receipt(receipt)) == receipt
    assert avro_read(OWN_TYPE, "Receipt", body=OWN.receipt(receipt)) == _fields(receipt)


@given(pages, st.lists(st.integers(0, 8), max_size=3))
def test_pages_come_back_as_they_were_however_they_are_cut(
    page: Page, cuts: list[int]
) -> None:
    own = written(OWN.page_writer(PollRequest()), page, cuts=cuts)
    assert same_page(formats.decode_page(own), page)
    items = [{"id": one.id, "payload": one.payload} for one in page]
    assert avro_read(OWN_TYPE, "PollResponse", body=own)["messages"] == items
    seed = written(AVRO.page_writer(PollRequest()), page, cuts=cuts)
    assert avro_read(AVRO_TYPE, "ConsumeResponse", body=seed) == items


def rows_of(pieces: Iterable[ColumnPiece]) -> list[Message]:
    """The messages of columns, one by one."""
    rows = []
    for piece in pieces:
        places = memoryview(piece.places).cast("i").tolist()
        rows += [
            Message(MessageId(piece.id_at(at)), piece.payloads[start:end])
            for at, (start, end) in enumerate(pairwise(places))
        ]
    return rows


@given(pages, st.lists(st.integers(0, 8), max_size=3))
def test_columns_have_what_the_page_has(page: Page, cuts: list[int]) -> None:
    body = written(COLUMNS.page_writer(PollRequest()), page, cuts=cuts)
    columns = formats.decode_columnar_page(body)
    assert rows_of(columns.pieces) == [*page]
    assert len(columns) == len(page)
    ends = (columns.next, columns.blocked_by, columns.skipped_before)
    assert ends == (page.next, page.blocked_by, page.skipped_before)
    read = avro_read(COLUMNS_TYPE, "PollResponse", body=body)["pieces"]
    assert b"".join([piece["ids"] for piece in read]) == b"".join(
        [one.id for one in page]
    )


@given(st.lists(messages, max_size=8, unique_by=lambda one: one.id), ids)
def test_columns_are_cut_before_any_id(listed: list[Message], stop: MessageId) -> None:
    listed.sort()
    body = written(COLUMNS.page_writer(PollRequest()), Page(listed, next_id=ID))
    pieces = formats.decode_columnar_page(body).pieces
    for place in (stop, *(message.id for message in listed)):
        below = [message for message in listed if message.id < place]
        assert rows_of([piece.before(place) for piece in pieces]) == below


@pytest.mark.parametrize("places", [(0, 1, 2), (1, 1, 3), (0, 3)])
def test_columns_that_do_not_fit_each_other_are_refused(places: list[int]) -> None:
    columns = (ID + ID, array("i", places).tobytes(), b"abc")
    piece = b"\2" + b"".join(long_bytes(len(one)) + one for one in columns)
    end = COLUMNS.page_writer(PollRequest()).end(PAGE_END)
    with pytest.raises(BadRequest, match="the page has a piece"):
        formats.decode_columnar_page(piece + end)


def test_a_piece_of_no_messages_is_refused() -> None:
    end = COLUMNS.page_writer(PollRequest()).end(PAGE_END)
    with pytest.raises(BadRequest, match="the page has a piece"):
        formats.decode_columnar_page(b"\2\0\x08" + bytes(4) + b"\0" + end)


@pytest.mark.parametrize("avro", [AVRO, OWN])
@given(st.lists(messages, min_size=1, max_size=8))
def test_encoded_items_are_what_messages_would_be(
    avro: Format, listed: list[Message]
) -> None:
    writer = avro.page_writer(PollRequest())
    assert writer.takes_encoded
    items = b"".join(encode_item(one.id, one.payload) for one in listed)
    body = writer.encoded(len(listed), items) + b"\0"
    fields = [{"id": one.id, "payload": one.payload} for one in listed]
    assert avro_read(AVRO_TYPE, "ConsumeResponse", body=body) == fields
    assert writer.encoded(0, b"") == b"", "a block without items would end the array"


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
    assert avro_read(AVRO_TYPE, "PublishRequest", body=body)["messages"] == published


@given(st.integers(-MAX_LONG - 1, MAX_LONG))
def test_every_long_comes_back_as_it_was(number: int) -> None:
    body = b"\0" + long_bytes(number) + b"\0"
    assert AVRO.publish_request(body).pointer == number
    assert avro_read(AVRO_TYPE, "PublishRequest", body=body)["messages"] == []


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


OWN_REFUSED = {
    "more expiries than messages": (
        "02020261000204000000" + "000000",
        "1 messages and",
    ),
    "an expiry, no messages": ("0200020200000000", "0 messages and 1"),
    "the topic is not UTF-8": ("02000000" + "02" + "020204ff80000200", "UTF-8"),
    "the count has 33 bits": ("02000000" + "02" + "0202000080808080200000", "32 bits"),
    "the attempt is cut off": ("0200000206aabb", "value of 3 bytes"),
    "the attempt has -1 bytes": ("0200000201aabb", "value of -1 bytes"),
}


@pytest.mark.parametrize(("body", "reason"), OWN_REFUSED.values(), ids=OWN_REFUSED)
def test_a_body_that_is_none_of_ours_is_refused(body: str, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        OWN.publish_request(bytes.fromhex(body))


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


def test_a_page_that_was_cut_off_anywhere_is_noticed() -> None:
    page = Page([Message(ID, b"abc")] * 3, next_id=ID, skipped_before=5)
    body = written(OWN.page_writer(PollRequest()), page, cuts=[1])
    for size in range(len(body)):
        with pytest.raises(BadRequest):
            formats.decode_page(body[:size])
    with pytest.raises(BadRequest, match="an id that is not 20 bytes"):
        formats.decode_page(body.replace(b"\x28", b"\x26", 1))


@pytest.mark.parametrize("at_once", [1, MAX_MESSAGES])
def test_no_request_holds_more_messages_than_the_limit(at_once: int) -> None:
    block = long_bytes(at_once) + b"\0" * at_once
    blocks = MAX_MESSAGES // at_once
    most = b"\2" + block * blocks + b"\0"
    assert len(AVRO.publish_request(most).messages) == MAX_MESSAGES
    with pytest.raises(RequestTooLarge, match=str(MAX_MESSAGES)):
        AVRO.publish_request(b"\2" + block * (blocks + 1) + b"\0")


def test_receipts_above_the_limit_are_refused_before_the_rest_is_read() -> None:
    receipts_ = long_bytes(1) + b"\0" * 4
    body = b"\2\0\0\0\2" + receipts_ * (MAX_MESSAGES + 1) + b"not read"
    with pytest.raises(RequestTooLarge):
        OWN.publish_request(body)


@pytest.mark.parametrize(
    ("content_type", "format_"),
    [
        ("avro/binary", AVRO),
        ("application/vnd.txaware+avro", OWN),
        ("application/vnd.txaware.columns+avro", COLUMNS),
        ("application/vnd.txaware.v2+avro", LABELLED),
        ("application/vnd.txaware.columns.v2+avro", LABELLED_COLUMNS),
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
        *("application/vnd.TXaware+avro", "application/json; charset=latin-1"),
        *("application/json; q=1", "text/plain", "application/jsonx", "json"),
    ],
)
def test_any_other_content_type_is_refused_naming_all(
    content_type: str | None,
) -> None:
    with pytest.raises(BadRequest) as caught:
        formats.format_of(content_type)
    for format_ in (AVRO, OWN, COLUMNS, LABELLED, STABLE, LABELLED_COLUMNS, JSON):
        assert format_.media_type in str(caught.value)


def test_the_schemas_are_avro_and_a_copy_of_the_callers_own() -> None:
    published = formats.schemas()
    avro = (AVRO, OWN, COLUMNS, LABELLED, STABLE, LABELLED_COLUMNS)
    assert {*published} == {format_.media_type for format_ in avro}
    for named in published.values():
        for schema in named.values():
            fastavro.parse_schema(json.loads(json.dumps(schema)))
            schema.clear()
    assert all(all(named.values()) for named in formats.schemas().values())


@given(outgoing)
def test_a_receipts_list_that_is_empty_is_not_a_missing_one(
    message: bytes | Outgoing,
) -> None:
    for request in (
        PublishRequest(5, [message], receipts=[]),
        PublishRequest(5, [message], receipts=None),
    ):
        arrived = OWN.publish_request(formats.encode_publish(request))
        assert arrived.receipts == request.receipts


def test_public_names_are_complete_and_explained() -> None:
    # Their order is ruff's, which puts constants first.
    public = {
        name
        for name, value in vars(formats).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == {*formats.__all__}
    assert all(inspect.getdoc(getattr(formats, name)) for name in public)
