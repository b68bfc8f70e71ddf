"""A keeper: a participant with rows of its own, and the pointers they still need."""

from typing import Protocol

import attrs

from coordinator.interfaces import Coordinator
from coordinator.remote.wire import LONGEST_NAME
from coordinator.transaction import Transaction
from txaware.errors import BadRequest

# A keeper is asked in this process, reports over the network, or only took part.
HERE, ELSEWHERE, UNREGISTERED = "here", "elsewhere", "unregistered"
KINDS = (HERE, ELSEWHERE, UNREGISTERED)


class KeepsRows(Protocol):
    """A participant with rows of its own, as `register_keeper` takes it."""

    @property
    def transaction_aware_name(self) -> str:
        """The name of its rows: who registers under it answers for all of them."""

    def smallest_pointer(self) -> int | None:
        """Returns the least pointer that its rows may still hold, or None.

        `prune` and clean-ups call it, in their threads. A row whose outcome it has
        looked up, and acted upon, need not count: a row that was rolled back is
        removed, and a row that has committed stays so.
        """


@attrs.frozen
class Keeper:
    """A row of the keepers; its rows hold no pointer below `smallest_pointer`.

    `kind` is `here` where the process that owns the store asks it, `elsewhere` where it
    reports by itself, `unregistered` where it only took part and nobody asks it.
    `answers` is True when `prune` can go on. `principal` is the one who reported it.
    """

    name: str
    since_ms: int
    smallest_pointer: int
    kind: str
    answers: bool
    principal: str | None = None


def named_pointer(participant: KeepsRows, coordinator: Coordinator) -> tuple[str, int]:
    """Returns a keeper's name, and the pointer below which its rows never hold one."""
    name = checked_name(getattr(participant, "transaction_aware_name", None))
    if not callable(getattr(participant, "smallest_pointer", None)):
        raise BadRequest(
            f"{name} cannot be a keeper: it has no smallest_pointer(), which answers "
            f"the least pointer that its rows may still hold, or None"
        )
    # The snapshot comes first: rows written meanwhile are of no older transaction.
    snapshot = coordinator.snapshot()
    return name, lower_bound(snapshot, checked_smallest(name, participant))


def lower_bound(snapshot: Transaction, smallest: int | None) -> int:
    """Returns the least pointer that a keeper's rows may have, now or later.

    The keeper answered `smallest` after the snapshot was taken. Rows that it writes
    later are of a transaction that was open then, or begins later.
    """
    open_from = min(snapshot.first_in_progress, snapshot.transaction_id)
    return open_from if smallest is None else min(smallest, open_from)


def checked_name(name: object) -> str:
    """Returns the name of a participant; raises `BadRequest` for anything else."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise BadRequest(
            f"a keeper has a transaction_aware_name of 1 to {LONGEST_NAME} characters, "
            f"not {name!r:.100}"
        )
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"the name of a keeper is no text: {error}") from error
    return name


def checked_pointer_of(name: str, pointer: object) -> int:
    """Returns a keeper's answer; raises `BadRequest` unless it is a pointer."""
    if (
        isinstance(pointer, bool)
        or not isinstance(pointer, int)
        or not 0 <= pointer < 2**63
    ):
        raise BadRequest(
            f"keeper {name!r} answered {pointer!r:.100}; smallest_pointer() is a "
            f"pointer, or None where its rows hold none"
        )
    return pointer


def checked_report(name: object, smallest_pointer: object) -> None:
    """Raises `BadRequest` unless a keeper says that of itself."""
    checked = checked_name(name)
    if smallest_pointer is not None:
        checked_pointer_of(checked, smallest_pointer)


def checked_smallest(name: str, participant: KeepsRows) -> int | None:
    """Asks a participant for its least pointer; passes on what that raises."""
    smallest: object = participant.smallest_pointer()
    return None if smallest is None else checked_pointer_of(name, smallest)
