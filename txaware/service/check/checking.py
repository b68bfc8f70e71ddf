"""Verifies every invariant of the data, and changes nothing."""

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from coordinator.directory_lock import DirectoryInUse
from coordinator.embedded.write_barrier import AHEAD_MS
from coordinator.transaction import POINTERS_PER_MS
from txaware.errors import BadRequest, StoreCorrupted, Unavailable
from txaware.model.clock import ClockMs, system_clock_ms
from txaware.model.queues import is_queue
from txaware.model.reports import Progress, Report
from txaware.model.settings import Settings
from txaware.model.shards import DIRECTORY, HOME
from txaware.service.check.copy import copied
from txaware.service.check.findings import Findings
from txaware.service.check.groups import Judging
from txaware.service.check.journal import (
    Uncommitted,
    check_coordinator,
    check_journal,
    check_keepers,
    check_newest,
    check_state,
    saved_ms,
)
from txaware.service.check.messages import MessageCheck
from txaware.service.check.payloads import check_marks, check_payloads
from txaware.service.check.producers import check_producers
from txaware.service.check.rows import check_rows
from txaware.service.check.shard_check import check_shards
from txaware.service.check.table_scan import CheckScan, SizeBytes
from txaware.service.coordinator_kind import EMBEDDED, OTHER, coordinator_of
from txaware.store.interfaces import (
    CheckedRows,
    ChecksKeys,
    HasShards,
    journaled,
)
from txaware.store.journaled_table import FIRST_FORMAT, FORMAT
from txaware.store.keys import (
    COORDINATOR,
    JOURNAL,
    KEEPER,
    MARK,
    MESSAGE,
    PAYLOAD,
    PRODUCER,
    STATE,
    STORE_SHARD,
    TOPIC,
)
from txaware.store.kinds import KINDS
from txaware.store.shard_rows import identity_of, shards_in
from txaware.store.sharded_rows import ShardedRows

# What is read before all else, in an order of its own.
FIRST = (STATE, JOURNAL, TOPIC, MESSAGE, PAYLOAD)
# The tables whose rows are compared with others.
COMPARED: dict[bytes, Callable[[CheckScan, Judging], None]] = {
    MARK: check_marks,
    KEEPER: lambda scan, judging: check_keepers(scan, judging.findings),
    PRODUCER: check_producers,
}


def check_table(
    table: CheckedRows | ChecksKeys,
    *,
    progress: Progress | None = None,
    invalid: Collection[int] | None = None,
    beside: Callable[[int], ChecksKeys] | None = None,
) -> Report:
    """Verifies the data of a table in use, and what its store alone can break.

    See `check`; where the store checks its keys, they are read once more. `beside`
    returns a further shard of a table that is the first one alone; its keys may raise
    `BadRequest` where it is missing.
    """
    findings = Findings()

    def go_on() -> None:
        if progress is not None:
            progress(0, None)  # no row is done, and it may raise

    def looked_at(one: CheckedRows | ChecksKeys) -> CheckedRows | None:
        if isinstance(one, ChecksKeys):
            return one.checked_keys(findings, KINDS.tables, go_on)
        return one

    durable = isinstance(table, ChecksKeys) or journaled(table) is not None
    shard_of: Callable[[int], CheckedRows | ChecksKeys] | None = beside
    home = looked_at(table.rows_of(HOME) if isinstance(table, HasShards) else table)
    if isinstance(table, HasShards):
        shard_of = table.rows_of
    if home is None:
        return findings.report()
    options: dict[str, Any] = {"durable": durable, "findings": findings}
    options |= {"progress": progress, "invalid": invalid}
    known = shards_in(home) if shard_of is not None else None
    if known is None or shard_of is None:
        return check(home, **options)
    shards = {HOME: home}
    for number in known.further:
        try:
            found = looked_at(shard_of(number))
        except BadRequest as error:
            findings.problem("shard", b"", f"shard {number} is missing: {error}")
            continue
        if found is not None:
            shards[number] = found
    return _check_all(shards, **options)


def _check_all(
    shards: Mapping[int, CheckedRows],
    *,
    durable: bool = True,
    findings: Findings | None = None,
    **options: Any,
) -> Report:
    """Checks a store, which may have several shards, and some of these missing."""
    findings = findings or Findings()
    rows: CheckedRows = shards[HOME]
    if shards_in(rows) is not None:
        rows = ShardedRows(check_shards(shards, findings, durable=durable))
    return check(rows, durable=durable, findings=findings, **options)


def check(
    rows: CheckedRows,
    *,
    durable: bool = True,
    progress: Progress | None = None,
    size_bytes: SizeBytes | None = None,
    invalid: Collection[int] | None = None,
    clock_ms: ClockMs = system_clock_ms,
    findings: Findings | None = None,
    in_use: bool = True,
) -> Report:
    """Reads everything once, payloads of references twice, and says what is wrong.

    Damage is a finding; `Unavailable` means that the data could not be checked.
    `rows` is an open table, whose users need not stop, or a copy. A table that is not
    `durable` keeps no time and no journal. `size_bytes` tells how far the check is.
    `invalid` are the pointers that a coordinator elsewhere called invalid before the
    check. Where it was not asked, the needs of the data are not known. In data that is
    not `in_use`, pointers without any record are lost.
    `findings` come from other checks, and these are added to them.
    Memory is bounded, but for eight bytes for every reference.
    """
    findings = findings or Findings()
    scan = CheckScan(rows, findings, progress=progress, size_bytes=size_bytes)
    try:
        _check(
            scan,
            rows,
            findings,
            durable=durable,
            invalid=invalid,
            now_ms=clock_ms(),
            in_use=in_use,
        )
    except StoreCorrupted as error:
        findings.problem("store", b"", str(error))
    return findings.report()


