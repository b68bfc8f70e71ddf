"""The participants of the threads of a worker: given, or made by a function."""

from collections.abc import Callable, Iterable
from typing import Any

from coordinator.callbacks import check_function
from coordinator.interfaces import TransactionAware
from coordinator.participants import checked_participant
from txaware.errors import BadRequest

MakesParticipant = Callable[[], TransactionAware]


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
        connection: Any = one
        if not hasattr(one, "require_any_thread"):
            continue
        if threads > 1:
            raise BadRequest(
                f"{connection.transaction_aware_name} is one connection, and {threads} "
                f"threads need one each: give a function that opens one, or say "
                f"threads=1"
            )
        connection.require_any_thread()
    return found


def is_function(participant: object) -> bool:
    """Tells whether that makes a participant, and is none."""
    return callable(participant) and not hasattr(participant, "start_tx")


class ParticipantsOfThread:
    """The participants for the blocks of one thread."""

    def __init__(self, given: tuple[TransactionAware | MakesParticipant, ...]) -> None:
        self._given = given
        self._made: dict[int, Any] = {}

    def ready(self) -> tuple[TransactionAware, ...]:
        """Returns them; makes what is not made, or was lost as a connection may be."""
        return tuple([self._one(at, one) for at, one in enumerate(self._given)])

    def close(self) -> None:
        """Closes what was made here."""
        for one in self._made.values():
            if hasattr(one, "close"):
                one.close()
        self._made.clear()

    def _one(self, at: int, given: Any) -> TransactionAware:
        if not is_function(given):
            return given  # type: ignore[no-any-return]  # it was checked
        made = self._made.get(at)
        if made is None or getattr(made, "is_closed", False):
            made = given()
            checked_participant(made)
            self._made[at] = made
        return made  # type: ignore[no-any-return]  # as above
