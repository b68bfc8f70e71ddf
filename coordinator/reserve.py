"""How far pointers may be given out: reserved on disk, ahead of their use."""

from coordinator.embedded.records import Reserved
from coordinator.transaction import POINTERS_PER_MS

# So far ahead that one sync serves many starts. After a crash, pointers go on above
# all that was reserved, so for as long they may be ahead of the clock.
AHEAD_MS = 10_000


class Reserve:
    """The highest pointer that the disk allows to give out."""

    def __init__(self) -> None:
        self._limit = 0

    def covers(self, pointer: int) -> bool:
        """Whether a crash would not let that pointer be given out again."""
        return pointer <= self._limit

    def due(self, now_ms: int, *, pointer: int = 0) -> tuple[Reserved, ...]:
        """What to write with the next batch, where little is left, or not `pointer`.

        Where pointers are ahead of the clock already, they get no further than they
        have to: crash after crash would otherwise add up.
        """
        enough = (now_ms + AHEAD_MS // 2) * POINTERS_PER_MS
        if self._limit >= max(enough, pointer):
            return ()
        ahead = (now_ms + AHEAD_MS) * POINTERS_PER_MS
        return (Reserved(max(ahead, pointer + POINTERS_PER_MS)),)

    def extend(self, written: tuple[Reserved, ...]) -> None:
        """These are on disk."""
        for reserved in written:
            self._limit = max(self._limit, reserved.limit)
