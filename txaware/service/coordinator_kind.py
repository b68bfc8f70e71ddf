"""The kind and the address of the coordinator that gave out a store's pointers."""

import logging

from coordinator.address import ELSEWHERE, whole_address
from txaware.errors import BadRequest
from txaware.model.interfaces import OrderedTable
from txaware.store.keys import COORDINATOR, COORDINATOR_ADDRESS
from txaware.store.shard_rows import Gets

log = logging.getLogger(__name__)

EMBEDDED, OTHER = b"embedded", b"other"
ANY_ADDRESS = f"{ELSEWHERE} or http://HOST:PORT"


def claim(
    table: OrderedTable, kind: bytes, address: object, *, name: str = "this data"
) -> None:
    """Makes a coordinator the only one of a table; raises where another one is.

    The pointers of two coordinators in one table would be confused.
    """
    if not table.compare_and_set(COORDINATOR, None, kind):
        found = table.get(COORDINATOR) or b""
        if found != kind:
            raise BadRequest(f"{name} {_whose(table, found)}")
    if kind == OTHER and isinstance(address, str):
        _remember(table, address, name)


def coordinator_of(rows: Gets) -> str | None:
    """Returns `embedded`, or another coordinator's address; None if it was not kept."""
    kind, address = rows.get(COORDINATOR), rows.get(COORDINATOR_ADDRESS)
    if kind == EMBEDDED:
        return "embedded"
    return None if address is None else address.decode("utf-8", "replace")


def _whose(rows: Gets, kind: bytes) -> str:
    """Returns the end of a sentence about the data, with what to type."""
    another = "another one would confuse its transactions with those"
    address = coordinator_of(rows)
    if kind == EMBEDDED:
        return (
            f"was written with the coordinator 'embedded', beside the data: name none "
            f"(leave --coordinator out); {another}"
        )
    if kind == OTHER and address is not None:
        return (
            f"was written with the coordinator {address!r}: name it (--coordinator "
            f"{address}), or where it is now; {another}"
        )
    if kind == OTHER:
        return (
            f"was written with a coordinator elsewhere, whose address was not kept: "
            f"name it (--coordinator {ANY_ADDRESS}); {another}"
        )
    return f"was written with the coordinator {kind!r}, which nobody knows here"


def _remember(table: OrderedTable, address: str, name: str) -> None:
    """Keeps the last address of the coordinator; it may move, with its state."""
    address = whole_address(address)
    new, old = address.encode(), table.get(COORDINATOR_ADDRESS)
    if new == old:
        return
    if old is not None:
        log.warning(
            "the coordinator of %s was at %s and is at %s now: it has to be the same "
            "one, with all that it knew",
            name,
            old.decode("utf-8", "replace"),
            address,
        )
    table.submit([(COORDINATOR_ADDRESS, new)])()
