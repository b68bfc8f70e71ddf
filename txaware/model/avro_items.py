"""Messages as they go over the wire, encoded once and sent many times."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from txaware.model.messages import NO_PAYLOAD_ROW

ID_HEAD = b"\x28"  # an id has 20 bytes


def long_bytes(number: int) -> bytes:
    """Encodes a long or an int as Avro's zigzag varint."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def encode_item(message_id: bytes, payload: bytes) -> bytes:
    """Encodes one {id, payload} of a page; the id has all its 20 bytes."""
    return b"".join((ID_HEAD, message_id, long_bytes(len(payload)), payload))


class Encoded:
    """The items of an Avro array of messages, with the end of each item.

    They are encoded at the first use. A reference has an empty item. Threads that use
    them first at the same time encode the same twice.
    """

    __slots__ = ("_behind", "_data", "_ends", "_keys", "_payloads")

    def __init__(
        self,
        keys: Sequence[bytes],
        payloads: Sequence[bytes | None],
        *,
        behind: bytes = NO_PAYLOAD_ROW,
    ) -> None:
        """Encodes nothing yet; `behind` is the end of each id, after the key."""
        self._keys = keys
        self._payloads = payloads
        self._behind = behind
        self._data: bytes | None = None
        self._ends: Sequence[int] = ()

    @property
    def size_bytes(self) -> int:
        """The size in memory, about, as it is now."""
        return 0 if self._data is None else len(self._data) + 8 * len(self._ends)

    def cut(self, first: int, last: int, piece_bytes: int) -> list[tuple[int, bytes]]:
        """Cuts a range of items into pieces of about `piece_bytes`.

        Each piece comes with the number of its items.
        """
        data = self._data
        if data is None:
            data = self._make()
        ends, pieces = self._ends, []
        while first < last:
            at = bisect_left(ends, ends[first] + piece_bytes, first + 1, last)
            pieces.append((at - first, data[ends[first] : ends[at]]))
            first = at
        return pieces

    def _make(self) -> bytes:
        heads: dict[int, bytes] = {}
        items: list[bytes] = []
        for key, payload in zip(self._keys, self._payloads, strict=True):
            if payload is None:
                items.append(b"")
                continue
            size = len(payload)
            head = heads.get(size)
            if head is None:
                head = heads[size] = self._behind + long_bytes(size)
            items.append(ID_HEAD + key + head + payload)
        self._ends = array("L", accumulate(map(len, items), initial=0))
        self._data = data = b"".join(items)
        return data
