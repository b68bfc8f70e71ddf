"""What an app does once a period, over all of its processes."""

from collections.abc import Callable

import attrs

from txaware.errors import BadRequest, TransactionConflict
from txaware.messaging import Messaging
from txaware.model.clock import ClockMs

# A row for each schedule: when it is due, in ms.
TABLE = "txaware-every"
LONGEST_PERIOD_S = 366 * 86_400


@attrs.frozen
class Schedule:
    """A period, and the queue that gets an item for each that is over.

    When it is due is a row, which moves in the transaction that pushes the item: of the
    processes that see it due, one commits. A worker of the queue does what is to be
    done, and does it again where it failed or its process died.
    """

    name: str
    period_ms: int

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return f"every-{self.name}"

    def tick(self, messaging: Messaging) -> int | None:
        """Pushes an item if it is due; returns when it is due next, if it was not.

        The first period begins with the first look. What nobody did in time is done
        once, however many periods are over.
        """
        now_ms, table = messaging.clock_ms(), messaging.table(TABLE)
        key = self.name.encode()
        try:
            with messaging.transaction():
                row = table.get(key)
                due_ms = now_ms + self.period_ms if row is None else int(row)
                # The period was longer when the row was written, or the clock was.
                is_new = row is None or due_ms > now_ms + self.period_ms
                if not is_new and now_ms < due_ms:
                    return due_ms
                if is_new:
                    due_ms = now_ms + self.period_ms
                    table.put(key, b"%d" % due_ms)
                    return due_ms
                messaging.queue(self.queue).push(b"%d" % due_ms)
                over = (now_ms - due_ms) // self.period_ms
                table.put(key, b"%d" % (due_ms + (over + 1) * self.period_ms))
        except TransactionConflict:  # another process did it
            return now_ms
        return None


class Ticker:
    """Looks at schedules when they are due, and not before."""

    def __init__(self, messaging: Messaging, schedules: list[Schedule]) -> None:
        self._messaging = messaging
        self._due_ms = dict.fromkeys(schedules, 0)

    def tick(self) -> int:
        """Looks at those that are due; returns how many items were pushed."""
        pushed = 0
        for schedule, due_ms in self._due_ms.items():
            if self._clock_ms() >= due_ms:
                next_ms = schedule.tick(self._messaging)
                pushed += next_ms is None
                self._due_ms[schedule] = next_ms or self._clock_ms()
        return pushed

    def pause_s(self, longest_s: float) -> float:
        """Returns the time until the next look, up to `longest_s`."""
        now_ms = self._clock_ms()
        due_ms = min(self._due_ms.values(), default=now_ms + longest_s * 1000)
        return max(0.001, min(longest_s, (due_ms - now_ms) / 1000))

    @property
    def _clock_ms(self) -> ClockMs:
        return self._messaging.clock_ms


def checked_period_ms(period: float | str, read: Callable[[str], float]) -> int:
    """Returns a period in ms, of seconds or a text such as `15m`."""
    seconds = read(period) if isinstance(period, str) else period
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise BadRequest(f"a period is a number of seconds or a text, not {period!r}")
    if not 0.001 <= seconds <= LONGEST_PERIOD_S:
        raise BadRequest(f"a period is above 0 and at most a year, not {period!r}")
    return int(seconds * 1000)
