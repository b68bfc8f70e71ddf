"""The msgpack of our client: both ends, golden bytes, and what is refused."""

from array import array
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.format_values import (
    MAX_INT,
    headers,
    ids,
    keys,
    labelled,
    labelled_pages,
    outgoing,
    payloads,
    poll_requests,
    publish_requests,
    receipts,
    responses,
    same_page,
    written,
)
from txaware.errors import BadRequest, RequestTooLarge
from txaware.model.compression import Packed
from txaware.model.labels import MAX_KEY_BYTES, Labels, packed, unpacked
from txaware.model.messages import (
    Message,
    MessageId,
    Outgoing,
    Page,
    PageEnd,
    PublishResponse,
    Receipt,
)
from txaware.model.producers import ProducerIdentity
from txaware.model.requests import Payload, checked_payloads
from txaware.protocol import formats
from txaware.protocol.formats import (
    JSON,
    MAX_MESSAGES,
    MSGPACK,
    ColumnPiece,
    OnceRequest,
    PageWriter,
    PollRequest,
    PublishRequest,
    msgpack_format,
)
from txaware.server.routes.polls import gathering
from txaware.store.columns import HEADERS, KEY, value_head
from txaware.store.message_table import decode_block
from txaware.store.payload_table import StoredPayloads

ID = MessageId.of(1_700_000_000_000, 1)
COLUMNS = PollRequest(columns=True)
cuts = st.lists(st.integers(0, 8), max_size=3)
pack = msgspec.msgpack.encode


def said(messages: Iterable[Payload]) -> list[tuple[Any, ...]]:
    """Messages as a service takes them, with whole ms."""
    found = []
    for one in checked_payloads(messages, limit_bytes=1 << 20):
        many = one if isinstance(one, Outgoing) else Outgoing(one)
        after_s = many.expire_after_s
        after_ms = None if after_s is None else int(after_s * 1000)
        found.append((many.payload, many.key, many.headers, after_ms))
    return found


@given(publish_requests)
def test_what_the_client_publishes_arrives_unchanged(request: PublishRequest) -> None:
    arrived = MSGPACK.publish_request(formats.encode_publish(request))
    assert said(arrived.messages) == said(request.messages)
    assert (arrived.pointer, arrived.attempt) == (request.pointer, request.attempt)
    assert arrived.receipts == request.receipts


@given(st.lists(outgoing, max_size=8), st.booleans())
def test_what_a_producer_publishes_arrives_unchanged(
    listed: list[Payload], by_client: bool
) -> None:
    identity = ProducerIdentity(5, 6, by_client)
    body = formats.encode_once(OnceRequest(identity, 7, listed))
    arrived = msgpack_format.read_once(body)
    assert (arrived.producer, arrived.sequence) == (identity, 7)
    assert not isinstance(arrived.messages, Packed)
    assert said(arrived.messages) == said(listed)


def test_a_message_that_expires_within_a_millisecond_expires_after_one() -> None:
    request = PublishRequest(None, [Outgoing(b"a", expire_after_s=1e-9)])
    arrived = MSGPACK.publish_request(formats.encode_publish(request))
    assert [*arrived.messages] == [Outgoing(b"a", expire_after_s=0.001)]


def test_golden_bodies() -> None:
    """The bytes that a client of today sends to a server of tomorrow."""
    keyed: list[Payload] = [Outgoing(b"a", b"k", {"h": b"v"}), b"b"]
    assert msgspec.msgpack.decode(
        formats.encode_publish(PublishRequest(5, keyed, attempt=b"x"))
    ) == {
        "messages": [b"a", b"b"],
        "keys": [b"k", None],
        "headers": [b"\0\1\0\0\0\1hv", b""],
        "transactionWritePointer": 5,
        "attempt": b"x",
    }
    assert formats.encode_publish(PublishRequest(None, [b"a"])).hex() == (
        "81a86d6573736167657391c40161"
    )
    page = Page([Message(ID, b"a", b"k")], next_id=ID)
    assert written(MSGPACK.page_writer(PollRequest()), page).hex() == "".join(
        (
            *("00000025", "9400", "dd00000002", "c414" + ID.hex(), "c40161"),
            *("91c4016b", "c0"),
            *("0000001b", "9502", "c414" + ID.hex(), "c0c0c0"),
        )
    )


