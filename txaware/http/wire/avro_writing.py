"""Writes Avro's binary form: numbers, bytes, unions with null, one item of a page."""

from collections.abc import Callable
from typing import TypeVar

from txaware.store.encoded import long_bytes

FIRST, SECOND = b"\0", b"\2"

T = TypeVar("T")


# The lengths that nearly all messages have.
SIZES = tuple(map(long_bytes, range(2048)))


def data_bytes(data: bytes) -> bytes:
    """Bytes, or the UTF-8 of a string, behind their length."""
    return long_bytes(len(data)) + data


def payloads_bytes(payloads: list[bytes]) -> bytes:
    """An array of bytes, in one block."""
    parts = [long_bytes(len(payloads))]
    known = len(SIZES)
    for payload in payloads:
        size = len(payload)
        parts += (SIZES[size] if size < known else long_bytes(size), payload)
    return b"".join((*parts, FIRST) if payloads else parts)


def optional(value: T | None, write: Callable[[T], bytes]) -> bytes:
    """A union of null and something, null being its first branch."""
    return FIRST if value is None else SECOND + write(value)


def or_null(value: T | None, write: Callable[[T], bytes]) -> bytes:
    """A union of something and null, null being its second branch."""
    return SECOND if value is None else FIRST + write(value)


def array(items: list[bytes]) -> bytes:
    """An array in one block, of items that are encoded already."""
    return b"".join((block(len(items), b"".join(items)), FIRST))


def block(count: int, data: bytes) -> bytes:
    """One block of an array; nothing without an item, which would be its end."""
    return long_bytes(count) + data if count else b""
