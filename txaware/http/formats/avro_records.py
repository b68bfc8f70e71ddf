"""The small records of both Avro types: what a publish answered, and a receipt."""

from txaware.errors import BadRequest
from txaware.http.wire.avro_reading import INT_BITS, Cursor
from txaware.http.wire.avro_writing import FIRST, data_bytes
from txaware.messages import PublishResponse, Receipt
from txaware.store.encoded import long_bytes


def write_response(response: PublishResponse) -> bytes:
    """A PublishResponse, which always has its pointer."""
    numbers = (
        response.transaction_write_pointer,
        response.start_timestamp,
        response.start_sequence_id,
        response.end_timestamp,
        response.end_sequence_id,
    )
    return FIRST + b"".join(map(long_bytes, numbers))


def read_response(cursor: Cursor) -> PublishResponse:
    """A PublishResponse; there is nothing to take back without a pointer."""
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
    """A Receipt."""
    return b"".join(
        (
            long_bytes(receipt.pointer),
            data_bytes(receipt.topic.encode()),
            data_bytes(receipt.attempt),
            long_bytes(receipt.count),
        )
    )


def read_receipt(cursor: Cursor) -> Receipt:
    """A Receipt."""
    return Receipt(
        pointer=cursor.number(),
        topic=cursor.text(),
        attempt=cursor.data(),
        count=cursor.number(INT_BITS),
    )
