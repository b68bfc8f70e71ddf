"""Converts transactions to bytes and back, exactly as Tephra's TransactionCodec."""

import struct
from collections.abc import Callable
from typing import NoReturn

from coordinator.errors import MalformedTransaction
from coordinator.pointers import NO_POINTERS, POINTER_BYTES, Pointers
from coordinator.transaction import Transaction, TransactionType, VisibilityLevel

# The struct of Tephra's transaction.thrift in Thrift's binary protocol: for each field
# a type byte, a 16-bit id and the value, all big-endian, closed by a zero byte.
_STOP, _BOOL, _BYTE, _DOUBLE = 0, 2, 3, 4
_I16, _I32, _I64, _STRING = 6, 8, 10, 11
_STRUCT, _MAP, _SET, _LIST, _ENUM = 12, 13, 14, 15, 16
_FIXED_BYTES = {_BOOL: 1, _BYTE: 1, _DOUBLE: 8, _I16: 2, _I32: 4, _I64: 8, _ENUM: 4}
_DEEPEST = 32

_HEAD = struct.Struct(">BHqBHqBHBi")
_LIST_HEAD = struct.Struct(">BHBi")
_MIDDLE = struct.Struct(">BHqBHiBHqBHBi")
_TAIL = struct.Struct(">BHiB")
_FIELD = struct.Struct(">BH")
_READ_I64 = struct.Struct(">q")
_READ_I32 = struct.Struct(">i")
_ELEMENTS = struct.Struct(">Bi")
_PAIRS = struct.Struct(">BBi")


def encode(tx: Transaction) -> bytes:
    """Returns the bytes that Tephra's own codec would write for `tx`."""
    invalids, in_progress = tx.invalids, tx.in_progress
    checkpoints = tx.checkpoint_write_pointers
    return b"".join(
        (
            _HEAD.pack(
                *(_I64, 1, tx.transaction_id, _I64, 2, tx.read_pointer),
                *(_LIST, 3, _I64, len(invalids)),
            ),
            invalids.to_bytes(),
            _LIST_HEAD.pack(_LIST, 4, _I64, len(in_progress)),
            in_progress.to_bytes(),
            _MIDDLE.pack(
                *(_I64, 5, tx.first_short_in_progress, _I32, 6, tx.type),
                *(_I64, 7, tx.write_pointer, _LIST, 8, _I64, len(checkpoints)),
            ),
            checkpoints.to_bytes(),
            _TAIL.pack(_I32, 9, tx.visibility_level, _STOP),
        )
    )


def decode(data: bytes) -> Transaction:
    """Returns the transaction in `data`; raises `MalformedTransaction` if it is none.

    As in Tephra, fields that are not known are skipped, missing lists are empty, a
    type other than SHORT is LONG, and lists are taken to be ascending. Unlike there,
    the three pointers must be present and nothing may follow the struct.
    """
    numbers: dict[int, int] = {}
    lists: dict[int, Pointers] = {}
    try:
        end = _read_fields(bytes(data), numbers, lists)
    except (struct.error, IndexError) as error:
        raise MalformedTransaction(
            f"the transaction ends too early, after {len(data)} bytes"
        ) from error
    if end != len(data):
        raise MalformedTransaction(
            f"{len(data) - end} bytes follow a transaction of {end} bytes"
        )
    for field, name in ((1, "id"), (2, "read pointer"), (7, "write pointer")):
        if field not in numbers:
            raise MalformedTransaction(f"the transaction has no {name} (field {field})")
    return Transaction(
        transaction_id=numbers[1],
        read_pointer=numbers[2],
        write_pointer=numbers[7],
        invalids=lists.get(3, NO_POINTERS),
        in_progress=lists.get(4, NO_POINTERS),
        first_short_in_progress=numbers.get(5, 0),
        type=TransactionType.SHORT if numbers.get(6) == 1 else TransactionType.LONG,
        checkpoint_write_pointers=lists.get(8, NO_POINTERS),
        visibility_level=_visibility_level(numbers.get(9, VisibilityLevel.SNAPSHOT)),
    )


def _visibility_level(number: int) -> VisibilityLevel:
    try:
        return VisibilityLevel(number)
    except ValueError as error:
        raise MalformedTransaction(
            f"visibility level {number} is none of 1, 2 and 3"
        ) from error


def _read_fields(
    data: bytes, numbers: dict[int, int], lists: dict[int, Pointers]
) -> int:
    """Fills in the known fields and returns the position where the struct ends."""
    at = 0
    while data[at] != _STOP:
        kind, field = _FIELD.unpack_from(data, at)
        at += _FIELD.size
        if kind == _I64 and field in (1, 2, 5, 7):
            (numbers[field],) = _READ_I64.unpack_from(data, at)
            at += POINTER_BYTES
        elif kind == _I32 and field in (6, 9):
            (numbers[field],) = _READ_I32.unpack_from(data, at)
            at += 4
        elif kind == _LIST and field in (3, 4, 8):
            lists[field], at = _read_pointers(data, at)
        else:
            at = _skip(data, at, kind)
    return at + 1


def _read_pointers(data: bytes, at: int) -> tuple[Pointers, int]:
    kind, count = _ELEMENTS.unpack_from(data, at)
    at += _ELEMENTS.size
    end = at + count * POINTER_BYTES
    if kind != _I64 or count < 0:
        raise MalformedTransaction(f"a list of {count} elements of type {kind}")
    if end > len(data):
        _too_early(data)
    return (
        Pointers.from_bytes(memoryview(data)[at:end]) if count else NO_POINTERS
    ), end


def _skip(data: bytes, at: int, kind: int, depth: int = 0) -> int:
    """Skips one value of any type and returns the position where it ends."""
    if depth > _DEEPEST:
        raise MalformedTransaction(f"values nested deeper than {_DEEPEST}")
    if kind in _FIXED_BYTES:
        at += _FIXED_BYTES[kind]
    elif kind in _SKIP:
        at = _SKIP[kind](data, at, depth)
    else:
        raise MalformedTransaction(f"{kind} is no Thrift type")
    if at > len(data):
        _too_early(data)
    return at


def _skip_string(data: bytes, at: int, depth: int) -> int:
    (size,) = _READ_I32.unpack_from(data, at)
    return at + 4 + _counted(size)


def _skip_struct(data: bytes, at: int, depth: int) -> int:
    while data[at] != _STOP:
        at = _skip(data, at + _FIELD.size, data[at], depth + 1)
    return at + 1


def _skip_elements(data: bytes, at: int, depth: int) -> int:
    kind, count = _ELEMENTS.unpack_from(data, at)
    return _skip_run(data, at + _ELEMENTS.size, (kind,), count, depth)


def _skip_map(data: bytes, at: int, depth: int) -> int:
    key, value, count = _PAIRS.unpack_from(data, at)
    return _skip_run(data, at + _PAIRS.size, (key, value), count, depth)


def _skip_run(
    data: bytes, at: int, kinds: tuple[int, ...], count: int, depth: int
) -> int:
    for _ in range(_counted(count)):
        for kind in kinds:
            at = _skip(data, at, kind, depth + 1)
    return at


_SKIP: dict[int, Callable[[bytes, int, int], int]] = {
    _STRING: _skip_string,
    _STRUCT: _skip_struct,
    _MAP: _skip_map,
    _SET: _skip_elements,
    _LIST: _skip_elements,
}


def _counted(count: int) -> int:
    if count < 0:
        raise MalformedTransaction(f"a length of {count}")
    return count


def _too_early(data: bytes) -> NoReturn:
    raise MalformedTransaction(
        f"the transaction ends too early, after {len(data)} bytes"
    )
