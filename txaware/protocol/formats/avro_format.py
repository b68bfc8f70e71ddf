"""`avro/binary`: the bodies of CDAP, byte for byte, and nothing more.

By hand, since fastavro takes a number of any length for one of 64 bits and makes an
array of any size before anybody can refuse it, and is little faster (1,000 messages of
100 bytes: 160 us, and 200 us here).
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from coordinator import codec
from txaware.errors import BadRequest, RequestTooLarge
from txaware.model.labels import ItemForm, Labels
from txaware.model.messages import (
    ID_BYTES,
    Message,
    MessageId,
    PageEnd,
    PublishResponse,
    Receipt,
)
from txaware.model.requests import MAX_MESSAGES, Start
from txaware.protocol.formats.interfaces import PageWriter
from txaware.protocol.formats.requests import PollRequest, PublishRequest
from txaware.protocol.json_values import INT_BITS, LONG_BITS, fits

AVRO_TYPE = "avro/binary"
_PUBLISH, _ROLLBACK, _POLL = "the PublishRequest", "the PublishResponse", "the poll"
_FIRST = b"\0"  # the number of a union's first branch, and the end of an array

T = TypeVar("T")


class _Cursor:
    """Bytes, and how far they have been read; past their end is an `IndexError`.

    Only the last message of a block may lie past it, and the next read notices.
    """

    __slots__ = ("at", "body", "what")

    def __init__(self, body: bytes, *, what: str) -> None:
        self.body = body
        self.at = 0
        self.what = what

    def number(self, bits: int = LONG_BITS) -> int:
        """Reads a long, or an int."""
        byte = self.body[self.at]
        if byte < 128:  # nearly always
            self.at += 1
            return (byte >> 1) ^ -(byte & 1)
        number, self.at = _long_at(self.body, self.at)
        if bits != LONG_BITS and not fits(number, bits=bits):
            raise BadRequest(f"{self.what} has {number} where {bits} bits are allowed")
        return number

    def data(self) -> bytes:
        """Reads some bytes."""
        size, start = _long_at(self.body, self.at)
        if not 0 <= size <= len(self.body) - start:
            raise BadRequest(
                f"{self.what} has a value of {size} bytes at byte {self.at} of "
                f"{len(self.body)}"
            )
        self.at = start + size
        return self.body[start : self.at]

    def branch(self, branches: int) -> int:
        """Reads the number of a union's branch."""
        byte = self.body[self.at]
        if not byte & 129 and byte >> 1 < branches:  # always, if it is right
            self.at += 1
            return byte >> 1
        branch = self.number()
        if not 0 <= branch < branches:
            raise BadRequest(
                f"{self.what} has branch {branch} of a union of {branches}"
            )
        return branch

    def flag(self) -> bool:
        """Reads a boolean."""
        flag, self.at = self.body[self.at], self.at + 1
        if flag > 1:
            raise BadRequest(f"{self.what} has a boolean of {flag}")
        return flag == 1

    def blocks(self) -> Iterator[int]:
        """Yields the item count of each block of an array; at most MAX_MESSAGES."""
        total = 0
        while count := self.number():
            if count < 0:
                count = -count
                self.number()
            total += count
            if total > MAX_MESSAGES:
                raise RequestTooLarge(
                    f"{self.what} has an array of {total} items or more, above the "
                    f"limit of {MAX_MESSAGES}; send less at once"
                )
            yield count


def _read(body: bytes, reader: Callable[[_Cursor], T], *, what: str) -> T:
    """Reads the whole body with `reader`; `BadRequest` if it is not such a body."""
    cursor = _Cursor(body, what=what)
    try:
        value = reader(cursor)
    except IndexError as error:
        raise BadRequest(f"{what} ends too early, after {len(body)} bytes") from error
    if cursor.at != len(body):
        raise BadRequest(
            f"{what} ends after {cursor.at} bytes, and {len(body) - cursor.at} follow"
        )
    return value


