"""Messages as they go over the wire, encoded once and sent many times."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from txaware.model.messages import NO_PAYLOAD_ROW


class ItemForm(NamedTuple):
    """The bytes before an id, and those before a payload of a size.

    Items are cut into blocks of about `block_bytes`.
    """

    name: str
    id_head: bytes
    size_head: Callable[[int], bytes]
    block_bytes: int

    def item(self, message_id: bytes, payload: bytes) -> bytes:
        """Encodes one id and its payload; the id has all its 20 bytes."""
        return b"".join(
            (self.id_head, message_id, self.size_head(len(payload)), payload)
        )


class Encoded:
    """The ids and payloads of messages in a form, with the end of each item.

    They are encoded at the first use of a form. A reference has an empty item. Threads
    that use them first at the same time encode the same twice.
    """

    __slots__ = ("_behind", "_found", "_keys", "_payloads")

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
        self._found: dict[str, tuple[bytes, Sequence[int]]] = {}

    @property
    def size_bytes(self) -> int:
        """The size in memory, about, as it is now."""
        found = [*self._found.values()]
        return sum([len(data) + 8 * len(ends) for data, ends in found])

    def is_in(self, form: ItemForm) -> bool:
        """Tells whether they were encoded in a form before."""
        return form.name in self._found

    def cut(self, form: ItemForm, first: int, last: int) -> list[tuple[int, bytes]]:
        """Cuts a range of items into blocks, each with the number of its items."""
        data, ends = self._found.get(form.name) or self._make(form)
        pieces = []
        while first < last:
            full = ends[first] + form.block_bytes
            at = bisect_left(ends, full, first + 1, last)
            pieces.append((at - first, data[ends[first] : ends[at]]))
            first = at
        return pieces

    def _make(self, form: ItemForm) -> tuple[bytes, Sequence[int]]:
        heads: dict[int, bytes] = {}
        items: list[bytes] = []
        id_head = form.id_head
        for key, payload in zip(self._keys, self._payloads, strict=True):
            if payload is None:
                items.append(b"")
                continue
            size = len(payload)
            head = heads.get(size)
            if head is None:
                head = heads[size] = self._behind + form.size_head(size)
            items.append(id_head + key + head + payload)
        ends = array("L", accumulate(map(len, items), initial=0))
        made = self._found[form.name] = b"".join(items), ends
        return made
