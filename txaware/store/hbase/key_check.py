"""Checks the keys of a store in HBase, for what no other store can have wrong."""

from collections.abc import Callable, Iterable

from txaware.errors import StoreCorrupted
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.head import OWNER_BYTES
from txaware.store.hbase.salting import BUCKETS, bucket_of
from txaware.store.hbase.scanner import StoredKey, stored_keys
from txaware.store.hbase.schema import (
    HEAD_KEY,
    KINDS,
    MESSAGES,
    META,
    OWN_ROWS,
    OWNER_ROWS,
    PAYLOADS,
    REDO_ROWS,
    TALLY_ROWS,
)
from txaware.store.hbase.view import HBaseView
from txaware.store.interfaces import Notes
from txaware.store.keys import JOURNAL, MESSAGE, PAYLOAD

TAGS = {MESSAGES: MESSAGE, PAYLOADS: PAYLOAD}
OWNER_KEY_BYTES = len(OWNER_ROWS) + OWNER_BYTES
ENTRY_KEY_BYTES = len(JOURNAL) + 8
REDO_KEY_BYTES = len(REDO_ROWS) + OWNER_BYTES + 1 + 4


class KeyCheck:
    """A check beside the owner of the store, whoever that is; nobody has to stop."""

    def __init__(self, connections: HBaseConnections) -> None:
        self._connections = connections

    def checked_keys(
        self, notes: Notes, tags: Iterable[bytes], go_on: Callable[[], object]
    ) -> HBaseView | None:
        """Reads all keys as HBase has them; see `ChecksKeys`."""
        view, found = HBaseView(self._connections), set(tags)
        try:
            view.last_batch()
        except StoreCorrupted as error:
            notes.problem("head", HEAD_KEY, str(error))
            return None
        for kind in KINDS:
            for page in stored_keys(self._connections, kind):
                go_on()
                _check_places(kind, page, notes)
                _check_times(kind, page, view, notes)
                if kind == META:
                    found.update(key[:1] for key, _ in page)
        view.tags = found
        return view


def _check_places(kind: str, page: list[StoredKey], notes: Notes) -> None:
    """Checks that each row is in its own bucket: no reader finds it in another."""
    for key, _ in page:
        if kind == META:
            _check_own_row(key, notes)
            continue
        bucket = bucket_of(TAGS[kind] + key[1:])
        if key[0] != bucket:
            notes.problem(
                "bucket",
                TAGS[kind] + key[1:],
                f"the row is in bucket {key[0]} of {BUCKETS}, and {bucket} is its own",
            )


def _check_own_row(key: bytes, notes: Notes) -> None:
    """Counts the rows of the store's own; any unknown one is a problem."""
    if not key.startswith(OWN_ROWS) or key == HEAD_KEY:
        return
    if key.startswith(OWNER_ROWS) and len(key) == OWNER_KEY_BYTES:
        notes.counts["owners"] += 1
    elif key.startswith(REDO_ROWS) and len(key) == REDO_KEY_BYTES:
        notes.counts["pieces of redo records"] += 1
    elif key.startswith(TALLY_ROWS):
        notes.counts["tallies"] += 1
    else:
        notes.problem("key", key, "no row of the store's own has this name")


def _check_times(
    kind: str, page: list[StoredKey], view: HBaseView, notes: Notes
) -> None:
    """Checks that no row is newer than the last batch: a later one would show it."""
    rows = [row for row in page if kind != META or not row[0].startswith(OWN_ROWS)]
    head = view.last_batch()[0]  # after the rows: batches go on meanwhile
    last_ms = head.time_ms
    for key, time_ms in rows:
        if kind == META and key[:1] == JOURNAL and len(key) == ENTRY_KEY_BYTES:
            _check_entry(key, head.batch, notes)
        if time_ms > last_ms:
            notes.problem(
                "timestamp",
                TAGS[kind] + key[1:] if kind in TAGS else key,
                f"the row was written at {time_ms}, and the last batch at {last_ms}",
            )


def _check_entry(key: bytes, last_batch: int, notes: Notes) -> None:
    """Checks that no journal entry has a number above the last batch."""
    number = int.from_bytes(key[1:], "big")
    if number > last_batch:
        notes.problem(
            "batch",
            key,
            f"the last batch is number {last_batch}, and the journal has entry "
            f"{number}: the next batches would overwrite entries",
        )