@given(poll_requests, st.booleans())
def test_what_the_client_polls_for_arrives_unchanged(
    request: PollRequest, columns: bool
) -> None:
    asked = attrs.evolve(request, columns=columns)
    assert MSGPACK.poll_request(formats.encode_poll(asked)) == asked


def test_a_limit_above_the_greatest_int_asks_for_that_many() -> None:
    body = formats.encode_poll(PollRequest(limit=10**12))
    assert MSGPACK.poll_request(body).limit == MAX_INT


@pytest.mark.parametrize(
    ("asked_s", "arrived_s"), [(float("inf"), 2**62 / 1000), (-1.0, 0), (1e-9, 0.001)]
)
def test_any_time_to_wait_is_one_on_the_wire(asked_s: float, arrived_s: float) -> None:
    body = formats.encode_poll(PollRequest(wait_s=asked_s))
    assert MSGPACK.poll_request(body).wait_s == arrived_s


@given(responses, receipts, st.lists(ids, max_size=5))
def test_answers_come_back_as_they_were(
    response: PublishResponse, receipt: Receipt, found: list[MessageId]
) -> None:
    body = MSGPACK.publish_response(response)
    assert formats.decode_publish_response(body) == response
    assert MSGPACK.rollback_request(formats.encode_rollback(response)) == response
    assert formats.decode_receipt(MSGPACK.receipt(receipt)) == receipt
    assert formats.decode_ids(msgpack_format.write_ids(found)) == found


@given(labelled_pages, cuts)
def test_pages_come_back_as_they_were_however_they_are_cut(
    page: Page, at: list[int]
) -> None:
    body = written(MSGPACK.page_writer(PollRequest()), page, cuts=at)
    assert same_page(formats.decode_page(body), page)


@given(labelled_pages, cuts)
def test_columns_have_what_the_page_has(page: Page, at: list[int]) -> None:
    body = written(MSGPACK.page_writer(COLUMNS), page, cuts=at)
    columns = formats.decode_columnar_page(body)
    assert rows_of(columns.pieces) == [*page]
    assert len(columns) == len(page)
    ends = (columns.next, columns.blocked_by, columns.skipped_before)
    assert ends == (page.next, page.blocked_by, page.skipped_before)


@given(st.lists(labelled, max_size=8, unique_by=lambda one: one.id), ids)
def test_columns_are_cut_before_any_id(listed: list[Message], stop: MessageId) -> None:
    listed.sort()
    body = written(MSGPACK.page_writer(COLUMNS), Page(listed, next_id=ID))
    pieces = formats.decode_columnar_page(body).pieces
    for place in (stop, *(message.id for message in listed)):
        below = [message for message in listed if message.id < place]
        assert rows_of([piece.before(place) for piece in pieces]) == below


def rows_of(pieces: Iterable[ColumnPiece]) -> list[Message]:
    """The messages of columns, one by one."""
    rows = []
    for piece in pieces:
        labels = piece.labels or Labels.nothing(len(piece))
        places = memoryview(piece.places).cast("i").tolist()
        rows += [
            Message(
                MessageId(piece.id_at(at)),
                piece.payloads[start:end],
                labels.keys[at],
                unpacked(labels.headers[at]),
            )
            for at, (start, end) in enumerate(pairwise(places))
        ]
    return rows


described = st.lists(st.tuples(payloads, keys, headers), min_size=1, max_size=6)


@pytest.mark.parametrize("asked", [PollRequest(), COLUMNS], ids=["rows", "columns"])
@given(described, described, labelled)
def test_what_the_server_gathers_is_what_the_format_writes(
    asked: PollRequest, rows: list[Any], stored: list[Any], alone: Message
) -> None:
    """Rows of a block, payloads of a reference, and a message that stands alone."""
    writer: PageWriter = MSGPACK.page_writer(asked)
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
    body = writer.begin() + gathered.written() + writer.end(PageEnd(ID))
    expected = [*block.messages(0, len(block)), *kept.messages(bytes(10)), alone]
    if asked.columns:
        assert rows_of(formats.decode_columnar_page(body).pieces) == expected
    else:
        assert [*formats.decode_page(body)] == expected


