"""The client's side of `application/vnd.txaware+avro`: requests out, answers in.

Functions that read raise `BadRequest` for bytes that are no such answer; a body that
was cut off is none. Functions that write take values that were checked before.
"""

from functools import partial

from coordinator import codec
from txaware.model.avro_items import long_bytes
from txaware.model.messages import (
    Message,
    MessageId,
    Page,
    PublishResponse,
    Receipt,
    messages_of,
    page_of,
)
from txaware.model.requests import Start
from txaware.protocol.formats.avro_format import (
    read_receipt,
    read_response,
    write_receipt,
    write_response,
)
from txaware.protocol.formats.avro_reading import (
    Cursor,
    read,
    read_end,
    read_item_columns,
)
from txaware.protocol.formats.avro_writing import (
    array,
    data_bytes,
    optional,
    or_null,
    payloads_bytes,
)
from txaware.protocol.formats.label_columns import read_labels, write_labels
from txaware.protocol.formats.requests import (
    PollRequest,
    PublishRequest,
    expiries,
    milliseconds,
    payload_of,
)
from txaware.protocol.json_values import INT_BITS

_MOST = 2 ** (INT_BITS - 1) - 1
_BYTES, _LONG, _NULL = map(long_bytes, range(3))


def encode_publish(request: PublishRequest) -> bytes:
    """Writes the body of a publish or a store, with labels in the labelled type."""
    return b"".join(
        (
            or_null(request.pointer, long_bytes),
            payloads_bytes([*map(payload_of, request.messages)]),
            optional(expiries(request.messages), _expiries),
            optional(request.attempt, data_bytes),
            optional(request.receipts, _receipts),
            b"" if request.labels is None else write_labels(request.labels),
        )
    )


def decode_publish_response(body: bytes) -> PublishResponse:
    """Reads the answer to a publish in a transaction."""
    return read(body, read_response, what="the PublishResponse")


def decode_receipt(body: bytes) -> Receipt:
    """Reads the answer to a store."""
    return read(body, read_receipt, what="the Receipt")


def encode_rollback(response: PublishResponse) -> bytes:
    """Writes the body of a rollback."""
    return write_response(response)


def encode_poll(request: PollRequest) -> bytes:
    """Writes the body of a poll; a limit above the greatest int asks for that many."""
    limit = None if request.limit is None else min(request.limit, _MOST)
    transaction = request.transaction
    return b"".join(
        (
            _start(request.start),
            b"\1" if request.inclusive else b"\0",
            or_null(limit, long_bytes),
            or_null(transaction, lambda tx: data_bytes(codec.encode(tx))),
            data_bytes(request.isolation.encode()),
            long_bytes(milliseconds(request.wait_s)),
        )
    )


def decode_page(body: bytes) -> Page:
    """Reads the answer to a poll without keys and headers."""
    return read(body, _page, what="the page")


def decode_labelled_page(body: bytes) -> Page:
    """Reads the answer to a poll."""
    return read(body, _labelled_page, what="the page")


def decode_stable_page(body: bytes) -> Page:
    """Reads the answer to a poll that says what is stable."""
    return read(body, partial(_labelled_page, is_stable=True), what="the page")


def _page(cursor: Cursor) -> Page:
    messages = _messages(cursor, labelled=False)
    return page_of(messages, read_end(cursor))


def _labelled_page(cursor: Cursor, *, is_stable: bool = False) -> Page:
    messages: list[Message] = []
    for count in cursor.blocks():
        for _ in range(count):
            messages += _messages(cursor, labelled=True)
    return page_of(messages, read_end(cursor, is_stable=is_stable))


def _messages(cursor: Cursor, *, labelled: bool) -> list[Message]:
    ids: list[bytes] = []
    payloads: list[bytes] = []
    for count in cursor.blocks():
        read_item_columns(cursor, count, ids, payloads)
    labels = read_labels(cursor, len(ids)) if labelled else None
    return messages_of(map(MessageId, ids), payloads, labels)


def _start(start: Start) -> bytes:
    if start is None:
        return _NULL
    if isinstance(start, int):
        return _LONG + long_bytes(start)
    return _BYTES + data_bytes(start)


def _expiries(after_ms: list[int | None]) -> bytes:
    return array([optional(each, long_bytes) for each in after_ms])


def _receipts(receipts: list[Receipt]) -> bytes:
    return array([write_receipt(receipt) for receipt in receipts])
