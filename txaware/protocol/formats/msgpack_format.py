"""`application/vnd.txaware+msgpack`: the bodies of the client of this project.

Each body is declared once, as a struct, which both ends write and read. A page is sent
in parts, as it is read: the size of a part in four bytes, and the part. The last one is
the end.
"""

import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from coordinator import codec
from txaware.errors import BadRequest, RequestTooLarge
from txaware.model.compression import MOST_PACKED_MESSAGES, MOST_UNPACKED_BYTES, Packed
from txaware.model.interfaces import UNCOMMITTED
from txaware.model.labels import (
    NO_HEADERS,
    ItemForm,
    Labels,
    checked_keys,
    is_any_said,
    labels_or_none,
    repacked,
    size_bytes_of,
)
from txaware.model.messages import (
    ID_BYTES,
    BlockedBy,
    Message,
    MessageId,
    Page,
    PageEnd,
    PublishResponse,
    Receipt,
    in_runs,
    messages_of,
    page_of,
)
from txaware.model.packed_batches import unpack
from txaware.model.producers import (
    MAX_EPOCH,
    MAX_PRODUCER_ID,
    SEQUENCES,
    ProducerIdentity,
)
from txaware.model.requests import (
    MAX_MESSAGES,
    MAX_TIME_MS,
    Payloads,
    Start,
    checked_payloads,
    checked_start,
)
from txaware.model.rows import RowChange
from txaware.protocol.fields import encoded_transaction
from txaware.protocol.formats.columns import ColumnarPage, ColumnPiece, places_of
from txaware.protocol.formats.interfaces import PageWriter
from txaware.protocol.formats.requests import (
    Listed,
    OnceRequest,
    PollRequest,
    PublishRequest,
)
from txaware.protocol.json_schema import INT_MAX, LONG_MAX, LONG_MIN
from txaware.protocol.json_values import (
    expire_after_ms,
    expire_after_s,
    milliseconds,
    seconds,
)

MSGPACK_TYPE = "application/vnd.txaware+msgpack"
# The most that a row takes in a body beside its key and its value, and the rest of it.
BESIDE_ROW_BYTES = 64

T = TypeVar("T")

