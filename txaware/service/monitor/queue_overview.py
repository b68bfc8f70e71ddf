"""The queues that an operator sees at a glance."""

from collections.abc import Sequence
from typing import Protocol

import attrs

from txaware.errors import QueueNotFound
from txaware.model.queues import QueueDescriptor, QueueStats
from txaware.model.topics import QueueName

# So many queues are looked at, and so many jobs of each are named.
MOST_QUEUES, MOST_JOBS = 200, 20


class Queues(Protocol):
    """The queues of a store."""

    def descriptors(self) -> Sequence[QueueDescriptor]:
        """Returns the settings of all queues."""

    def is_in_use(self, name: str) -> bool:
        """Tells whether this process has used a queue."""

    def queue_stats(self, name: str) -> QueueStats:
        """Returns the counts of a queue, and how it stands now."""


@attrs.frozen
class QueueOverview:
    """A queue by its name, and how it stands; its `stats` name no pipes.

    One that `takes_dead_letters` of others needs nobody who works on it. Of its own
    so many `dead_letters` wait, as far as that was looked at.
    """

    queue: str
    stats: QueueStats
    takes_dead_letters: bool = False
    dead_letters: int = 0


@attrs.frozen
class QueueList:
    """Some queues in the order of their names, and the count of all."""

    queues: list[QueueOverview] = attrs.field(factory=list)
    count: int = 0


def queue_overviews(queues: Queues) -> QueueList:
    """Looks at queues; where there are too many, first at those that are in use."""
    known = queues.descriptors()
    letters = {str(QueueName.parse(one.dead_letters)) for one in known}
    names = sorted(one.name for one in known)
    chosen = sorted(names, key=queues.is_in_use, reverse=True)[:MOST_QUEUES]
    found: dict[str, QueueOverview] = {}
    for name in sorted(chosen):
        try:
            stats = queues.queue_stats(name)
        except QueueNotFound:  # deleted a moment ago
            continue
        shown = attrs.evolve(stats, jobs=stats.jobs[:MOST_JOBS], oldest_pipes=())
        found[name] = QueueOverview(name, shown, name in letters)
    for one in known:
        if one.name in found and found[one.name].stats.dead_letters:
            waiting = found.get(str(QueueName.parse(one.dead_letters)))
            depth = 0 if waiting is None else waiting.stats.depth
            count = min(depth, found[one.name].stats.dead_letters)
            found[one.name] = attrs.evolve(found[one.name], dead_letters=count)
    return QueueList([*found.values()], len(names))
