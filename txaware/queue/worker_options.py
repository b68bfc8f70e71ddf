"""The options of a worker, and the figures that it counts."""

from collections.abc import Callable, Iterable
from typing import TypedDict

import attrs

from coordinator.interfaces import TransactionAware
from txaware.consume.subscribe_options import flag, number_above_zero
from txaware.model.chance import CHANCE
from txaware.queue.participants_of_threads import MakesParticipant

THREADS = 1
IDLE_WAIT_S = 0.2


class WorkerArguments(TypedDict, total=False):
    """The options of `queue.worker` beside `transaction`, for type checkers."""

    threads: int
    participants: Iterable[TransactionAware | MakesParticipant]
    timeout_s: float | None
    first_pause_s: float
    longest_pause_s: float
    idle_wait_s: float


@attrs.frozen(kw_only=True)
class WorkerOptions:
    """The options of `queue.worker`."""

    threads: int = number_above_zero(THREADS)
    """The number of jobs that are handled at once."""
    transaction: bool = flag(default=False)
    """True when each job is handled in a transaction, which also ends the job; the
    handler is called with the job and the transaction."""
    timeout_s: float | None = number_above_zero(None)
    """The longest time that a handler may take. Then the job goes back to the queue,
    and what the handler still does has no effect on it. In a transaction this is the
    time-out, too. None lets handlers take any time."""
    first_pause_s: float = number_above_zero(0.1)
    """The time after which a job that failed comes again. Each further failure doubles
    it, and it differs by a random part of a half, so that jobs do not come together."""
    longest_pause_s: float = number_above_zero(60)
    """The longest such time."""
    idle_wait_s: float = number_above_zero(IDLE_WAIT_S)
    """The time that a thread waits for a job before it looks whether it is to stop: an
    idle worker stops within it."""

    def pause_s(
        self, failures: int, *, random: Callable[[], float] = CHANCE.random
    ) -> float:
        """Returns how long a job waits that failed so often."""
        doubled_s = self.first_pause_s * 2.0 ** min(failures - 1, 60)
        return min(doubled_s, self.longest_pause_s) * (0.5 + random() / 2)


@attrs.frozen
class WorkerMetrics:
    """Figures of a worker."""

    popped: int = 0
    """Jobs that were popped."""
    done: int = 0
    """Jobs that were handled and have ended for good, with the transaction if any."""
    failed: int = 0
    """Jobs whose handler raised; they come again."""
    timed_out: int = 0
    """Jobs whose handler took longer than `timeout_s`; they come again."""
    lost: int = 0
    """Jobs whose lease was over when their handler had ended: others have them."""
    conflicts: int = 0
    """Jobs whose transaction met a conflict; they come again at once."""
    in_work: int = 0
    """Jobs that are being handled now."""
    stuck: int = 0
    """Handlers that are still at work behind their time limit."""
    handling_s: float = 0
    """Time spent in handlers."""

    def plus(self, **numbers: float) -> "WorkerMetrics":
        """Returns metrics with these numbers added."""
        return attrs.evolve(
            self, **{name: getattr(self, name) + n for name, n in numbers.items()}
        )
