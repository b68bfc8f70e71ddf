"""The rows that a copy takes of a store, each as one snapshot judges it."""

import hashlib
import struct
from collections.abc import Iterator, Sequence

from coordinator.transaction import Transaction
from txaware.errors import BadRequest, StoreCorrupted
from txaware.model.interfaces import OrderedTable, Row
from txaware.service.transfer.copy_state import AsOf
from txaware.service.visibility import DELIVER, SKIP, STOP, Visibility
from txaware.store.columns import (
    EXPIRY,
    MORE,
    decode,
    decode_expiry,
    negated,
)
from txaware.store.interfaces import pieces
from txaware.store.keys import ROW_KEY_BYTES
from txaware.store.kinds import KINDS
from txaware.store.row_kinds import PointerAt, RowKind

PIECE_ROWS = 5000
# So many of the transactions whose rows are left out are named.
NAMED = 100

_SIZES = struct.Struct(">II").pack


class JudgedRows:
    """All rows of a store in order, as they are to stand in its copy; counts them.

    Rows of an invalid transaction come rolled back. Its stored payloads come as they
    stand, since plain polls deliver them too. Rows of a transaction in progress are
    left out, and rows newer than the moment, with all that belongs to them.
    """

    def __init__(
        self, table: OrderedTable, as_of: AsOf, *, seen_by: Transaction | None = None
    ) -> None:
        self.rolled_back = 0
        self.left_out = 0
        self.undecided: set[int] = set()
        self.lowest = as_of.snapshot.transaction_id
        self._table = table
        self._as_of = as_of
        self._seen_by = seen_by

    def pieces(self) -> Iterator[list[Row]]:
        """Yields some rows at a time, by their whole keys; a piece may be empty."""
        for first_byte in KINDS.copied:
            for rows in pieces(self._table, first_byte, limit=PIECE_ROWS):
                judge = Visibility(self._as_of.snapshot)  # a new one remembers little
                judged = (self._row(judge, first_byte + k, v) for k, v in rows)
                yield [row for row in judged if row is not None]

    def _row(self, judge: Visibility, key: bytes, value: bytes) -> Row | None:
        kind = KINDS.of(key)
        if kind is None:  # a check says that it is of no kind
            return key, value
        if kind.as_of is not None:
            before = kind.as_of(value, self._as_of.before_ms)
            if before is None:
                self._leave_out(None)
                return None
            return key, before
        pointer = _pointer_of(kind, key, value)
        # By the sign nothing is decided: who rolls back may still be in progress.
        verdict = judge.verdict(None if pointer is None else abs(pointer))
        if verdict == STOP or (kind.is_timed and self._is_newer(key)):
            self._leave_out(pointer)
            return None
        if not pointer:
            return key, value
        self.lowest = min(self.lowest, abs(pointer))
        if pointer < 0:
            return key, value
        if verdict == DELIVER:
            self._check_seen(key, pointer)
        elif verdict == SKIP and kind.pointer_at is PointerAt.VALUE:
            self.rolled_back += 1
            return key, negated(value)
        return key, value

    def _is_newer(self, key: bytes) -> bool:
        time_ms = int.from_bytes(key[-ROW_KEY_BYTES:-2], "big")
        return time_ms >= self._as_of.before_ms

    def _leave_out(self, pointer: int | None) -> None:
        self.left_out += 1
        if pointer is not None and len(self.undecided) < NAMED:
            self.undecided.add(abs(pointer))

    def _check_seen(self, key: bytes, pointer: int) -> None:
        if self._seen_by is not None and not self._seen_by.is_visible(pointer):
            raise BadRequest(
                f"the coordinator of the target does not see transaction {pointer}, "
                f"which has committed the row {key.hex()}: readers there would stop "
                f"before it, or never get it"
            )


def _pointer_of(kind: RowKind, key: bytes, value: bytes) -> int | None:
    try:
        return kind.pointer(key, value)
    except (IndexError, struct.error) as error:
        raise StoreCorrupted(
            f"the row {key.hex()} cannot be read; txaware check tells more"
        ) from error


class RowDigest:
    """SHA-256 over the keys and values of rows, in the order of keys.

    It covers the rows that stay: rows that expire by themselves may go at any time.
    With `expiring_after_ms` it covers only rows that expire later than that.
    """

    def __init__(self, *, expiring_after_ms: int | None = None) -> None:
        self.rows = 0
        self.expiring = 0
        self._after_ms = expiring_after_ms
        self._digest = hashlib.sha256()

    def update(self, rows: Sequence[Row]) -> None:
        """Takes the next rows; how they are cut into pieces does not matter."""
        self.rows += len(rows)
        parts: list[bytes] = []
        for key, value in rows:
            if self._takes(key, value):
                parts += (_SIZES(len(key), len(value)), key, value)
        self._digest.update(b"".join(parts))

    def _takes(self, key: bytes, value: bytes) -> bool:
        if not value or not value[0] & MORE:
            return self._after_ms is None
        kind = KINDS.of(key)
        if kind is None or not kind.is_timed:
            return self._after_ms is None
        expiry = decode(value).more.get(EXPIRY)
        if expiry is None:
            return self._after_ms is None
        self.expiring += 1
        return self._after_ms is not None and decode_expiry(expiry) > self._after_ms

    def digest(self) -> bytes:
        """Returns the digest of all rows so far."""
        return self._digest.digest()
