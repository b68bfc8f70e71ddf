"""Checks the versions of users' rows."""

from txaware.errors import BadRequest
from txaware.model.topics import TableName
from txaware.service.check.groups import Judging
from txaware.service.check.table_scan import CheckScan
from txaware.store.columns import EXPIRY
from txaware.store.keys import POINTER_BYTES, TABLE
from txaware.store.table_versions import BEHIND_KEY, END, unescaped, versions_prefix

_EXPIRY_BYTES = 8


def check_tables(scan: CheckScan, judging: Judging) -> None:
    """Checks that versions have keys of tables, with the pointer of their key."""
    for key, value in scan.table(TABLE):
        judging.findings.counts["versions of rows"] += 1
        name = _name_of(judging, key)
        if name is not None:
            _check_version(judging, key, value, name)


def _name_of(judging: Judging, key: bytes) -> TableName | None:
    try:
        namespace, name, rest = key.split(b":", 2)
        found = TableName.parse(f"{namespace.decode('ascii')}:{name.decode('ascii')}")
        row = key[:-POINTER_BYTES]
        if len(rest) < len(END) + POINTER_BYTES or not row.endswith(END):
            raise ValueError("it has no end before the pointer")
        if versions_prefix(found, unescaped(rest[:-BEHIND_KEY])) != TABLE + row:
            raise ValueError("its zero bytes are not written as in keys")
    except (ValueError, BadRequest) as error:
        judging.problem("key", TABLE + key, f"no row of a table has that key: {error}")
        return None
    return found


def _check_version(judging: Judging, key: bytes, value: bytes, name: TableName) -> None:
    columns = judging.columns(TABLE + key, value)
    if columns is None:
        return
    named = int.from_bytes(key[-POINTER_BYTES:], "big")
    pointer = columns.pointer
    if pointer is None or abs(pointer) != named:
        judging.problem(
            "pointer",
            TABLE + key,
            f"the key names transaction {named}, and the row {pointer}",
        )
    elif pointer > 0 and pointer in judging.uncommitted.invalid:
        judging.findings.needs(f"table {name}", pointer)
    if len(columns.more.get(EXPIRY, bytes(_EXPIRY_BYTES))) != _EXPIRY_BYTES:
        judging.problem("value", TABLE + key, "the time of its expiry is not 8 bytes")
    judging.suspect(TABLE + key, named)
