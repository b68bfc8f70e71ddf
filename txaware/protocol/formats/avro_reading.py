"""Reads Avro's binary form, strictly and within bounds, whatever the bytes are.

By hand, since fastavro takes a number of any length for one of 64 bits and makes an
array of any size before anybody can refuse it (10 MiB of short receipts: 440 MB), and
is little faster (1,000 messages of 100 bytes: 160 us, and 200 us here).
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from txaware.errors import BadRequest, RequestTooLarge
from txaware.model.avro_items import ID_HEAD
from txaware.model.messages import (
    ID_BYTES,
    BlockedBy,
    Message,
    MessageId,
    PageEnd,
    messages_of,
)
from txaware.model.requests import MAX_MESSAGES
from txaware.protocol.json_values import LONG_BITS, fits

T = TypeVar("T")


class Cursor:
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
        number, self.at = long_at(self.body, self.at)
        if bits != LONG_BITS and not fits(number, bits=bits):
            raise BadRequest(f"{self.what} has {number} where {bits} bits are allowed")
        return number

    def data(self) -> bytes:
        """Reads some bytes."""
        size, start = long_at(self.body, self.at)
        if not 0 <= size <= len(self.body) - start:
            raise BadRequest(
                f"{self.what} has a value of {size} bytes at byte {self.at} of "
                f"{len(self.body)}"
            )
        self.at = start + size
        return self.body[start : self.at]

    def text(self) -> str:
        """Reads a string."""
        try:
            return self.data().decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"{self.what} has text that is not UTF-8") from error

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


def read(body: bytes, reader: Callable[[Cursor], T], *, what: str) -> T:
    """Reads the whole body with `reader`; `BadRequest` if it is not such a body."""
    cursor = Cursor(body, what=what)
    try:
        value = reader(cursor)
    except IndexError as error:
        raise BadRequest(f"{what} ends too early, after {len(body)} bytes") from error
    if cursor.at != len(body):
        raise BadRequest(
            f"{what} ends after {cursor.at} bytes, and {len(body) - cursor.at} follow"
        )
    return value


def long_at(data: bytes, at: int) -> tuple[int, int]:
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


_ID_SIZE = ID_HEAD[0]


def read_end(cursor: Cursor, *, is_stable: bool = False) -> PageEnd:
    """Reads what follows the messages; `is_stable` with the last stable position."""
    return PageEnd(
        MessageId.from_bytes(cursor.data()),
        _blocked_by(cursor) if cursor.branch(2) else None,
        cursor.number() if cursor.branch(2) else None,
        MessageId.from_bytes(cursor.data()) if is_stable and cursor.branch(2) else None,
    )


def read_items(cursor: Cursor, count: int) -> list[Message]:
    """Reads as many {id, payload} as a block has."""
    ids: list[bytes] = []
    payloads: list[bytes] = []
    read_item_columns(cursor, count, ids, payloads)
    return messages_of(map(MessageId, ids), payloads, None)


def read_item_columns(
    cursor: Cursor, count: int, ids: list[bytes], payloads: list[bytes]
) -> None:
    """Reads as many {id, payload} as a block has into two lists."""
    data, at = cursor.body, cursor.at
    take_id, take_payload = ids.append, payloads.append
    for _ in range(count):
        if data[at] != _ID_SIZE:
            raise BadRequest(f"{cursor.what} has an id that is not {ID_BYTES} bytes")
        start = at + 1
        at = start + ID_BYTES
        take_id(data[start:at])
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
            raise BadRequest(f"{cursor.what} has a payload of less than no bytes")
        start, at = at, at + (size >> 1)
        take_payload(data[start:at])
    cursor.at = at


def _blocked_by(cursor: Cursor) -> BlockedBy:
    return BlockedBy(cursor.number(), cursor.number())
