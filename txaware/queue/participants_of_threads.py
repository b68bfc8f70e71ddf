"""The participants of the threads of a worker: given, or made by a function."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from coordinator.callbacks import check_function
from coordinator.interfaces import Participant, TransactionAware
from coordinator.participants import checked_participant, completed
from txaware.errors import BadRequest

# In asyncio what it returns may have to be awaited.
MakesParticipant = Callable[[], TransactionAware | Awaitable[TransactionAware]]


class DatabaseConnection(Participant):
    """A participant that is a connection: each thread of a worker has its own.

    `block` is how a program begins its blocks.
    """

    block = "with messaging.transaction(...)"

    def require_any_thread(self) -> None:
        """Raises `BadRequest` where only one thread may use the connection."""


def checked_participants(
    participants: Iterable[TransactionAware | MakesParticipant], *, threads: int
) -> tuple[TransactionAware | MakesParticipant, ...]:
    """Returns the participants of a worker; refuses those that cannot be its own.

    A connection to a database serves one thread, and perhaps only its own.
    """
    found = tuple(participants)
    for one in found:
        if is_function(one):
            check_function(one)
            continue
        checked_participant(one)
        if not isinstance(one, DatabaseConnection):
            continue
        if threads > 1:
            raise BadRequest(
                f"{one.transaction_aware_name} is one connection, and {threads} "
                f"threads need one each: give a function that opens one, or say "
                f"threads=1"
            )
        one.require_any_thread()
    return found


def is_function(participant: object) -> bool:
    """Tells whether that makes a participant, and is none."""
    return callable(participant) and not hasattr(participant, "start_tx")


class ParticipantsOfThread:
    """The participants for the blocks of one thread."""

    def __init__(self, given: tuple[TransactionAware | MakesParticipant, ...]) -> None:
        self._given = given
        self._made: dict[int, Participant] = {}

    def ready(self) -> tuple[TransactionAware, ...]:
        """Returns them; makes what is not made, or was lost as a connection may be."""
        return tuple([self._one(at, one) for at, one in enumerate(self._given)])

    def close(self) -> None:
        """Closes what was made here."""
        for one in self._made.values():
            one.close()
        self._made.clear()

    def _one(self, at: int, given: Any) -> TransactionAware:
        if not is_function(given):
            return given  # type: ignore[no-any-return]  # it was checked
        made = self._made.get(at)
        if made is None or made.is_closed:
            given = given()
            checked_participant(given)
            self._made[at] = made = completed(given)
        return made
