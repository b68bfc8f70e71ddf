"""Checks the coordinator's journal, and the few rows about the store itself."""

from collections.abc import Collection, Container

import attrs

from coordinator.embedded.history import History
from coordinator.embedded.records import decode_records
from coordinator.errors import JournalCorrupted
from coordinator.transaction import NO_POINTER
from txaware.errors import StoreCorrupted
from txaware.service.check.findings import Findings
from txaware.service.check.table_scan import CheckScan
from txaware.service.coordinator_kind import EMBEDDED, OTHER, coordinator_of
from txaware.service.keepers import read_keeper
from txaware.service.transfer.copy_state import is_unfinished
from txaware.store.batch_writer import TIME
from txaware.store.interfaces import CheckedRows
from txaware.store.journaled_table import (
    FIRST_FORMAT,
    FORMAT,
    FORMATS,
    NEWEST_FORMAT,
    OUR_FORMAT,
    PACKED_FORMAT,
    PARTITIONED_FORMAT,
    SECOND_FORMAT,
)
from txaware.store.keys import (
    COORDINATOR,
    COORDINATOR_ADDRESS,
    COPY,
    COPY_PLACE,
    JOURNAL,
    KEEPER,
    STATE,
    STORE_SECRET,
    STORE_SHARD,
    STORE_SHARDS,
    UNWATCHED,
)
from txaware.store.kinds import KINDS

COORDINATORS = (EMBEDDED, OTHER)
NUMBER_BYTES = 8
# What batches of compressed messages are counted as.
BATCHES = "compressed batches"


@attrs.frozen(eq=False)
class Uncommitted:
    """Pointers whose transactions did not commit, or may not have.

    Pointers above `known_to` were given out since the journal was read. Invalid ones
    are forgotten some day; those lost in a crash never are. `is_all` is True where all
    others have committed.
    """

    invalid: Container[int] = ()
    lost: Container[int] = ()
    open: Container[int] = ()
    known_to: int = NO_POINTER
    is_all: bool = False

    @classmethod
    def of(
        cls, history: History, *, in_use: bool, is_ours: bool = True
    ) -> "Uncommitted":
        """Reads them from a journal; out of use, a pointer without a record is lost.

        The journal says all unless the coordinator is another one (not `is_ours`).
        """
        return cls(
            history.invalid,
            history.lost_pointers(crashed=not in_use),
            history.open,
            history.highest if in_use else NO_POINTER,
            is_ours,
        )

    @classmethod
    def named(cls, invalid: Collection[int]) -> "Uncommitted":
        """Makes one of what a snapshot calls invalid; `in` finds lost ones there, too.

        Its items are only those that the coordinator remembers one by one.
        """
        return cls(frozenset(invalid), invalid)

    def __contains__(self, pointer: int) -> bool:
        return (
            pointer in self.invalid
            or pointer in self.open
            or pointer in self.lost
            or pointer > self.known_to
        )


def check_journal(scan: CheckScan, rows: CheckedRows, findings: Findings) -> History:
    """Checks the journal; returns the sum of all entries that can be read."""
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


def check_state(scan: CheckScan, rows: CheckedRows, findings: Findings) -> None:
    """Checks the format, the saved time and the state of a copy."""
    known = {
        FORMAT,
        COORDINATOR,
        COORDINATOR_ADDRESS,
        TIME,
        COPY,
        COPY_PLACE,
        UNWATCHED,
        STORE_SHARDS,
        STORE_SHARD,
        STORE_SECRET,
    }
    for key, _ in scan.table(STATE):
        findings.counts["state rows"] += 1
        if STATE + key not in known:
            findings.problem(
                "key", STATE + key, "nothing about the store has this name"
            )
    found = rows.get(FORMAT)
    if found not in FORMATS or found == FIRST_FORMAT:  # that one ends with the opening
        findings.problem(
            "format", FORMAT, f"the format is {found!r}, and {FORMATS[-1]!r} is ours"
        )
    saved_ms(rows, findings)
    _check_copy(rows, findings)


def check_newest(rows: CheckedRows, findings: Findings) -> None:
    """Checks that no earlier version opens rows it does not know; after the counts."""
    found = rows.get(FORMAT)
    for format_, name, what in (
        (PACKED_FORMAT, BATCHES, BATCHES),
        (PARTITIONED_FORMAT, "partitioned topics", "topics of several partitions"),
    ):
        if findings.counts[name] and (found or b"") < format_:
            findings.problem(
                "format",
                FORMAT,
                f"the format is {found!r}, and there are {what}, which come with "
                f"{format_!r}: a version that does not know them opens the data",
            )
            return
    if found not in (SECOND_FORMAT, OUR_FORMAT):
        return  # nobody else opens it
    for name in (
        "queues",
        *(kind.name for kind in KINDS if kind.is_newest),
    ):
        if findings.counts[name]:
            findings.problem(
                "format",
                FORMAT,
                f"the format is {found!r}, and there are {name}, which come with "
                f"{NEWEST_FORMAT!r}: a version that does not know them opens the data",
            )
            return


def check_keepers(scan: CheckScan, findings: Findings) -> None:
    """Checks the keepers of rows elsewhere; notes the least pointer each needs."""
    for key, value in scan.table(KEEPER):
        findings.counts["keepers"] += 1
        try:
            row = read_keeper(key, value)
        except StoreCorrupted as error:
            findings.problem("keeper", KEEPER + key, str(error))
        else:
            findings.needs(f"keeper {row.name}", row.smallest_pointer)


def _check_copy(rows: CheckedRows, findings: Findings) -> None:
    try:
        unfinished = is_unfinished(rows)
    except StoreCorrupted as error:
        findings.problem("copy", COPY, str(error))
        return
    if unfinished:
        findings.problem("copy", COPY, "the copy to here has not come to its end")


def check_coordinator(rows: CheckedRows, findings: Findings) -> bool:
    """Tells whether the coordinator is the embedded one; called after the counts."""
    found, counts = rows.get(COORDINATOR), findings.counts
    about_itself = counts["state rows"] + counts["journal entries"]
    if found is None and not sum(counts.values()) - about_itself:
        return False  # it was killed before the batch that says so, and has no row yet
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


def saved_ms(rows: CheckedRows, findings: Findings | None = None) -> int | None:
    """Returns the time below which all times lie that were ever given out."""
    return _number(rows, TIME, findings)


def _number(rows: CheckedRows, key: bytes, findings: Findings | None) -> int | None:
    data = rows.get(key)
    if data is not None and len(data) == NUMBER_BYTES:
        return int.from_bytes(data, "big")
    if findings is not None:
        what = "is missing" if data is None else f"has {len(data)} bytes, not 8"
        findings.problem("state", key, f"{key[1:].decode()} {what}")
    return None
