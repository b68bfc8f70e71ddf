"""The port of a coordinator whose write barrier stores elsewhere enter, by a server."""

from collections.abc import Sequence
from typing import Protocol

import attrs

from coordinator.remote.wire import Fields


@attrs.frozen
class Ends:
    """The pointers of transactions that have ended, and the number behind the last.

    They are counted `since` something: where that is another, some went unseen.
    """

    since: str
    next: int
    pointers: tuple[int, ...]

    def fields(self) -> Fields:
        """Returns the fields by which JSON has them."""
        return {"since": self.since, "next": self.next, "ended": [*self.pointers]}

    @classmethod
    def of(cls, fields: Fields) -> "Ends":
        """Returns the ends of such fields."""
        return cls(
            str(fields["since"]), int(fields["next"]), tuple(map(int, fields["ended"]))
        )


class TakesWrites(Protocol):
    """Lets the writes of stores elsewhere enter its barrier.

    A `writer` is one opening of a store, and a `write` one of its writes, which it
    leaves by its number, however often it entered.
    """

    def enter_write(
        self,
        transaction: int,
        *,
        writer: str,
        write: int,
        principal: str | None = None,
    ) -> str:
        """Has a write of another store enter the barrier there; refuses after its end.

        A crash cannot forget then that its transaction began. Returns what the ends of
        that writer's transactions are counted since. Where it writes for a `principal`,
        another one's transaction is refused.
        """

    def greet(self, *, writer: str, shards: Sequence[int] = ()) -> None:
        """Tells that of these shards nothing that entered before is under way."""

    def leave_writes(self, *, writer: str, writes: Sequence[int] = ()) -> None:
        """Has writes of another store leave it."""

    def ends(self, *, writer: str, since: str, after: int, wait_s: float) -> Ends:
        """Waits for ends of transactions that entered; returns those after a number.

        Where they are counted since something else it waits for nothing.
        """
