"""Checks the pipes of queues, and the leases of their items."""

from txaware.errors import StoreCorrupted
from txaware.model.messages import ID_BYTES
from txaware.model.queues import PIPE_BYTES
from txaware.service.check.groups import Judging, grouped
from txaware.service.check.table_scan import CheckScan
from txaware.store.keys import LEASE, PIPE
from txaware.store.queue_table import LeaseRow, PipeRow


def check_queues(scan: CheckScan, judging: Judging) -> None:
    """Checks that each pipe and each lease can be read, and is of a known queue."""
    group_of = grouped(judging, PIPE, PIPE_BYTES)
    for key, value in scan.table(PIPE):
        judging.findings.counts["pipes"] += 1
        if group_of(key) is not None:
            _check(judging, PIPE + key, value, PipeRow)
    group_of = grouped(judging, LEASE, ID_BYTES)
    for key, value in scan.table(LEASE):
        judging.findings.counts["leases"] += 1
        if group_of(key) is not None:
            _check(judging, LEASE + key, value, LeaseRow)


def _check(
    judging: Judging, key: bytes, value: bytes, kind: type[PipeRow] | type[LeaseRow]
) -> None:
    try:
        row = kind.from_bytes(value)
    except StoreCorrupted as error:
        judging.problem("value", key, str(error))
        return
    if isinstance(row, LeaseRow) and row.pointer is not None:
        judging.suspect(key, abs(row.pointer))