def _row(number: int, message: Any) -> tuple[bytes, bytes]:
    payload, key, found = message
    more = {HEADERS: packed(found)} if found else {}
    more |= {} if key is None else {KEY: key}
    return b"%010d" % number, value_head(None, more=more) + payload


@given(labelled_pages)
def test_a_part_by_hand_is_as_the_struct_is_written(page: Page) -> None:
    if not page:
        return
    (part, _) = [
        *msgpack_format._parts(written(MSGPACK.page_writer(PollRequest()), page))
    ]
    assert part.items == [each for one in page for each in (one.id, one.payload)]
    assert pack(msgpack_format._read_part(pack(part))) == pack(part)


@pytest.mark.parametrize("asked", [PollRequest(), COLUMNS], ids=["rows", "columns"])
def test_a_page_that_was_cut_off_anywhere_is_noticed(asked: PollRequest) -> None:
    read: Callable[[bytes], object] = (
        formats.decode_columnar_page if asked.columns else formats.decode_page
    )
    page = Page([Message(ID, b"abc")] * 3, next_id=ID, skipped_before=5)
    body = written(MSGPACK.page_writer(asked), page, cuts=[1])
    read(body)
    for size in range(len(body)):
        with pytest.raises(BadRequest):
            read(body[:size])
    with pytest.raises(BadRequest):
        read(body + body)


@pytest.mark.parametrize(
    "part",
    [
        [0, [b"a", b"b"], None, None],
        [0, [ID], None, None],
        [0, [ID, b"a"], [], None],
        [0, [ID, b"a"], None, [b"", b""]],
        [1, ID, bytes(8), b"", None, None],
        [3],
    ],
)
def test_a_part_that_has_no_messages_of_a_page_is_refused(part: list[Any]) -> None:
    end = MSGPACK.page_writer(PollRequest()).end(PageEnd(ID))
    data = pack(_plain(part))
    with pytest.raises(BadRequest, match="the page"):
        formats.decode_page(len(data).to_bytes(4, "big") + data + end)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(_plain, value)]
    return bytes(value) if isinstance(value, bytes) else value


@pytest.mark.parametrize("places", [(0, 1, 2), (1, 1, 3), (0, 3), (0,)])
def test_columns_that_do_not_fit_each_other_are_refused(places: list[int]) -> None:
    id_bytes = bytes(ID) * 2 if len(places) > 1 else b""
    data = pack([1, id_bytes, array("i", places).tobytes(), b"abc", None, None])
    end = MSGPACK.page_writer(COLUMNS).end(PageEnd(ID))
    with pytest.raises(BadRequest, match="the page has a piece"):
        formats.decode_columnar_page(len(data).to_bytes(4, "big") + data + end)


MESSAGES: dict[str, Any] = {"messages": [b"a", b"b"]}
REFUSED: dict[str, tuple[Any, str]] = {
    "nothing": (None, "PublishRequest"),
    "no messages": ({}, "messages"),
    "a text": ({"messages": ["a"]}, "bytes"),
    "an unknown field": ({**MESSAGES, "other": 1}, "other"),
    "more keys": ({**MESSAGES, "keys": [b"a"]}, "of other messages"),
    "more headers": ({**MESSAGES, "headers": []}, "of other messages"),
    "no headers": ({**MESSAGES, "headers": [b"x", b""]}, "are no headers"),
    "a long key": (
        {**MESSAGES, "keys": [bytes(MAX_KEY_BYTES + 1), None]},
        f"a key has up to {MAX_KEY_BYTES} bytes",
    ),
    "fewer expiries": ({**MESSAGES, "expireAfterMs": [1]}, "2 messages and 1 expiries"),
    "an expiry of 0": ({**MESSAGES, "expireAfterMs": [0, 1]}, ">= 1"),
    "a pointer of 64 bits": ({**MESSAGES, "transactionWritePointer": 2**63}, "<= 9223"),
    "a count of 33 bits": (
        {
            **MESSAGES,
            "receipts": [{"pointer": 1, "topic": "t", "attempt": b"", "count": 2**31}],
        },
        "<= 2147",
    ),
    "half a surrogate pair": (
        {
            **MESSAGES,
            "receipts": [
                {"pointer": 1, "topic": b"\xed\xa0\x80", "attempt": b"", "count": 2}
            ],
        },
        "str",
    ),
}