def _long_at(data: bytes, at: int) -> tuple[int, int]:
    """Returns a zigzag varint of up to 64 bits, and where it ends."""
    byte = data[at]
    at += 1
    number = byte & 127
    shift = 7
    while byte > 127:
        if shift > 63:
            raise BadRequest(f"the number before byte {at} has more than 64 bits")
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
    if number >> LONG_BITS:
        raise BadRequest(f"the number before byte {at} has more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def _response(cursor: _Cursor) -> PublishResponse:
    if cursor.branch(2):
        raise BadRequest("a rollback needs the transactionWritePointer of its publish")
    return PublishResponse(
        transaction_write_pointer=cursor.number(),
        start_timestamp=cursor.number(),
        start_sequence_id=cursor.number(INT_BITS),
        end_timestamp=cursor.number(),
        end_sequence_id=cursor.number(INT_BITS),
    )


def _publish(cursor: _Cursor) -> PublishRequest:
    pointer = None if cursor.branch(2) else cursor.number()
    payloads: list[Any] = []
    for count in cursor.blocks():
        _read_block(cursor, count, payloads)
    return PublishRequest(pointer, payloads)


def _read_block(cursor: _Cursor, count: int, payloads: list[bytes]) -> None:
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
            size, at = _long_at(data, at)
            size = size * 2 if size >= 0 else 1
        if size & 1:
            raise BadRequest(f"{cursor.what} has a message of less than no bytes")
        start, at = at, at + (size >> 1)
        take(data[start:at])
    cursor.at = at


def _poll(cursor: _Cursor) -> PollRequest:
    return PollRequest(
        start=_start(cursor),
        inclusive=cursor.flag(),
        limit=None if cursor.branch(2) else cursor.number(INT_BITS),
        transaction=None if cursor.branch(2) else codec.decode(cursor.data()),
    )


def _start(cursor: _Cursor) -> Start:
    branch = cursor.branch(3)
    if branch == 0:
        return MessageId.from_bytes(cursor.data())
    return cursor.number() if branch == 1 else None


def long_bytes(number: int) -> bytes:
    """Encodes a long or an int as Avro's zigzag varint."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _block(count: int, data: bytes) -> bytes:
    """Writes one block of an array; nothing for no items, which would end the array."""
    return long_bytes(count) + data if count else b""


# A block is closed as soon as its ids, payloads and 8 bytes a message reach this.
BLOCK_BYTES = 60_000
_BESIDE_PAYLOAD = ID_BYTES + 8
ITEMS = ItemForm(AVRO_TYPE, long_bytes(ID_BYTES), long_bytes, BLOCK_BYTES)
# The lengths that nearly all messages have.
_SIZES = tuple(map(long_bytes, range(2048)))


class AvroPage:
    """CDAP's array of {id, payload}, and nothing behind it."""

    items = ITEMS
    partition: int | None = None

    def begin(self) -> bytes:
        """Returns nothing: blocks may begin at once."""
        return b""

    def messages(self, messages: list[Message]) -> bytes:
        """Writes one or more blocks, each of them whole."""
        parts: list[bytes] = [b""]
        head = weight = 0
        known, id_head = len(_SIZES), ITEMS.id_head
        for message_id, payload, *_ in messages:
            size = len(payload)
            length = _SIZES[size] if size < known else long_bytes(size)
            parts += (id_head, message_id, length, payload)
            weight += size + _BESIDE_PAYLOAD
            if weight >= BLOCK_BYTES:
                parts[head] = long_bytes((len(parts) - head) // 4)
                head, weight = len(parts), 0
                parts.append(b"")
        if count := (len(parts) - head) // 4:
            parts[head] = long_bytes(count)
        return b"".join(parts)

    def blocks(self, blocks: list[tuple[int, bytes]], labels: Labels | None) -> bytes:
        """Writes the blocks alone: the format has no keys and headers."""
        return b"".join([_block(count, data) for count, data in blocks])

    def end(self, end: PageEnd) -> bytes:
        """Writes the block without items, which ends the array."""
        return _FIRST


class AvroFormat:
    """CDAP's bodies."""

    media_type = AVRO_TYPE

    def publish_request(self, body: bytes) -> PublishRequest:
        """Reads a PublishRequest of pointer and messages."""
        return _read(body, _publish, what=_PUBLISH)

    def publish_response(self, response: PublishResponse) -> bytes:
        """Writes a PublishResponse, which always has its pointer."""
        numbers = (
            response.transaction_write_pointer,
            response.start_timestamp,
            response.start_sequence_id,
            response.end_timestamp,
            response.end_sequence_id,
        )
        return _FIRST + b"".join(map(long_bytes, numbers))

    def receipt(self, receipt: Receipt) -> bytes:
        """Writes nothing: CDAP answers a store with an empty body."""
        return b""

    def rollback_request(self, body: bytes) -> PublishResponse:
        """Reads the PublishResponse of the publish to take back."""
        return _read(body, _response, what=_ROLLBACK)

    def poll_request(self, body: bytes) -> PollRequest:
        """Reads a ConsumeRequest."""
        return _read(body, _poll, what=_POLL)

    def page_writer(self, request: PollRequest) -> PageWriter:
        """Returns a writer of a ConsumeResponse."""
        return AvroPage()


AVRO = AvroFormat()


def schemas() -> dict[str, dict[str, Any]]:
    """Returns the schemas of its bodies, by media type and name."""
    publish = {
        "transactionWritePointer": ["long", "null"],
        "messages": _array("bytes"),
    }
    consume = _record(
        "ConsumeRequest",
        startFrom=["bytes", "long", "null"],
        inclusive="boolean",
        limit=["int", "null"],
        transaction=["bytes", "null"],
    )
    consume["fields"][1]["default"] = True
    response = _record(
        "PublishResponse",
        transactionWritePointer=["long", "null"],
        startTimestamp="long",
        startSequenceId="int",
        endTimestamp="long",
        endSequenceId="int",
    )
    return {
        AVRO_TYPE: {
            "PublishRequest": _record("PublishRequest", **publish),
            "PublishResponse": response,
            "ConsumeRequest": consume,
            "ConsumeResponse": _array(_record("Message", id="bytes", payload="bytes")),
        }
    }


def _record(name: str, **fields: Any) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}
