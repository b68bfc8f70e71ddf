"""Rows of a user's table as values: names, keys, values, and their limits."""

import sys
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from txaware.errors import BadRequest, RequestTooLarge

# HBase takes keys of at most 32,767 bytes, and a zero byte takes two.
KEY_LIMIT_BYTES = 8192
PAGE_ROWS = 1000

T = TypeVar("T")


class RowChange(NamedTuple):
    """A change of one row; None for a value deletes it.

    A row that expires is gone `expire_after_s` seconds after it was written.
    """

    key: bytes
    value: bytes | None
    expire_after_s: float | None = None


class Rows(NamedTuple):
    """Some rows of a table in the order of keys, and the key where the next begin.

    `next` is None behind the last row.
    """

    rows: list[tuple[bytes, bytes]]
    next: bytes | None


class KeyRange(NamedTuple):
    """The keys that begin with `prefix`, from `start` on and before `stop`."""

    prefix: bytes = b""
    start: bytes | None = None
    stop: bytes | None = None


def checked_key(key: object) -> bytes:
    """Returns the key of a row; raises `BadRequest` for anything else."""
    if not isinstance(key, bytes):
        raise BadRequest(f"a key is bytes, not {key!r:.100}")
    if len(key) > KEY_LIMIT_BYTES:
        raise RequestTooLarge(
            f"a key of {len(key)} bytes is above the limit of {KEY_LIMIT_BYTES} bytes"
        )
    return key


def checked_value(value: object, *, limit_bytes: int) -> bytes:
    """Returns the value of a row; raises `BadRequest` for anything else."""
    if not isinstance(value, bytes):
        raise BadRequest(f"a value is bytes, not {value!r:.100}")
    if len(value) > limit_bytes:
        raise RequestTooLarge(
            f"a value of {len(value)} bytes is above the limit of {limit_bytes} bytes"
        )
    return value


def check_row_size(change: RowChange, *, limit_bytes: int) -> None:
    """Raises `RequestTooLarge` for a row that fits into no request to a server."""
    size_bytes = len(change.key) + len(change.value or b"")
    if size_bytes > limit_bytes:
        raise RequestTooLarge(
            f"a row of {size_bytes} bytes, with its key, is above the {limit_bytes} "
            f"bytes that a request to the server may have; see request_limit_bytes"
        )


def checked_expire_after_s(after_s: object) -> float | None:
    """Returns the seconds after which a row is gone; None for never."""
    if after_s is None:
        return None
    if isinstance(after_s, bool) or not isinstance(after_s, int | float):
        raise BadRequest(f"a row expires after seconds, not {after_s!r:.100}")
    if not 0 < after_s <= MAX_EXPIRE_AFTER_S:
        raise BadRequest(
            f"a row expires after more than 0 and at most {MAX_EXPIRE_AFTER_S} "
            f"seconds, not {after_s!r}"
        )
    return after_s


# A century: later times would not fit in the column.
MAX_EXPIRE_AFTER_S = 3_155_760_000


def checked_changes_of_rows(
    changes: Iterable[RowChange], *, limit_bytes: int = sys.maxsize
) -> list[RowChange]:
    """Returns changes of rows as a list; raises `BadRequest` for anything else."""
    listed = _listed(changes, "changes of rows are a list of RowChange")
    for change in listed:
        if not isinstance(change, RowChange):
            raise BadRequest(f"a change of a row is a RowChange, not {change!r:.100}")
        checked_key(change.key)
        if change.value is not None:
            checked_value(change.value, limit_bytes=limit_bytes)
        checked_expire_after_s(change.expire_after_s)
    return listed


def checked_keys_of_rows(keys: Iterable[bytes]) -> list[bytes]:
    """Returns keys as a list; raises `BadRequest` for anything else."""
    return [*map(checked_key, _listed(keys, "keys are a list of bytes"))]


def _listed(values: Iterable[T], what: str) -> list[T]:
    if not isinstance(values, Iterable):
        raise BadRequest(f"{what}, not {values!r:.100}")
    return list(values)


def checked_range(prefix: object, start: object, stop: object) -> KeyRange:
    """Returns a range of keys; raises `BadRequest` unless its ends are keys."""
    return KeyRange(
        checked_key(prefix),
        None if start is None else checked_key(start),
        None if stop is None else checked_key(stop),
    )


def checked_row_limit(limit: object) -> int | None:
    """Returns how many rows are asked for; None for all."""
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise BadRequest(f"a limit is a whole number from 0 on, not {limit!r:.100}")
    return min(limit, sys.maxsize)
