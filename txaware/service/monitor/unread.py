"""Finds the oldest message that a group has yet to read, and who last read for it."""

import attrs

from txaware.model.clock import ClockMs
from txaware.model.interfaces import OrderedTable
from txaware.service.visibility import DELIVER, SKIP, Visibility
from txaware.store.columns import EXPIRY, decode, decode_expiry, pointer_of
from txaware.store.keys import MESSAGE

# Mostly the first row is the one; what was rolled back, or has expired, is passed over.
FIRST_ROWS, MOST_ROWS, MOST_BYTES = 2, 1000, 1 << 20
MOST_READERS = 100_000


@attrs.frozen
class FirstUnread:
    """The first message that a reader gets from a place on, if there is one.

    Rows before `key` are passed over for good, so that the next look begins there.
    `rows` is the number of rows read.
    """

    key: bytes
    since_ms: int | None
    rows: int


def first_unread(
    table: OrderedTable,
    prefix: bytes,
    judge: Visibility,
    *,
    start: bytes,
    stop: bytes,
    now_ms: int,
) -> FirstUnread:
    """Looks from `start` on, but not behind a row that stops readers.

    It reads a bounded number of rows: where all of those are passed over, the next look
    goes on.
    """
    rows, limit = 0, FIRST_ROWS
    while rows < MOST_ROWS:
        found = table.scan(
            MESSAGE + prefix,
            start=start,
            stop=stop,
            limit=limit,
            max_bytes=MOST_BYTES,
        )
        rows += len(found)
        for key, value in found:
            verdict = judge.verdict(pointer_of(value))
            if verdict == DELIVER and not _has_expired(value, now_ms):
                return FirstUnread(key, int.from_bytes(key[:8], "big"), rows)
            if verdict not in (DELIVER, SKIP):
                return FirstUnread(key, None, rows)
            start = key + b"\0"
        if not found:
            break
        limit = MOST_ROWS
    return FirstUnread(start, None, rows)


def _has_expired(value: bytes, now_ms: int) -> bool:
    expiry = decode(value).more.get(EXPIRY)
    return expiry is not None and decode_expiry(expiry) <= now_ms


class Readers:
    """Remembers when a group was last read for, since the store was opened.

    That is when its position was asked for in a transaction, as every reader does that
    uses one, or saved. Any number of threads may tell and ask.
    """

    def __init__(self, clock_ms: ClockMs) -> None:
        self._clock_ms = clock_ms
        self._since_ms = clock_ms()
        self._seen: dict[tuple[str, str], int] = {}

    def saw(self, group: str, topic: str) -> None:
        """Notes that somebody reads for the group just now."""
        if len(self._seen) >= MOST_READERS:  # some time later all readers are known
            self._seen, self._since_ms = {}, self._clock_ms()
        self._seen[group, topic] = self._clock_ms()

    def last_ms(self, group: str, topic: str) -> int:
        """Returns the time of the last read, or the time since when there was none."""
        return self._seen.get((group, topic), self._since_ms)
