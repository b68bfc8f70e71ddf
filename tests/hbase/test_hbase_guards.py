"""Each guard of the store in HBase, taken away: the histories find what it is for."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from tests.support.hbase_world import World, Wrong
from txaware.errors import StoreCorrupted, Unavailable
from txaware.store.hbase import redo, writing
from txaware.store.hbase import scans as rows
from txaware.store.hbase import scans as scanning
from txaware.store.hbase.head import HeadCell, StoreHead
from txaware.store.hbase.ownership import Ownership
from txaware.store.hbase.redo import RedoLog

MOST_SEEDS = 400
Patch = pytest.MonkeyPatch


def no_settling(patch: Patch) -> None:
    """After an unknown answer the head is read, and not moved on."""

    def settle(self: Ownership, old: StoreHead, wanted: StoreHead | None) -> StoreHead:
        return self._cell.read() or old

    patch.setattr(Ownership, "settle", settle)


def no_fence(patch: Patch) -> None:
    """The head is set, whatever it was."""
    check = HeadCell._set

    def put(
        self: HeadCell, old: StoreHead | None, new: StoreHead
    ) -> Callable[[Any], bool]:
        def blindly(client: Any) -> bool:
            return check(self, self._get(client), new)(client)

        return blindly

    patch.setattr(HeadCell, "_set", put)


def no_bound(patch: Patch) -> None:
    """Readers see whatever is there."""
    read_row, read_range = rows.read_row, rows.read_range
    ever = 1 << 61

    def row(*args: Any, **options: Any) -> Any:
        return read_row(*args, **{**options, "before_ms": ever})

    def row_range(connections: Any, wanted: rows.CellRange) -> Any:
        return read_range(connections, attrs.evolve(wanted, before_ms=ever))

    patch.setattr(scanning, "read_row", row)
    patch.setattr(scanning, "read_range", row_range)


def record_last(patch: Patch) -> None:
    """The head names a record that is not there yet."""
    keep, move = RedoLog.keep, Ownership.move
    kept: list[Callable[[], object]] = []

    def later(self: RedoLog, record: bytes, head: StoreHead) -> StoreHead:
        put = self._put
        pieces: list[tuple[Any, ...]] = []
        self._put = lambda *piece: pieces.append(piece)  # type: ignore[method-assign]
        try:
            return keep(self, record, head)
        finally:
            self._put = put  # type: ignore[method-assign]
            kept.append(lambda: [put(*piece) for piece in pieces])

    def moved(self: Ownership, old: StoreHead, new: StoreHead) -> None:
        puts = kept[:]
        kept.clear()
        move(self, old, new)
        for put in puts:
            put()

    patch.setattr(RedoLog, "keep", later)
    patch.setattr(Ownership, "move", moved)


def no_redo(patch: Patch) -> None:
    """Whoever finds a batch in the head takes its rows for written."""
    patch.setattr(RedoLog, "read", lambda self, head: b"")


def own_times(patch: Patch) -> None:
    """Rows are written with the time at which they are written."""
    call = writing.Writing._put

    def now(self: Any, group: Any, rows: Any, time_ms: int) -> None:
        call(self, group, rows, self._clock_ms())

    patch.setattr(writing.Writing, "_put", now)


GUARDS = [
    no_settling,
    no_fence,
    no_bound,
    record_last,
    no_redo,
    own_times,
]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.__name__)
def test_without_a_guard_histories_go_wrong(
    guard: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(redo, "INLINE_BYTES", 150)
    monkeypatch.setattr(redo, "PIECE_BYTES", 400)
    monkeypatch.setattr(writing, "CALL_ROWS", 3)
    guard(monkeypatch)
    with pytest.raises((Wrong, StoreCorrupted, Unavailable)) as caught:
        run_all()
    assert not isinstance(caught.value, Unavailable) or "damaged" in str(caught.value)


def run_all() -> None:
    for seed in range(MOST_SEEDS):
        World(seed).run(steps=60)
