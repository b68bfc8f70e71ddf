"""Checks the coordinator's journal, and the few rows about the store itself."""

from coordinator.errors import JournalCorrupted
from coordinator.history import History
from coordinator.records import decode_records
from txaware.errors import StoreCorrupted
from txaware.rowkeys import (
    COORDINATOR,
    COORDINATOR_ADDRESS,
    COPY,
    COPY_PLACE,
    JOURNAL,
    STATE,
)
from txaware.service.check_report import Findings
from txaware.service.check_scan import Rows, Scan
from txaware.service.coordinator_kind import EMBEDDED, OTHER, coordinator_of
from txaware.service.copy_state import is_unfinished
from txaware.tables.batches import TIME
from txaware.tables.durable import FORMAT, OUR_FORMAT

COORDINATORS = (EMBEDDED, OTHER)
NUMBER_BYTES = 8


def check_journal(scan: Scan, rows: Rows, findings: Findings) -> History:
    """What its entries add up to, as far as they can be read."""
    history = History()
    for key, data in scan.table(JOURNAL):
        findings.counts["journal entries"] += 1
        if len(key) != NUMBER_BYTES:
            findings.problem(
                "journal", JOURNAL + key, "a journal key has 8 bytes, and this has not"
            )
            continue
        try:
            for record in decode_records(data):
                history.apply(record)
        except (JournalCorrupted, ValueError) as error:
            findings.problem(
                "journal",
                JOURNAL + key,
                f"entry {int.from_bytes(key, 'big')} cannot be read: {error}",
            )
    _check_history(history, findings)
    findings.counts["open transactions"] = len(history.open)
    findings.counts["invalid pointers"] = len(history.invalid)
    return history


def _check_history(history: History, findings: Findings) -> None:
    highest, reserved = history.highest, history.reserved
    if highest > reserved:
        findings.problem(
            "journal",
            JOURNAL,
            f"pointer {highest} has a record, and none above {reserved} was reserved: "
            f"it could be given out twice",
        )
    for pointer in history.open.keys() & history.invalid.keys():
        findings.problem(
            "journal", JOURNAL, f"transaction {pointer} is both open and invalid"
        )
    for what, pointers in (("open", history.open), ("invalid", history.invalid)):
        above = max(pointers, default=0)
        if above > reserved:
            findings.problem(
                "journal",
                JOURNAL,
                f"pointer {above} is {what}, and none above {reserved} was reserved",
            )
    for lost in history.lost:
        if not lost.first <= lost.last <= reserved:
            findings.problem(
                "journal",
                JOURNAL,
                f"pointers {lost.first} to {lost.last} cannot have been lost: none "
                f"above {reserved} was reserved",
            )


def check_state(scan: Scan, rows: Rows, findings: Findings) -> None:
    """The format, the coordinator, the saved time and what was copied."""
    known = {FORMAT, COORDINATOR, COORDINATOR_ADDRESS, TIME, COPY, COPY_PLACE}
    for key, _ in scan.table(STATE):
        findings.counts["state rows"] += 1
        if STATE + key not in known:
            findings.problem(
                "key", STATE + key, "nothing about the store has this name"
            )
    found = rows.get(FORMAT)
    if found != OUR_FORMAT:
        findings.problem(
            "format", FORMAT, f"the format is {found!r}, and {OUR_FORMAT!r} is ours"
        )
    saved_ms(rows, findings)
    _check_copy(rows, findings)


def _check_copy(rows: Rows, findings: Findings) -> None:
    try:
        unfinished = is_unfinished(rows)
    except StoreCorrupted as error:
        findings.problem("copy", COPY, str(error))
        return
    if unfinished:
        findings.problem("copy", COPY, "the copy to here has not come to its end")


def check_coordinator(rows: Rows, findings: Findings) -> bool:
    """Whether the coordinator is the embedded one; asked when all is counted."""
    found, counts = rows.get(COORDINATOR), findings.counts
    if found is None and not sum(counts.values()) - counts["state rows"]:
        return False
    if found not in COORDINATORS:
        findings.problem(
            "coordinator",
            COORDINATOR,
            f"whose pointers the rows carry is not said: {found!r}",
        )
    if found == OTHER and counts["journal entries"]:
        findings.problem(
            "coordinator",
            COORDINATOR,
            f"there is a journal of an embedded coordinator, and another one is named "
            f"({coordinator_of(rows) or 'where is not kept'})",
        )
    return found == EMBEDDED


def saved_ms(rows: Rows, findings: Findings | None = None) -> int | None:
    """The time below which all times lie that were ever given out."""
    return _number(rows, TIME, findings)


def _number(rows: Rows, key: bytes, findings: Findings | None) -> int | None:
    data = rows.get(key)
    if data is not None and len(data) == NUMBER_BYTES:
        return int.from_bytes(data, "big")
    if findings is not None:
        what = "is missing" if data is None else f"has {len(data)} bytes, not 8"
        findings.problem("state", key, f"{key[1:].decode()} {what}")
    return None
