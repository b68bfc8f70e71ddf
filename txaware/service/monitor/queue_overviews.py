"""How the queues of a store stand, for an overview of it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import attrs

from txaware.errors import QueueNotFound
from txaware.queues import JobInWork, QueueStats
from txaware.service.monitor.overview_report import QueueOverview

MOST_QUEUES, MOST_JOBS = 200, 10


class ShowsQueues(Protocol):
    """What is asked for the names of queues, those in use first, and how they stand."""

    def all_queues(self) -> Iterable[str]:
        """Returns the full names of all queues, those in use first."""

    def queue_stats(self, name: str) -> QueueStats:
        """Returns the counts of a queue, and how it stands now."""


class QueueOverviews:
    """Looks at up to 200 queues: those that are used in this process come first."""

    def __init__(self, queues: ShowsQueues) -> None:
        self._queues = queues

    def look(self) -> tuple[Sequence[QueueOverview], int]:
        """Returns how queues stand, and how many there are."""
        names = list(self._queues.all_queues())
        found = (self._one(name) for name in names[:MOST_QUEUES])
        return [one for one in found if one is not None], len(names)

    def _one(self, name: str) -> QueueOverview | None:
        try:
            now = self._queues.queue_stats(name)
        except QueueNotFound:  # deleted a moment ago
            return None
        figures = attrs.asdict(now, recurse=False)
        del figures["oldest_pipes"]
        jobs: Sequence[JobInWork] = figures.pop("jobs")[:MOST_JOBS]
        return QueueOverview(queue=name, jobs=jobs, **figures)


def seen_queues(
    queues: Iterable[QueueOverview], sees_queue: Callable[[str], bool] | None
) -> list[QueueOverview]:
    """Returns the queues that somebody may see, none without a test for it."""
    if sees_queue is None:
        return []
    return [queue for queue in queues if sees_queue(queue.queue)]
