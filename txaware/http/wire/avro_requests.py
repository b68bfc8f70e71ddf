"""Reads and writes the requests, responses and receipts of the Avro types."""

import attrs

from coordinator import codec
from txaware.avro_items import long_bytes
from txaware.errors import BadRequest
from txaware.http.wire.avro_reading import INT_BITS, Cursor, read_payloads
from txaware.http.wire.avro_writing import FIRST, data_bytes
from txaware.http.wire.requests import PollRequest, PublishRequest, expiring, seconds
from txaware.messages import MessageId, PublishResponse, Receipt
from txaware.requests import Payload, Start


def write_response(response: PublishResponse) -> bytes:
    """Writes a PublishResponse, which always has its pointer."""
    numbers = (
        response.transaction_write_pointer,
        response.start_timestamp,
        response.start_sequence_id,
        response.end_timestamp,
        response.end_sequence_id,
    )
    return FIRST + b"".join(map(long_bytes, numbers))


def read_response(cursor: Cursor) -> PublishResponse:
    """Reads a PublishResponse; without a pointer there is nothing to take back."""
    if cursor.branch(2):
        raise BadRequest("a rollback needs the transactionWritePointer of its publish")
    return PublishResponse(
        transaction_write_pointer=cursor.number(),
        start_timestamp=cursor.number(),
        start_sequence_id=cursor.number(INT_BITS),
        end_timestamp=cursor.number(),
        end_sequence_id=cursor.number(INT_BITS),
    )


def write_receipt(receipt: Receipt) -> bytes:
    """Writes a Receipt."""
    return b"".join(
        (
            long_bytes(receipt.pointer),
            data_bytes(receipt.topic.encode()),
            data_bytes(receipt.attempt),
            long_bytes(receipt.count),
        )
    )


def read_receipt(cursor: Cursor) -> Receipt:
    """Reads a Receipt."""
    return Receipt(
        pointer=cursor.number(),
        topic=cursor.text(),
        attempt=cursor.data(),
        count=cursor.number(INT_BITS),
    )


def read_publish(cursor: Cursor) -> PublishRequest:
    """Reads CDAP's PublishRequest."""
    pointer = None if cursor.branch(2) else cursor.number()
    return PublishRequest(pointer, [*read_payloads(cursor)])


def read_own_publish(cursor: Cursor) -> PublishRequest:
    """Reads a PublishRequest with expiry, attempt and receipts."""
    pointer = None if cursor.branch(2) else cursor.number()
    payloads = read_payloads(cursor)
    return PublishRequest(
        pointer,
        _expiring(payloads, cursor) if cursor.branch(2) else [*payloads],
        attempt=cursor.data() if cursor.branch(2) else None,
        receipts=_receipts(cursor) if cursor.branch(2) else None,
    )


def read_poll(cursor: Cursor) -> PollRequest:
    """Reads CDAP's ConsumeRequest."""
    return PollRequest(
        start=_start(cursor),
        inclusive=cursor.flag(),
        limit=None if cursor.branch(2) else cursor.number(INT_BITS),
        transaction=None if cursor.branch(2) else codec.decode(cursor.data()),
    )


def read_own_poll(cursor: Cursor) -> PollRequest:
    """Reads a PollRequest with isolation and a time to wait."""
    poll = read_poll(cursor)
    return attrs.evolve(poll, isolation=cursor.text(), wait_s=seconds(cursor.number()))


def _start(cursor: Cursor) -> Start:
    branch = cursor.branch(3)
    if branch == 0:
        return MessageId.from_bytes(cursor.data())
    return cursor.number() if branch == 1 else None


def _expiring(payloads: list[bytes], cursor: Cursor) -> list[Payload]:
    after_ms = [
        cursor.number() if cursor.branch(2) else None
        for count in cursor.blocks()
        for _ in range(count)
    ]
    if len(after_ms) != len(payloads):
        raise BadRequest(
            f"{cursor.what} has {len(payloads)} messages and {len(after_ms)} expiries"
        )
    return [*map(expiring, payloads, after_ms)]


def _receipts(cursor: Cursor) -> list[Receipt]:
    return [read_receipt(cursor) for count in cursor.blocks() for _ in range(count)]
