"""Checks rows of every kind that is registered, as far as its declaration tells."""

import struct
from collections.abc import Callable
from typing import Any

from txaware.errors import BadRequest, StoreCorrupted
from txaware.model.markers import COMMITTED
from txaware.model.messages import ID_BYTES
from txaware.service.check.groups import Judging, RowGroup, grouped
from txaware.service.check.payloads import check_key_pointer
from txaware.service.check.table_scan import CheckScan
from txaware.store.columns import pointer_of
from txaware.store.keys import POINTER_BYTES
from txaware.store.kinds import COMMITS, KINDS, Place
from txaware.store.producer_table import transactional_id_key
from txaware.store.row_kinds import RowKind
from txaware.store.versioned_rows import AnyKind, VersionedKind, without_pointer


def check_rows(scan: CheckScan, judging: Judging, table: bytes) -> None:
    """Checks the rows of a table, each as its kind says."""
    commits, group_of = CommitCheck(judging), _groups(judging, table)
    for tail, value in scan.table(table):
        key = table + tail
        kind = KINDS.of(key)
        if kind is None:
            judging.problem("key", key, "no kind of row has such keys")
            continue
        judging.findings.counts[kind.name] += 1
        if not isinstance(kind, VersionedKind):
            if group_of is None or group_of(tail) is not None:
                check_value(judging, kind, key, value)
            continue
        checked = check_version(judging, kind, key, value)
        if checked is not None and kind is COMMITS:
            name, found = checked
            commits.check(key, name, value, found)


def check_version(
    judging: Judging, kind: AnyKind, key: bytes, value: bytes
) -> tuple[Any, Any] | None:
    """Checks a versioned row; returns its name and value where it has both."""
    name = _name_of(judging, kind, key)
    if name is None:
        return None
    found = _check_version(judging, kind, kind.owner(name), key, value)
    return None if found is None else (name, found)


def _groups(
    judging: Judging, table: bytes
) -> Callable[[bytes], RowGroup | None] | None:
    kind = KINDS.of(table)
    if kind is None or kind.behind_topic is None:
        return None
    return grouped(judging, table, kind.behind_topic)


def check_value(judging: Judging, kind: RowKind, key: bytes, value: bytes) -> None:
    """Checks the value of a row that is not versioned."""
    try:
        if kind.decode is not None:
            kind.decode(value)
        pointer = kind.pointer(key, value)
    except (StoreCorrupted, ValueError, IndexError, struct.error) as error:
        judging.problem("value", key, str(error))
        return
    if pointer is not None:
        judging.suspect(key, abs(pointer))


def _name_of(judging: Judging, kind: AnyKind, key: bytes) -> Any:
    """Returns the name of a version; None, and a problem, where it cannot be."""
    try:
        name = kind.name_of(without_pointer(key))
    except (ValueError, BadRequest) as error:
        judging.problem("key", key, f"no {kind.noun} has that key: {error}")
        return None
    topic = kind.topic(name)
    if topic is not None and judging.topic(topic.key) is None:
        judging.problem("topic", key, f"{topic} is no topic of this data")
        return None
    return name


def _check_version(
    judging: Judging, kind: AnyKind, owner: str, key: bytes, value: bytes
) -> Any:
    """Returns the value of a version; None where it has none, or cannot be read."""
    columns = judging.columns(key, value)
    if columns is None:
        return None
    named = int.from_bytes(key[-POINTER_BYTES:], "big")
    check_key_pointer(judging, key, named)
    pointer = columns.pointer
    if pointer is None or abs(pointer) != named:
        judging.problem(
            "pointer", key, f"the key names transaction {named}, and the row {pointer}"
        )
    elif pointer > 0 and pointer in judging.uncommitted.invalid:
        judging.findings.needs(owner, pointer)
    judging.suspect(key, named)
    if columns.payload is None and kind.may_delete:
        return None
    try:
        return kind.value.decode(columns.payload or b"")
    except ValueError as error:
        judging.problem(kind.problem, key, str(error))
        return None


class CommitCheck:
    """One walk over the numbers of commits, by their ids and pointers.

    Each committed transaction of an id counts one more than the one before. Of those
    before the newest only some are kept, so the numbers rise, and may leave some out.
    """

    def __init__(self, judging: Judging) -> None:
        self._judging = judging
        self._name = ""
        self._before = 0

    def check(self, key: bytes, place: Place, value: bytes, commits: int) -> None:
        """Checks the next row of a transactional id."""
        name, what = place
        if name != self._name:
            self._name, self._before = name, 0
            self._check_name(key, name, value)
        if not commits or not value.endswith(COMMITS.value.encode(commits)):
            self._judging.problem(
                "commits", key, f"{value[-ID_BYTES:].hex()} is no number of commits"
            )
        elif what == COMMITTED and self._has_committed(key, value):
            if commits <= self._before:
                self._judging.problem(
                    "commits",
                    key,
                    f"commit {commits} of producer {name} follows its commit "
                    f"{self._before}",
                )
            self._before = commits

    def _check_name(self, key: bytes, name: str, value: bytes) -> None:
        rows = self._judging.rows
        if rows.get(transactional_id_key(name)) is None and rows.get(key) == value:
            self._judging.problem(
                "producer", key, f"there are commits of {name}, which is no producer"
            )

    def _has_committed(self, key: bytes, value: bytes) -> bool:
        uncommitted = self._judging.uncommitted
        pointer = int.from_bytes(key[-POINTER_BYTES:], "big")
        return (
            uncommitted.is_all
            and pointer_of(value) == pointer
            and pointer not in uncommitted
        )
