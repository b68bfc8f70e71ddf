"""The Avro types as the server sees them, and what stands in their bodies."""

import attrs

from coordinator import codec
from txaware.errors import BadRequest
from txaware.model.avro_items import long_bytes
from txaware.model.messages import MessageId, PublishResponse, Receipt
from txaware.model.requests import Payload, Start
from txaware.protocol.formats.avro_reading import Cursor, long_at, read
from txaware.protocol.formats.avro_writing import FIRST, AvroPage, OwnPage, data_bytes
from txaware.protocol.formats.columnar import (
    ColumnarWriter,
    LabelledColumnarWriter,
    LabelledPage,
    StablePage,
)
from txaware.protocol.formats.interfaces import PageWriter
from txaware.protocol.formats.label_columns import checked_labels, read_labels
from txaware.protocol.formats.requests import (
    PollRequest,
    PublishRequest,
    expiring,
    seconds,
)
from txaware.protocol.formats.schemas import (
    AVRO_TYPE,
    COLUMNS_TYPE,
    LABELLED_COLUMNS_TYPE,
    LABELLED_TYPE,
    OWN_TYPE,
    STABLE_TYPE,
)
from txaware.protocol.json_values import INT_BITS

PUBLISH, ROLLBACK, POLL = "the PublishRequest", "the PublishResponse", "the poll"


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


def read_payloads(cursor: Cursor) -> list[bytes]:
    """Reads an array of bytes."""
    payloads: list[bytes] = []
    for count in cursor.blocks():
        _read_block(cursor, count, payloads)
    return payloads


def _read_block(cursor: Cursor, count: int, payloads: list[bytes]) -> None:
    data, at = cursor.body, cursor.at
    take = payloads.append
    # The two sizes of length that nearly all messages have, without a call.
    for _ in range(count):
        size = data[at]
        if size < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            size += (high << 7) - 128
            at += 2
        else:
            size, at = long_at(data, at)
            size = size * 2 if size >= 0 else 1
        if size & 1:
            raise BadRequest(f"{cursor.what} has a message of less than no bytes")
        start, at = at, at + (size >> 1)
        take(data[start:at])
    cursor.at = at


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


def read_labelled_publish(cursor: Cursor) -> PublishRequest:
    """Reads a PublishRequest that also has keys and headers."""
    request = read_own_publish(cursor)
    labels = checked_labels(read_labels(cursor, len(request.messages)))
    return attrs.evolve(request, labels=labels)


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


class CdapAvro:
    """`avro/binary`: the bodies of CDAP, byte for byte, and nothing more."""

    media_type = AVRO_TYPE

    def publish_request(self, body: bytes) -> PublishRequest:
        """Reads a PublishRequest of pointer and messages."""
        return read(body, read_publish, what=PUBLISH)

    def publish_response(self, response: PublishResponse) -> bytes:
        """Writes a PublishResponse."""
        return write_response(response)

    def receipt(self, receipt: Receipt) -> bytes:
        """Writes nothing: CDAP answers a store with an empty body."""
        return b""

    def rollback_request(self, body: bytes) -> PublishResponse:
        """Reads the PublishResponse of the publish to take back."""
        return read(body, read_response, what=ROLLBACK)

    def poll_request(self, body: bytes) -> PollRequest:
        """Reads a ConsumeRequest."""
        return read(body, read_poll, what=POLL)

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Returns a writer of a ConsumeResponse."""
        return AvroPage()


class OwnAvro(CdapAvro):
    """`application/vnd.txaware+avro`: CDAP's bodies, and what they cannot carry."""

    media_type = OWN_TYPE

    def publish_request(self, body: bytes) -> PublishRequest:
        """Reads a PublishRequest with expiry, attempt and receipts."""
        return read(body, read_own_publish, what=PUBLISH)

    def receipt(self, receipt: Receipt) -> bytes:
        """Writes a Receipt."""
        return write_receipt(receipt)

    def poll_request(self, body: bytes) -> PollRequest:
        """Reads a PollRequest."""
        return read(body, read_own_poll, what=POLL)

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Returns a writer of a PollResponse."""
        return OwnPage()


class ColumnarAvro(OwnAvro):
    """`application/vnd.txaware.columns+avro`: the same, but for pages of columns."""

    media_type = COLUMNS_TYPE

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Returns a writer of a PollResponse of columns."""
        return ColumnarWriter()


class LabelledAvro(OwnAvro):
    """`application/vnd.txaware.v2+avro`: the same with keys and headers."""

    media_type = LABELLED_TYPE

    def publish_request(self, body: bytes) -> PublishRequest:
        """Reads a PublishRequest with keys and headers, and all else."""
        return read(body, read_labelled_publish, what=PUBLISH)

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Returns a writer of a PollResponse in labelled pieces."""
        return LabelledPage()


class StableAvro(LabelledAvro):
    """`application/vnd.txaware.v3+avro`: the same, and pages say what is stable."""

    media_type = STABLE_TYPE

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Returns a writer of a PollResponse with the last stable position."""
        return StablePage()


class LabelledColumns(LabelledAvro):
    """`application/vnd.txaware.columns.v2+avro`: columns with keys and headers."""

    media_type = LABELLED_COLUMNS_TYPE

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Returns a writer of a PollResponse of labelled columns."""
        return LabelledColumnarWriter()


AVRO = CdapAvro()
OWN = OwnAvro()
COLUMNS = ColumnarAvro()
LABELLED = LabelledAvro()
STABLE = StableAvro()
LABELLED_COLUMNS = LabelledColumns()
