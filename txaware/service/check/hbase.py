"""Verifies a store in HBase: the promises of every store, and the needs of HBase."""

from collections.abc import Container

from txaware.clock import ClockMs, system_clock_ms
from txaware.errors import StoreCorrupted
from txaware.keys import JOURNAL, MESSAGE, PAYLOAD
from txaware.reports import Progress, Report
from txaware.service.check.checking import KNOWN, check
from txaware.service.check.findings import Findings
from txaware.service.check.journal import NUMBER_BYTES
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

TAGS = {MESSAGES: MESSAGE, PAYLOADS: PAYLOAD}
OWNER_KEY_BYTES = len(OWNER_ROWS) + OWNER_BYTES
ENTRY_KEY_BYTES = len(JOURNAL) + NUMBER_BYTES
REDO_KEY_BYTES = len(REDO_ROWS) + OWNER_BYTES + 1 + 4


def check_hbase(
    connections: HBaseConnections,
    *,
    progress: Progress | None = None,
    invalid: Container[int] | None = None,
    clock_ms: ClockMs = system_clock_ms,
) -> Report:
    """Reads everything beside the owner of the store, whoever that is.

    See `check`; all keys are read once more, as HBase has them.
    """
    findings, view = Findings(), HBaseView(connections)
    try:
        view.last_batch()
    except StoreCorrupted as error:
        findings.problem("head", HEAD_KEY, str(error))
        return findings.report()
    tags = set(KNOWN)
    for kind in KINDS:
        for page in stored_keys(connections, kind):
            if progress is not None:
                progress(0, None)  # no row is done, and it may raise
            _check_places(kind, page, findings)
            _check_times(kind, page, view, findings)
            if kind == META:
                tags.update(key[:1] for key, _ in page)
    view.tags = tags
    return check(
        view, progress=progress, invalid=invalid, clock_ms=clock_ms, findings=findings
    )


def _check_places(kind: str, page: list[StoredKey], findings: Findings) -> None:
    """Checks that each row is in its own bucket: no reader finds it in another."""
    for key, _ in page:
        if kind == META:
            _check_own_row(key, findings)
            continue
        bucket = bucket_of(TAGS[kind] + key[1:])
        if key[0] != bucket:
            findings.problem(
                "bucket",
                TAGS[kind] + key[1:],
                f"the row is in bucket {key[0]} of {BUCKETS}, and {bucket} is its own",
            )


def _check_own_row(key: bytes, findings: Findings) -> None:
    """Counts the rows of the store's own; any unknown one is a problem."""
    if not key.startswith(OWN_ROWS) or key == HEAD_KEY:
        return
    if key.startswith(OWNER_ROWS) and len(key) == OWNER_KEY_BYTES:
        findings.counts["owners"] += 1
    elif key.startswith(REDO_ROWS) and len(key) == REDO_KEY_BYTES:
        findings.counts["pieces of redo records"] += 1
    elif key.startswith(TALLY_ROWS):
        findings.counts["tallies"] += 1
    else:
        findings.problem("key", key, "no row of the store's own has this name")


def _check_times(
    kind: str, page: list[StoredKey], view: HBaseView, findings: Findings
) -> None:
    """Checks that no row is newer than the last batch: a later one would show it."""
    rows = [row for row in page if kind != META or not row[0].startswith(OWN_ROWS)]
    head = view.last_batch()[0]  # after the rows: batches go on meanwhile
    last_ms = head.time_ms
    for key, time_ms in rows:
        if kind == META and key[:1] == JOURNAL and len(key) == ENTRY_KEY_BYTES:
            _check_entry(key, head.batch, findings)
        if time_ms > last_ms:
            findings.problem(
                "timestamp",
                TAGS[kind] + key[1:] if kind in TAGS else key,
                f"the row was written at {time_ms}, and the last batch at {last_ms}",
            )


def _check_entry(key: bytes, last_batch: int, findings: Findings) -> None:
    """Checks that no journal entry has a number above the last batch."""
    number = int.from_bytes(key[1:], "big")
    if number > last_batch:
        findings.problem(
            "batch",
            key,
            f"the last batch is number {last_batch}, and the journal has entry "
            f"{number}: the next batches would overwrite entries",
        )
