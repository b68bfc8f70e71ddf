"""The times of what is pushed once, as rows of a table."""

from typing import Protocol

from txaware.model.clock import ClockMs
from txaware.tables import Table

TABLE = "txaware-pushed"
# A row stays so long after its time: who pushes that time again comes before.
KEPT_S = 30 * 86_400


class HasTables(Protocol):
    """Holds tables and a clock, as a `Messaging` does."""

    @property
    def clock_ms(self) -> ClockMs:
        """The clock, in ms since 1970."""

    def table(self, name: str) -> Table:
        """Returns a table of rows."""


class TimesPushed:
    """The times up to which something was pushed, each in a row of its own.

    A row moves with the push, so that of two who push at once one commits.
    """

    def __init__(self, messaging: HasTables) -> None:
        self._messaging = messaging

    def claim(self, queue: str, name: str, due_ms: int) -> bool:
        """Notes a later time with the open transaction; False where it is not later."""
        table = self._messaging.table(TABLE)
        key = f"{queue}\0{name}".encode()
        last = table.get(key)
        if last is not None and due_ms <= int(last):
            return False
        left_s = max(0, due_ms - self._messaging.clock_ms()) / 1000
        table.put(key, b"%d" % due_ms, ttl_s=left_s + KEPT_S)
        return True
