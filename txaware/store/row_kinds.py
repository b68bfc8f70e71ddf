"""Kinds of rows: what a check, a copy, a backup and a clean-up have to know of each."""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum

import attrs

from txaware.store.columns import pointer_of
from txaware.store.keys import POINTER_BYTES, ROW_KEY_BYTES


class PointerAt(Enum):
    """The place in a row of the pointer that decides whether the row counts."""

    NOWHERE = "the row belongs to no transaction"
    VALUE = "column t of the value; a rollback negates it"
    KEY_END = "the last bytes of the key"
    BEFORE_TIME = "the bytes of the key before time and sequence"


_BEHIND_POINTER = {
    PointerAt.KEY_END: POINTER_BYTES,
    PointerAt.BEFORE_TIME: POINTER_BYTES + ROW_KEY_BYTES,
}


@attrs.frozen(eq=False, kw_only=True)
class RowKind:
    """A kind of row: all whose keys begin with `prefix`, and with no longer one.

    `name` is what a check counts it by. Where `behind_topic` is a number, a key names a
    topic and its generation, and ends with so many bytes. `decode` reads a value, or an
    error says what is wrong with it. A key ends with a time where `is_timed`.

    A copy takes rows as `as_of` says that they were before a time (None: not there), or
    as they stand. A backup by a snapshot rolls back what that does not see, where
    `is_rolled_back`. Versions before the newest format do not know what `is_newest`.
    HBase keeps each column in a cell of its own where `has_cells`.
    """

    name: str
    prefix: bytes
    pointer_at: PointerAt = PointerAt.NOWHERE
    behind_topic: int | None = None
    decode: Callable[[bytes], object] | None = None
    as_of: Callable[[bytes, int], bytes | None] | None = None
    is_timed: bool = False
    is_copied: bool = True
    is_rolled_back: bool = False
    is_newest: bool = False
    has_cells: bool = False
    table: bytes = attrs.field(init=False)

    @table.default
    def _table(self) -> bytes:
        return self.prefix[:1]

    def pointer(self, key: bytes, value: bytes) -> int | None:
        """Returns the pointer of a row, negative once rolled back; None without one."""
        if self.pointer_at is PointerAt.VALUE:
            return pointer_of(value)
        behind = _BEHIND_POINTER.get(self.pointer_at)
        if behind is None:
            return None
        at = len(key) - behind
        return int.from_bytes(key[at : at + POINTER_BYTES], "big")


class RowKinds:
    """All kinds of rows; those with the same first byte are one table."""

    def __init__(self, kinds: Iterable[RowKind]) -> None:
        self._by_table: dict[bytes, tuple[RowKind, ...]] = {}
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[RowKind]:
        for kinds in self._by_table.values():
            yield from kinds

    def add(self, kind: RowKind) -> None:
        """Registers a kind, so that everything that goes through all rows knows it."""
        table = kind.prefix[:1]
        kinds = (*self._by_table.get(table, ()), kind)
        longest_first = sorted(kinds, key=lambda one: -len(one.prefix))
        self._by_table[table] = tuple(longest_first)

    def remove(self, kind: RowKind) -> None:
        """Takes back `add`."""
        table = kind.prefix[:1]
        left = tuple(one for one in self._by_table.pop(table) if one is not kind)
        if left:
            self._by_table[table] = left

    def of(self, key: bytes) -> RowKind | None:
        """Returns the kind of a row by its key; None where no kind has such keys."""
        for kind in self._by_table.get(key[:1], ()):
            if key.startswith(kind.prefix):
                return kind
        return None

    @property
    def tables(self) -> list[bytes]:
        """The first bytes of all keys, in the order of keys."""
        return sorted(self._by_table)

    @property
    def copied(self) -> list[bytes]:
        """The first bytes of what a copy takes, in the order of keys."""
        return sorted({kind.prefix[:1] for kind in self if kind.is_copied})
