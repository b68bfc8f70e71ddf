"""Writes Avro's binary form: numbers, bytes, unions with null, arrays and pages."""

from collections.abc import Callable
from typing import TypeVar

from txaware.model.avro_items import ID_HEAD, long_bytes
from txaware.model.labels import Labels, labels_or_none
from txaware.model.messages import ID_BYTES, BlockedBy, Message, PageEnd

FIRST, SECOND = b"\0", b"\2"

T = TypeVar("T")


# The lengths that nearly all messages have.
SIZES = tuple(map(long_bytes, range(2048)))


def data_bytes(data: bytes) -> bytes:
    """Writes bytes, or the UTF-8 of a string, behind their length."""
    return long_bytes(len(data)) + data


def payloads_bytes(payloads: list[bytes]) -> bytes:
    """Writes an array of bytes, in one block."""
    parts = [long_bytes(len(payloads))]
    known = len(SIZES)
    for payload in payloads:
        size = len(payload)
        parts += (SIZES[size] if size < known else long_bytes(size), payload)
    return b"".join((*parts, FIRST) if payloads else parts)


def optional(value: T | None, write: Callable[[T], bytes]) -> bytes:
    """Writes a union of null and something; null is its first branch."""
    return FIRST if value is None else SECOND + write(value)


def or_null(value: T | None, write: Callable[[T], bytes]) -> bytes:
    """Writes a union of something and null; null is its second branch."""
    return SECOND if value is None else FIRST + write(value)


def array(items: list[bytes]) -> bytes:
    """Writes an array in one block, of items that are encoded already."""
    return b"".join((block(len(items), b"".join(items)), FIRST))


def block(count: int, data: bytes) -> bytes:
    """Writes one block of an array; nothing for no items, which would end the array."""
    return long_bytes(count) + data if count else b""


# A block is closed as soon as its ids, payloads and 8 bytes a message reach this.
BLOCK_BYTES = 60_000
_BESIDE_PAYLOAD = ID_BYTES + 8


class AvroPage:
    """CDAP's array of {id, payload}, and nothing behind it."""

    takes_encoded = True

    def begin(self) -> bytes:
        """Returns nothing: blocks may begin at once."""
        return b""

    def messages(self, messages: list[Message]) -> bytes:
        """Writes one or more blocks, each of them whole."""
        parts: list[bytes] = [b""]
        head = weight = 0
        known = len(SIZES)
        for message_id, payload, _, _ in messages:
            size = len(payload)
            length = SIZES[size] if size < known else long_bytes(size)
            parts += (ID_HEAD, message_id, length, payload)
            weight += size + _BESIDE_PAYLOAD
            if weight >= BLOCK_BYTES:
                parts[head] = long_bytes((len(parts) - head) // 4)
                head, weight = len(parts), 0
                parts.append(b"")
        if count := (len(parts) - head) // 4:
            parts[head] = long_bytes(count)
        return b"".join(parts)

    def encoded(self, count: int, data: bytes) -> bytes:
        """Writes one block."""
        return block(count, data)

    def labelled(self, blocks: bytes, labels: Labels | None) -> bytes:
        """Returns the blocks alone: the format has no keys and headers."""
        return blocks

    def end(self, end: PageEnd) -> bytes:
        """Writes the block without items, which ends the array."""
        return FIRST


class OwnPage(AvroPage):
    """The record of txaware: the same array first, and then how the poll ended."""

    def end(self, end: PageEnd) -> bytes:
        """Writes the end of the array, and the three fields behind it."""
        return b"".join(
            (
                FIRST,
                data_bytes(end.next),
                optional(end.blocked_by, _blocked_by),
                optional(end.skipped_before, long_bytes),
            )
        )


def labels_of(messages: list[Message]) -> Labels | None:
    """Returns the keys and headers of messages, or None where none has any."""
    keys = [message.key for message in messages]
    return labels_or_none(keys, [message.packed_headers for message in messages])


def _blocked_by(blocked_by: BlockedBy) -> bytes:
    return long_bytes(blocked_by.pointer) + long_bytes(blocked_by.since_ms)