def _check(
    scan: CheckScan,
    rows: CheckedRows,
    findings: Findings,
    *,
    durable: bool,
    invalid: Collection[int] | None,
    now_ms: int,
    in_use: bool,
) -> None:
    if (shard := identity_of(rows)) is not None:
        findings.problem("shard", STORE_SHARD, shard.refusal)
        return
    if durable and rows.get(FORMAT) == FIRST_FORMAT:
        findings.problem(
            "format",
            FORMAT,
            f"the format is {FIRST_FORMAT!r}: whoever opens the data brings it up to "
            f"date, and then it can be checked",
        )
        return
    uncommitted = Uncommitted.named(() if invalid is None else invalid)
    if durable:
        if not _is_new(rows):
            check_state(scan, rows, findings)
        history = check_journal(scan, rows, findings)
        if invalid is None:
            is_ours = rows.get(COORDINATOR) == EMBEDDED
            uncommitted = Uncommitted.of(history, in_use=in_use, is_ours=is_ours)
    findings.coordinator = coordinator_of(rows)
    if invalid is None and rows.get(COORDINATOR) == OTHER:
        findings.knows_needed = False
    judging = Judging(rows, findings, uncommitted=uncommitted, timed=durable)
    _take_topics(scan, judging, findings)
    messages = MessageCheck(judging, now_ms=now_ms)
    messages.run(scan)
    check_payloads(scan, judging, messages.named)
    for table in KINDS.tables:
        if table in COMPARED:
            COMPARED[table](scan, judging)
        elif table not in FIRST:
            check_rows(scan, judging, table)
    if durable:
        check_newest(rows, findings)
    _check_unknown(scan, rows, findings)
    embedded = durable and check_coordinator(rows, findings)
    if embedded and judging.suspects:
        _check_pointers(judging)


def _take_topics(scan: CheckScan, judging: Judging, findings: Findings) -> None:
    """Reads and counts the topics, by which all other rows are judged."""
    for key, value in scan.table(TOPIC):
        topic = judging.take_topic(key, value)
        is_of_queue = topic is not None and is_queue(topic.topic)
        findings.counts["queues" if is_of_queue else "topics"] += 1
        if topic is not None and topic.partitions > 1:
            findings.counts["partitioned topics"] += 1


def _is_new(rows: CheckedRows) -> bool:
    """Tells whether the data is empty: its first owner was killed before a batch."""
    if rows.get(FORMAT) is not None:
        return False
    return not any(rows.scan(first_byte, limit=1) for first_byte in KINDS.tables)


def _check_unknown(scan: CheckScan, rows: CheckedRows, findings: Findings) -> None:
    """Checks that no key begins with an unknown byte."""
    if rows.get(b"") is not None:
        findings.problem("key", b"", "a row has no key")
    for first_byte in {bytes([byte]) for byte in range(256)}.difference(KINDS.tables):
        for key, _ in scan.table(first_byte):
            findings.problem("key", first_byte + key, "no table has such keys")


def _check_pointers(judging: Judging) -> None:
    """Checks that no row has a pointer that its coordinator has yet to give out.

    The journal is read again, since pointers may have been given out meanwhile. A
    pointer far ahead of the saved time came from elsewhere, and is taken as it comes.
    """
    scan = CheckScan(judging.rows, Findings())
    reserved = check_journal(scan, judging.rows, Findings()).reserved
    ours = ((saved_ms(judging.rows) or 0) + AHEAD_MS) * POINTERS_PER_MS
    for key, pointer in judging.suspects:
        if reserved < pointer <= ours:
            judging.problem(
                "pointer",
                key,
                f"a row has the pointer {pointer}, and none above {reserved} was given "
                f"out: the next transaction of that number would own it",
            )


def check_directory(
    directory: Path,
    settings: Settings,
    *,
    progress: Progress | None = None,
    invalid: Collection[int] | None = None,
) -> Report:
    """Checks a data directory on a copy; raises `Unavailable` while it is in use."""
    try:
        with ExitStack() as held:
            rows = held.enter_context(copied(directory, settings))
            known, findings = shards_in(rows), Findings()
            shards = {HOME: rows}
            for number in () if known is None else known.further:
                place = directory / DIRECTORY / str(number)
                try:
                    shards[number] = held.enter_context(copied(place, settings))
                except (StoreCorrupted, Unavailable) as error:
                    if isinstance(error, DirectoryInUse):
                        raise
                    findings.problem(
                        "shard", b"", f"shard {number} is missing: {error}"
                    )

            def size_bytes(start: bytes, stop: bytes) -> int:
                return sum(each.size_bytes(start, stop) for each in shards.values())

            return _check_all(
                shards,
                findings=findings,
                progress=progress,
                size_bytes=size_bytes,
                invalid=invalid,
                in_use=False,
            )
    except StoreCorrupted as error:
        findings = Findings()
        findings.problem("store", b"", str(error))
        return findings.report()
