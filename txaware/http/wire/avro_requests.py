"""Reads what a publish and a poll ask for, in both Avro types."""

import attrs

from coordinator import codec
from txaware.errors import BadRequest
from txaware.http.formats.avro_records import read_receipt
from txaware.http.formats.expiry import expiring, seconds
from txaware.http.wire.avro_reading import INT_BITS, Cursor, read_payloads
from txaware.http.wire.requests import PollRequest, PublishRequest
from txaware.messages import MessageId, Receipt
from txaware.requests import Payload, Start


def read_publish(cursor: Cursor) -> PublishRequest:
    """The seeds' PublishRequest."""
    pointer = None if cursor.branch(2) else cursor.number()
    return PublishRequest(pointer, [*read_payloads(cursor)])


def read_own_publish(cursor: Cursor) -> PublishRequest:
    """A PublishRequest with expiry, attempt and receipts."""
    pointer = None if cursor.branch(2) else cursor.number()
    payloads = read_payloads(cursor)
    return PublishRequest(
        pointer,
        _expiring(payloads, cursor) if cursor.branch(2) else [*payloads],
        attempt=cursor.data() if cursor.branch(2) else None,
        receipts=_receipts(cursor) if cursor.branch(2) else None,
    )


def read_poll(cursor: Cursor) -> PollRequest:
    """The seeds' ConsumeRequest."""
    return PollRequest(
        start=_start(cursor),
        inclusive=cursor.flag(),
        limit=None if cursor.branch(2) else cursor.number(INT_BITS),
        transaction=None if cursor.branch(2) else codec.decode(cursor.data()),
    )


def read_own_poll(cursor: Cursor) -> PollRequest:
    """A PollRequest with isolation and a time to wait."""
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
