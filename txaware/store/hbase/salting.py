"""Salting: one byte in front of a key, its bucket, spreads topics over regions.

Messages of a topic move on to the next bucket about once a minute, payloads with each
transaction. So a publish or a read of the newest messages looks into one bucket, no
topic is bound to one region, and the rows of a long range are in order in each bucket.
"""

from zlib import crc32

from txaware.store.keys import (
    FIRST_PAYLOAD,
    MESSAGE,
    PAYLOAD,
    POINTER_BYTES,
    ROW_KEY_BYTES,
)

BUCKETS = 16
GENERATION_BYTES = 4
SLICE_BITS = 16  # of the time in ms: 65 s
SLICE_BYTES = 8 - SLICE_BITS // 8
# The bytes that may differ in two keys of one slice, or of one transaction: the rest of
# the time, and the sequence.
SAME_BYTES = ROW_KEY_BYTES - SLICE_BYTES


def bucket_of(key: bytes) -> int:
    """Returns the bucket of a message or a payload."""
    end = topic_end(key)
    if key[:1] == MESSAGE and end:
        return (crc32(key[:end]) + _slice(key[end:])) % BUCKETS
    if end:
        end += POINTER_BYTES
    return _digest(key[: end or None]) % BUCKETS


def salted_key(key: bytes) -> bytes:
    """Returns a row's key in a salted table: its bucket in place of its tag."""
    return bytes([bucket_of(key)]) + key[1:]


class Salt:
    """A salter of many keys, one after the other, for one thread.

    Most keys are in the bucket of the key before. To remember it saves a batch a third
    of its time.
    """

    def __init__(self) -> None:
        self._head: bytes | None = None
        self._salt = b""

    def key(self, key: bytes) -> bytes:
        """Returns a row's key in a salted table: its bucket in place of its tag."""
        head = key[:-SAME_BYTES]
        if head != self._head:
            self._salt = bytes([bucket_of(key)])
            # Bytes behind a head that decides the bucket alone do not change it.
            self._head = head if _bucket_end(key) <= len(head) else None
        return self._salt + key[1:]


def buckets_of(prefix: bytes, start: bytes, stop: bytes) -> list[int]:
    """Returns the buckets of rows from `start` to before `stop`, in that order.

    Both are whole keys that begin with `prefix`, except for a stop behind all of it.
    """
    end = topic_end(prefix)
    if end and prefix[:1] == MESSAGE:
        first, count = _slice(start[end:]), BUCKETS
        if stop.startswith(prefix[:end]):
            count = min(_slice(stop[end:], is_stop=True) - first + 1, BUCKETS)
        begin = crc32(prefix[:end]) + first
        return [(begin + step) % BUCKETS for step in range(max(1, count))]
    if end and len(prefix) >= end + POINTER_BYTES:
        return [_digest(prefix[: end + POINTER_BYTES]) % BUCKETS]
    return list(range(BUCKETS))


def slice_end(
    prefix: bytes, start: bytes, stop: bytes, *, reverse: bool
) -> bytes | None:
    """Returns the end of the first slice of a range of messages; backwards of its last.

    Up to that key all rows are in one bucket, and before all others. None if that is
    unknown.
    """
    end = topic_end(prefix)
    if not end or prefix[:1] != MESSAGE:
        return None
    if reverse and not stop.startswith(prefix[:end]):
        return None
    number = _slice(stop[end:], is_stop=True) if reverse else _slice(start[end:]) + 1
    key = prefix[:end] + (number << SLICE_BITS).to_bytes(9, "big")[1:]
    return key if start < key < stop else None


def _digest(head: bytes) -> int:
    """Returns a digest, of payloads with the first format's tag: so none moves."""
    return crc32(FIRST_PAYLOAD + head[1:] if head[:1] == PAYLOAD else head)


def _bucket_end(key: bytes) -> int:
    """Returns the number of bytes of a key that its bucket depends on."""
    end = topic_end(key)
    if not end:
        return len(key)
    return end + (POINTER_BYTES if key[:1] != MESSAGE else SLICE_BYTES)


def topic_end(key: bytes) -> int:
    """Finds the end of `namespace:topic:` and four bytes of generation; 0 for none."""
    end = key.find(b":", key.find(b":") + 1) + 1 + GENERATION_BYTES
    return end if GENERATION_BYTES < end <= len(key) and key.count(b":", 0, end) else 0


def _slice(rest: bytes, *, is_stop: bool = False) -> int:
    """Returns the slice of a key by what follows its topic; before it for a stop."""
    time_ms = int.from_bytes(rest[:8].ljust(8, b"\0"), "big")
    if is_stop and len(rest) <= 8:
        time_ms -= 1
    return max(0, time_ms) >> SLICE_BITS
