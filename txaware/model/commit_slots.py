"""Commits that begin their own transaction: the slots by which they are known again."""

import string
from typing import NamedTuple, Protocol

from coordinator.remote.wire import is_number, shown
from coordinator.transaction import checked_timeout_s
from txaware.errors import BadRequest

CLIENT_BYTES = 16
MOST_SLOTS = 1 << 16
MOST_COMMITS = 2**63 - 1
_HEX = frozenset(string.hexdigits.lower())


class CommitSlot(NamedTuple):
    """A place for one commit at a time, of a client that has as many as it needs.

    `client` is random, 32 hex digits, and nobody else's. It is looked up a few times
    for each commit, which is quick of a tuple.
    """

    client: str
    number: int

    def __str__(self) -> str:
        return f"slot {self.number} of client {self.client}"


def checked_client(client: object) -> str:
    """Returns the id of a client; raises `BadRequest` for what is none."""
    if (
        not isinstance(client, str)
        or len(client) != 2 * CLIENT_BYTES
        or not _HEX.issuperset(client)
    ):
        raise BadRequest(
            f"client is {2 * CLIENT_BYTES} digits of lower-case hex, chosen at random "
            f"once, not {shown(client)}"
        )
    return client


def checked_slot(slot: object) -> int:
    """Returns the number of a slot; raises `BadRequest` for what is none."""
    return _whole(slot, "slot", 0, MOST_SLOTS - 1)


def checked_number(number: object) -> int:
    """Returns the number of a commit; raises `BadRequest` for what is none."""
    return _whole(number, "number", 1, MOST_COMMITS)


def checked_instance(life: object) -> str:
    """Returns the instance of a server; raises `BadRequest` for what is no text."""
    if not isinstance(life, str):
        raise BadRequest(f"life is the instance of a server, not {shown(life)}")
    return life


def check_timeout(timeout_s: object) -> None:
    """Raises `BadRequest` for what is no time-out of a transaction; None names none."""
    if not is_number(timeout_s):
        raise BadRequest(f"timeoutS is a number or null, not {shown(timeout_s)}")
    if timeout_s is not None:
        checked_timeout_s(timeout_s)  # type: ignore[arg-type]  # it is a number


def checked_open_ms(open_ms: object) -> int:
    """Returns for how long a block was open; raises `BadRequest` for what is none."""
    return _whole(open_ms, "openMs", 0, MOST_COMMITS)


def _whole(value: object, name: str, least: int, most: int) -> int:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not least <= value <= most:  # type: ignore[operator]
        raise BadRequest(
            f"{name} is a number from {least} to {most}, not {shown(value)}"
        )
    return value  # type: ignore[return-value]


class CommitsInSlots(Protocol):
    """A service whose commits may begin their transactions themselves."""

    def commit_at_once(
        self,
        client: str,
        slot: int,
        number: int,
        *,
        life: str = "",
        repeat: bool | None = False,
        timeout_s: float | None = None,
        open_ms: int = 0,
    ) -> int:
        """Begins a short transaction and commits it; returns its id.

        The commits of a slot have rising numbers. With the number of the last one it is
        a repeat, and the answer is the same, also in another life of the data. A lower
        one is refused. `life` is the instance of the server that the client had heard
        of last: another one takes only what says that it is a `repeat`, as it may be a
        copy of what was refused. `open_ms` is how long the block was open before, which
        `timeout_s` limits.
        """

    def settle_commit(self, client: str, slot: int, number: int) -> int | None:
        """Returns the transaction that a commit of a slot has committed, if it has.

        None says that it has not, and now never will, in any life.
        """
