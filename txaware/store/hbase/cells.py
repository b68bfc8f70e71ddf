"""Cells, the values of HBase: one for each column, or one for a whole value."""

from collections.abc import Mapping

from txaware.errors import StoreCorrupted
from txaware.store.columns import (
    EXPIRY,
    MORE,
    PLAIN,
    POINTED,
    REFERENCE,
    decode,
    decode_expiry,
    value_head,
)
from txaware.store.kinds import KINDS

FAMILY = b"f"
WHOLE = b"f:v"
POINTER_CELL, PAYLOAD_CELL = b"f:t", b"f:p"
_WITH_COLUMNS = frozenset(kind.prefix[:1] for kind in KINDS if kind.has_cells)
_POINTER_BYTES = 8
_TAGS = {PLAIN, POINTED, REFERENCE, PLAIN | MORE, POINTED | MORE, REFERENCE | MORE}


def to_cells(key: bytes, value: bytes) -> dict[bytes, bytes]:
    """Makes the cells of a row: its columns, or one cell if it has none."""
    if key[:1] in _WITH_COLUMNS and value:
        tag = value[0]
        if tag == PLAIN:
            return {PAYLOAD_CELL: value[1:]}
        if tag == POINTED and len(value) > _POINTER_BYTES:
            return {POINTER_CELL: value[1:9], PAYLOAD_CELL: value[9:]}
        if tag in _TAGS:
            cells = _columns(value)
            if cells is not None:
                return cells
    return {WHOLE: value}


def to_value(cells: Mapping[bytes, bytes]) -> bytes:
    """Returns the value that cells were made of."""
    payload = cells.get(PAYLOAD_CELL)
    if payload is not None:
        if len(cells) == 1:
            return b"\0" + payload
        if len(cells) == 2:
            pointer = cells.get(POINTER_CELL)
            if pointer is not None:
                return b"\1" + pointer + payload
    whole = cells.get(WHOLE)
    return whole if whole is not None else _joined(cells)


def expiry_ms(cells: Mapping[bytes, bytes]) -> int | None:
    """Returns the time at which a message expires by itself; None if it does not."""
    data = cells.get(b"f:" + EXPIRY)
    return None if data is None else decode_expiry(data)


def _columns(value: bytes) -> dict[bytes, bytes] | None:
    """Makes a cell for each column; None if the value cannot be made of them again."""
    try:
        columns = decode(value)
    except StoreCorrupted:
        return None
    cells = {b"f:" + name: data for name, data in columns.more.items()}
    if columns.pointer is not None:
        cells[POINTER_CELL] = columns.pointer.to_bytes(8, "big", signed=True)
    if columns.payload is not None:
        cells[PAYLOAD_CELL] = columns.payload
    return cells if _joined(cells) == value else None


def _joined(cells: Mapping[bytes, bytes]) -> bytes:
    pointer, payload = cells.get(POINTER_CELL), cells.get(PAYLOAD_CELL)
    more = {
        name[2:]: cells[name]
        for name in sorted(cells)
        if name not in (POINTER_CELL, PAYLOAD_CELL)
    }
    head = value_head(
        None if pointer is None else int.from_bytes(pointer, "big", signed=True),
        reference=payload is None,
        more=more,
    )
    return head + (payload or b"")