@pytest.mark.parametrize(("value", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_body_that_is_no_publish_request_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        MSGPACK.publish_request(pack(value))


def deep(depth: int) -> bytes:
    return b"\x91" * depth


@pytest.mark.parametrize(
    "body", [b"", deep(1_000_000), b"\x81\xa8messages" + deep(1_000_000), b"\xc1"]
)
def test_bytes_that_are_no_msgpack_or_nested_deep_are_refused(body: bytes) -> None:
    for read in (MSGPACK.publish_request, MSGPACK.poll_request, formats.decode_page):
        with pytest.raises(BadRequest):
            read(body)


FEW: dict[str, Callable[[int], dict[str, Any]]] = {
    "messages": lambda count: {"messages": [b""] * count},
    "keys": lambda count: {**MESSAGES, "keys": [None] * count},
    "headers": lambda count: {**MESSAGES, "headers": [b""] * count},
    "expiries": lambda count: {**MESSAGES, "expireAfterMs": [None] * count},
    "receipts": lambda count: {**MESSAGES, "receipts": [None] * count},
}


@pytest.mark.parametrize("many", FEW.values(), ids=FEW)
def test_more_than_a_request_may_hold_is_refused_as_in_json(
    many: Callable[[int], dict[str, Any]],
) -> None:
    with pytest.raises(RequestTooLarge, match=f"more than {MAX_MESSAGES}"):
        MSGPACK.publish_request(pack(many(MAX_MESSAGES + 1)))
    most = {"messages": [b""] * MAX_MESSAGES}
    assert len(MSGPACK.publish_request(pack(most)).messages) == MAX_MESSAGES


def test_an_array_that_only_claims_to_be_long_is_refused_at_once() -> None:
    head = b"\x81\xa8messages\xdd"
    with pytest.raises(BadRequest):
        MSGPACK.publish_request(head + (MAX_MESSAGES).to_bytes(4, "big"))
    with pytest.raises(RequestTooLarge):
        MSGPACK.publish_request(head + b"\xff\xff\xff\xff")


@given(publish_requests)
def test_a_receipts_list_that_is_empty_is_not_a_missing_one(
    request: PublishRequest,
) -> None:
    nobody: list[Receipt] = []
    for given_ in (nobody, None):
        sent = PublishRequest(5, request.messages, receipts=given_)
        assert MSGPACK.publish_request(formats.encode_publish(sent)).receipts == given_


@given(publish_requests)
def test_json_and_msgpack_ask_for_the_same(request: PublishRequest) -> None:
    found = []
    for one in checked_payloads(request.messages, limit_bytes=1 << 20):
        many = one if isinstance(one, Outgoing) else Outgoing(one)
        fields: dict[str, Any] = {"base64": _base64(many.payload)}
        if many.key is not None:
            fields["key"] = {"base64": _base64(many.key)}
        if many.headers:
            fields["headers"] = {
                name: {"base64": _base64(data)} for name, data in many.headers.items()
            }
        if many.expire_after_s is not None:
            fields["expireAfterMs"] = max(1, int(many.expire_after_s * 1000))
        found.append(fields)
    in_json = JSON.publish_request(msgspec.json.encode({"messages": found}))
    in_msgpack = MSGPACK.publish_request(formats.encode_publish(request))
    assert said(in_json.messages) == said(in_msgpack.messages)


def _base64(data: bytes) -> str:
    text: str = msgspec.json.decode(msgspec.json.encode(data))
    return text