_Long = Annotated[int, Meta(ge=LONG_MIN, le=LONG_MAX)]
_Int = Annotated[int, Meta(ge=-INT_MAX - 1, le=INT_MAX)]
_AfterMs = Annotated[int, Meta(ge=1, le=MAX_TIME_MS // 2)]
# A list is refused by its count, before it is made.
_MANY = Meta(max_length=MAX_MESSAGES)
_TOO_MANY = "Expected `array` of length <="


class _Fields(
    Struct, forbid_unknown_fields=True, omit_defaults=True, rename="camel", gc=False
):
    """An object of named fields; one that has its default is left out."""


class MessageLists(_Fields, kw_only=True):
    """Messages to publish: a list for each of their fields that any of them has."""

    messages: Annotated[list[bytes], _MANY]
    keys: Annotated[list[bytes | None], _MANY] | None = None
    headers: Annotated[list[bytes], _MANY] | None = None
    expire_after_ms: Annotated[list[_AfterMs | None], _MANY] | None = None


class ReceiptFields(_Fields):
    """The receipt of a store."""

    pointer: _Long
    topic: str
    attempt: bytes
    count: _Int


class PublishFields(MessageLists, kw_only=True):
    """Says what to publish or to store."""

    transaction_write_pointer: _Long | None = None
    receipts: Annotated[list[ReceiptFields], _MANY] | None = None
    attempt: bytes | None = None


class BatchFields(_Fields):
    """Messages of a batch, compressed: see `Packed`."""

    compression: str
    count: Annotated[int, Meta(ge=1, le=MOST_PACKED_MESSAGES)]
    size_bytes: Annotated[int, Meta(ge=1, le=MOST_UNPACKED_BYTES)]
    data: bytes


class OnceFields(MessageLists, kw_only=True):
    """Says what a producer publishes, from a sequence on: `messages`, or a `batch`."""

    batch: BatchFields | None = None
    producer_id: Annotated[int, Meta(ge=0, le=MAX_PRODUCER_ID)]
    epoch: Annotated[int, Meta(ge=0, le=MAX_EPOCH)]
    sequence: Annotated[int, Meta(ge=0, lt=SEQUENCES)]
    by_client: bool = False
    is_sender: bool = False


class IdsFields(_Fields):
    """The ids of messages, one behind the other."""

    ids: bytes


class ResponseFields(_Fields):
    """The range that a publish in a transaction wrote."""

    transaction_write_pointer: _Long
    start_timestamp: _Long
    start_sequence_id: _Int
    end_timestamp: _Long
    end_sequence_id: _Int


class PollFields(_Fields, kw_only=True):
    """The messages to read; `columns` for pieces of columns.

    A server of this version or later knows `compressions`: see `PollRequest`.
    """

    start_from: _Long | bytes | dict[int, bytes] | None = None
    inclusive: bool = True
    limit: _Int | None = None
    transaction: bytes | None = None
    isolation: str = UNCOMMITTED
    wait_ms: _Long = 0
    columns: bool = False
    compressions: Annotated[list[str], Meta(max_length=16)] = []


class ChangesFields(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The changes of a table's rows that a transaction saves."""

    transaction: Annotated[int, Meta(ge=1, le=LONG_MAX)]
    changes: Annotated[list[tuple[bytes, bytes | None, _AfterMs | None]], _MANY]


class RowsPart(Struct, array_like=True, tag=0, gc=False):
    """Some messages of a page: an id, a payload, an id, a payload and so on."""

    items: list[bytes]
    keys: list[bytes | None] | None
    headers: list[bytes] | None


class ColumnsPart(Struct, array_like=True, tag=1, gc=False):
    """Some messages of a page: see `ColumnPiece`."""

    ids: bytes
    places: bytes
    payloads: bytes
    keys: list[bytes | None] | None
    headers: list[bytes] | None


class BatchPart(Struct, array_like=True, tag=4, gc=False):
    """A batch of messages, compressed, with the id of the first of them.

    The others have the next sequences. It comes only where the poll says that it may.
    """

    first: bytes
    compression: str
    count: int
    size_bytes: int
    data: bytes


class EndPart(Struct, array_like=True, tag=2, gc=False):
    """The end of a page; a newer server may say more behind it."""

    next: bytes
    blocked_by: tuple[int, int] | None
    skipped_before: int | None
    last_stable: bytes | None


class PlacesPart(Struct, array_like=True, tag=3, gc=False):
    """The end of a page of a topic of several partitions; see `PageEnd`."""

    places: dict[int, bytes]
    runs: list[tuple[int, int]]
    blocked_by: tuple[int, int] | None
    skipped_before: int | None


_encode = msgspec.msgpack.Encoder().encode


def _reader(kind: Any, what: str) -> Callable[[bytes | memoryview], Any]:
    """Returns what reads a body of that kind, and refuses any other in one sentence."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(body: bytes | memoryview) -> Any:
        try:
            return decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            if str(error).startswith(_TOO_MANY):
                raise RequestTooLarge(
                    f"{what} has more than {MAX_MESSAGES} items in an array; send less "
                    f"at once"
                ) from error
            raise BadRequest(f"{what} cannot be read: {error}") from error

    return read


_read_publish = _reader(PublishFields, "the PublishRequest")
_read_once = _reader(OnceFields, "the PublishOnceRequest")
_read_ids = _reader(IdsFields, "the answer")
_read_response = _reader(ResponseFields, "the PublishResponse")
_read_receipt = _reader(ReceiptFields, "the Receipt")
_read_poll = _reader(PollFields, "the poll")
_read_changes = _reader(ChangesFields, "the body")
_read_part = _reader(
    RowsPart | ColumnsPart | EndPart | PlacesPart | BatchPart, "the page"
)


def _columns_of(messages: Listed) -> dict[str, Any]:
    """Returns the fields of messages that any of them has."""
    payloads = checked_payloads(messages, limit_bytes=sys.maxsize)
    columns: dict[str, Any] = {"messages": payloads.payloads}
    if payloads.labels is not None:
        columns["keys"], columns["headers"] = _label_columns(payloads.labels)
    if payloads.expire_after_s is not None:
        columns["expire_after_ms"] = [*map(expire_after_ms, payloads.expire_after_s)]
    return columns


def _label_columns(labels: Labels | None) -> tuple[Any, Any]:
    if labels is None:
        return None, None
    if labels.sizes is not None:
        return labels.keys, None
    return (
        labels.keys if is_any_said(labels.keys) else None,
        labels.headers if any(labels.headers) else None,
    )


def _payloads_of(sent: MessageLists) -> Payloads:
    """Returns messages as a service takes them, checked but for their sizes."""
    payloads, after_ms = sent.messages, sent.expire_after_ms
    size_bytes, labels, after_s = sum(map(len, payloads)), None, None
    if sent.keys is not None or sent.headers is not None:
        labels = _labels_of(sent.keys, sent.headers, len(payloads), "the request")
        headers = labels.headers
        if any(headers):
            headers = [*map(repacked, headers)]
        labels = labels_or_none(checked_keys([*labels.keys]), headers)
        size_bytes += size_bytes_of(labels)
    if after_ms is not None:
        if len(after_ms) != len(payloads):
            raise BadRequest(
                f"the request has {len(payloads)} messages and {len(after_ms)} expiries"
            )
        if is_any_said(after_ms):
            after_s = [None if ms is None else seconds(ms) for ms in after_ms]
    return Payloads(payloads, size_bytes, after_s, labels)


def _labels_of(
    keys: list[bytes | None] | None, headers: list[bytes] | None, count: int, what: str
) -> Labels:
    if {count} != {len(column) for column in (keys, headers) if column is not None}:
        raise BadRequest(f"{what} has keys or headers of other messages than its own")
    return Labels(
        [None] * count if keys is None else keys,
        [NO_HEADERS] * count if headers is None else headers,
    )


def _bin_head(size: int) -> bytes:
    """Returns what stands before so many bytes."""
    if size < 1 << 8:
        return b"\xc4" + size.to_bytes(1, "big")
    return b"\xc5" + size.to_bytes(2, "big") if size < 1 << 16 else _long_head(size)


def _long_head(size: int) -> bytes:
    return b"\xc6" + size.to_bytes(4, "big")


_NO_LABELS = _encode((None, None))[1:]
# All in one block, which a part is.
ITEMS = ItemForm(MSGPACK_TYPE, _bin_head(ID_BYTES), _bin_head, 1 << 62)
# What is before the items of a part: its size, four values, a 0, and how many.
_ROWS_HEAD, _AFTER_SIZE = struct.Struct(">IBBBI"), 7
_SIZE = struct.Struct(">I")


class RowsWriter:
    """Writes parts of messages that are encoded already, without a step for each.

    Its reader takes whole batches of the compressions that are named.
    """

    items: ItemForm | None = ITEMS
    partition: int | None = None

    def __init__(self, compressions: frozenset[str] = frozenset()) -> None:
        self.compressions = compressions

    def batch(self, first: bytes, packed: Packed) -> bytes:
        """Writes one part: a batch as it is stored, by the id of its first message."""
        name, count = packed.compression, packed.count
        return _part(BatchPart(first, name, count, packed.size_bytes, packed.data))

    def begin(self) -> bytes:
        """Returns nothing: parts may begin at once."""
        return b""

    def messages(self, messages: list[Message]) -> bytes:
        """Writes one part."""
        data = b"".join([ITEMS.item(one.id, one.payload) for one in messages])
        return self.blocks([(len(messages), data)], labels_of(messages))

    def blocks(self, blocks: list[tuple[int, bytes]], labels: Labels | None) -> bytes:
        """Writes one part, by hand; as `RowsPart` is written."""
        count = 2 * sum([count for count, _ in blocks])
        if not count:
            return b""
        behind = _NO_LABELS
        if labels is not None:
            behind = _encode(_label_columns(labels))[1:]
        data = [data for _, data in blocks]
        size = _AFTER_SIZE + sum(map(len, data)) + len(behind)
        head = _ROWS_HEAD.pack(size, 0x94, RowsPart.__struct_config__.tag, 0xDD, count)
        return b"".join((head, *data, behind))

    def end(self, end: PageEnd) -> bytes:
        """Writes the last part."""
        stable = end.last_stable
        blocked = None
        if end.blocked_by is not None:
            blocked = end.blocked_by.pointer, end.blocked_by.since_ms
        if end.places is not None:
            places = {number: bytes(place) for number, place in end.places.items()}
            return _part(PlacesPart(places, [*end.runs], blocked, end.skipped_before))
        return _part(
            EndPart(
                bytes(end.next),
                blocked,
                end.skipped_before,
                None if stable is None else bytes(stable),
            )
        )


class ColumnarWriter(RowsWriter):
    """Writes parts of columns."""

    items = None

    def messages(self, messages: list[Message]) -> bytes:
        """Writes one part."""
        ids = b"".join([message.id for message in messages])
        payloads = [message.payload for message in messages]
        return self.columns(ids, payloads, labels_of(messages))

    def columns(
        self, ids: bytes, payloads: Sequence[bytes], labels: Labels | None
    ) -> bytes:
        """Writes one part, of messages that are taken apart already."""
        if not payloads:
            return b""
        places, label_columns = places_of(payloads), _label_columns(labels)
        return _part(ColumnsPart(ids, places, b"".join(payloads), *label_columns))


def labels_of(messages: list[Message]) -> Labels | None:
    """Returns the keys and headers of messages, or None where none has any."""
    keys = [message.key for message in messages]
    return labels_or_none(keys, [message.packed_headers for message in messages])


def _part(fields: Struct) -> bytes:
    encoded = _encode(fields)
    return _SIZE.pack(len(encoded)) + encoded


class MsgpackFormat:
    """The same bodies as the server sees them."""

    media_type = MSGPACK_TYPE

    def publish_request(self, body: bytes) -> PublishRequest:
        """Reads what to publish or to store."""
        sent: PublishFields = _read_publish(body)
        receipts = sent.receipts
        return PublishRequest(
            sent.transaction_write_pointer,
            _payloads_of(sent),
            receipts=None if receipts is None else [*map(_receipt, receipts)],
            attempt=sent.attempt,
        )

    def publish_response(self, response: PublishResponse) -> bytes:
        """Writes a PublishResponse."""
        return encode_rollback(response)

    def receipt(self, receipt: Receipt) -> bytes:
        """Writes a Receipt."""
        return _encode(_receipt_fields(receipt))

    def rollback_request(self, body: bytes) -> PublishResponse:
        """Reads the PublishResponse of the publish to take back."""
        return decode_publish_response(body)

    def poll_request(self, body: bytes) -> PollRequest:
        """Reads a poll."""
        sent: PollFields = _read_poll(body)
        start, transaction = sent.start_from, sent.transaction
        return PollRequest(
            start=start if start.__class__ is int else checked_start(start),
            inclusive=sent.inclusive,
            limit=sent.limit,
            transaction=None if transaction is None else codec.decode(transaction),
            isolation=sent.isolation,
            wait_s=seconds(sent.wait_ms),
            columns=sent.columns,
            compressions=frozenset(sent.compressions),
        )

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Returns a writer of a page in parts."""
        if request.columns:
            return ColumnarWriter()
        return RowsWriter(request.compressions)


MSGPACK = MsgpackFormat()


def encode_publish(request: PublishRequest) -> bytes:
    """Writes the body of a publish or a store."""
    receipts, attempt = request.receipts, request.attempt
    return _encode(
        PublishFields(
            **_columns_of(request.messages),
            transaction_write_pointer=request.pointer,
            receipts=None if receipts is None else [*map(_receipt_fields, receipts)],
            attempt=None if attempt is None else bytes(attempt),
        )
    )


def decode_publish_response(body: bytes) -> PublishResponse:
    """Reads the answer to a publish in a transaction."""
    return PublishResponse(*msgspec.structs.astuple(_read_response(body)))


def encode_rollback(response: PublishResponse) -> bytes:
    """Writes the body of a rollback."""
    return _encode(
        ResponseFields(
            response.transaction_write_pointer,
            response.start_timestamp,
            response.start_sequence_id,
            response.end_timestamp,
            response.end_sequence_id,
        )
    )


def decode_receipt(body: bytes) -> Receipt:
    """Reads the answer to a store."""
    return _receipt(_read_receipt(body))


def _receipt(fields: ReceiptFields) -> Receipt:
    return Receipt(fields.pointer, fields.topic, fields.attempt, fields.count)


def _receipt_fields(receipt: Receipt) -> ReceiptFields:
    return ReceiptFields(
        receipt.pointer, str(receipt.topic), bytes(receipt.attempt), receipt.count
    )


def _batch_fields(packed: Packed) -> BatchFields:
    return BatchFields(packed.compression, packed.count, packed.size_bytes, packed.data)


def encode_once(request: OnceRequest) -> bytes:
    """Writes the body of a publish that may be repeated."""
    producer, messages = request.producer, request.messages
    if isinstance(messages, Payloads) and messages.packed is not None:
        messages = messages.packed
    columns: dict[str, Any] = {"messages": []}
    if isinstance(messages, Packed):
        columns["batch"] = _batch_fields(messages)
    else:
        columns = _columns_of(messages)
    return _encode(
        OnceFields(
            **columns,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            sequence=request.sequence,
            by_client=producer.by_client,
            is_sender=producer.is_sender,
        )
    )


def read_once(body: bytes) -> OnceRequest:
    """Reads a publish that may be repeated."""
    sent: OnceFields = _read_once(body)
    identity = ProducerIdentity(
        sent.producer_id, sent.epoch, sent.by_client, sent.is_sender
    )
    if (batch := sent.batch) is None:
        return OnceRequest(identity, sent.sequence, _payloads_of(sent))
    if sent.messages:
        raise BadRequest("a PublishOnceRequest has messages or a batch, not both")
    packed = Packed(batch.compression, batch.count, batch.size_bytes, batch.data)
    return OnceRequest(identity, sent.sequence, packed)


def write_ids(ids: list[MessageId]) -> bytes:
    """Writes the ids of what a producer published, in order."""
    return _encode(IdsFields(b"".join(ids)))


def decode_ids(body: bytes) -> list[MessageId]:
    """Reads the answer to a publish of a producer."""
    data = _read_ids(body).ids
    if len(data) % ID_BYTES:
        raise BadRequest(f"the answer has {len(data)} bytes of ids")
    return [MessageId(data[at : at + ID_BYTES]) for at in range(0, len(data), ID_BYTES)]


def encode_poll(request: PollRequest) -> bytes:
    """Writes the body of a poll; a limit above the greatest int asks for that many."""
    limit, start, tx = request.limit, request.start, request.transaction
    return _encode(
        PollFields(
            start_from=_start_field(start),
            inclusive=request.inclusive,
            limit=None if limit is None else min(limit, INT_MAX),
            transaction=None if tx is None else encoded_transaction(tx),
            isolation=request.isolation,
            wait_ms=milliseconds(request.wait_s),
            columns=request.columns,
            compressions=sorted(request.compressions),
        )
    )


def _start_field(start: Start) -> int | bytes | dict[int, bytes] | None:
    if isinstance(start, Mapping):
        return {number: bytes(place) for number, place in start.items()}
    return bytes(start) if isinstance(start, bytes) else start


def decode_page(body: bytes, partition: int = 0) -> Page:
    """Reads the answer to a poll, of a partition that was named."""
    messages: list[Message] = []
    parts, end = _page_parts(body, (RowsPart, BatchPart))
    for part in parts:
        if isinstance(part, BatchPart):
            messages += _batch_messages(part, partition)
            continue
        ids, payloads = part.items[::2], part.items[1::2]
        if {*map(len, ids)} != {ID_BYTES} or len(ids) != len(payloads):
            raise BadRequest(f"the page has an id that is not {ID_BYTES} bytes")
        labels = _part_labels(part, len(ids))
        messages += messages_of(map(MessageId, ids), payloads, labels, partition)
    if end.places is not None:
        messages = in_runs(messages, end.runs)
    return page_of(messages, end)


def _batch_messages(part: BatchPart, partition: int) -> list[Message]:
    """Returns the messages of a batch; its size is that which the server told."""
    packed = Packed(part.compression, part.count, part.size_bytes, part.data)
    payloads = unpack(packed)
    first = MessageId.from_bytes(part.first)
    ids = map(first.later, range(len(payloads)))
    return messages_of(ids, payloads.payloads, payloads.labels, partition)


def decode_columnar_page(body: bytes) -> ColumnarPage:
    """Reads the answer to a poll for columns."""
    parts, end = _page_parts(body, (ColumnsPart,))
    pieces = []
    for part in parts:
        piece = ColumnPiece(part.ids, part.places, part.payloads).checked()
        labels = _part_labels(part, len(piece))
        pieces.append(ColumnPiece(part.ids, part.places, part.payloads, labels))
    return ColumnarPage(pieces, *end[:3])


def _part_labels(part: RowsPart | ColumnsPart, count: int) -> Labels | None:
    if part.keys is None and part.headers is None:
        return None
    return _labels_of(part.keys, part.headers, count, "the page")


def _page_parts(body: bytes, kinds: tuple[type[Any], ...]) -> tuple[list[Any], PageEnd]:
    """Reads parts of some kinds, and the end of their page, behind which nothing is."""
    *parts, end = [*_parts(body)] or [None]
    if not all(isinstance(part, kinds) for part in parts):
        raise BadRequest("the page has a part of another kind")
    if isinstance(end, PlacesPart):
        return parts, _end_of_places(end)
    if not isinstance(end, EndPart):
        raise BadRequest(f"the page ends too early, after {len(body)} bytes")
    return parts, PageEnd(
        MessageId.from_bytes(end.next),
        end.blocked_by and BlockedBy(*end.blocked_by),
        end.skipped_before,
        None if end.last_stable is None else MessageId.from_bytes(end.last_stable),
    )


def _end_of_places(end: PlacesPart) -> PageEnd:
    places = {
        number: MessageId.from_bytes(place) for number, place in end.places.items()
    }
    return PageEnd(
        MessageId(bytes(ID_BYTES)),
        end.blocked_by and BlockedBy(*end.blocked_by),
        end.skipped_before,
        places=places,
        runs=tuple(end.runs),
    )


def _parts(body: bytes) -> Iterator[Any]:
    view, at = memoryview(body), 0
    while at < len(body):
        start = at + _SIZE.size
        at = start + int.from_bytes(view[at:start], "big")
        if at > len(body):
            raise BadRequest(f"the page ends too early, after {len(body)} bytes")
        yield _read_part(view[start:at])


def encode_changes(pointer: int, changes: Sequence[RowChange]) -> bytes:
    """Writes the changes of rows that a transaction saves."""
    listed = [
        (one.key, one.value, expire_after_ms(one.expire_after_s)) for one in changes
    ]
    return _encode(ChangesFields(pointer, listed))


def read_changes(body: bytes) -> tuple[int, list[RowChange]]:
    """Reads the transaction's pointer and its changes."""
    sent: ChangesFields = _read_changes(body)
    return sent.transaction, [
        RowChange(key, value, expire_after_s(after_ms))
        for key, value, after_ms in sent.changes
    ]
