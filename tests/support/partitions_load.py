"""The load of servers that are killed, over the partitions of one topic.

python -m tests.support.partitions_load, as `tests.support.http_kill_load`.
"""

from tests.support import http_kill_load
from txaware.messaging import Messaging

PARTITIONS = 12
NAMES = tuple(f"orders.{number}" for number in range(PARTITIONS))
COPIES = {"copiers": (NAMES[0], NAMES[1]), "tellers": (NAMES[1], NAMES[-1])}


def make_topics(messaging: Messaging) -> None:
    """Makes the topic, once."""
    messaging.create_topic("orders", partitions=PARTITIONS, exist_ok=True)


def begin() -> None:
    """Serves, or loads, as the command line says."""
    http_kill_load.TOPICS = NAMES  # type: ignore[assignment]
    http_kill_load.NAMED = ()  # type: ignore[assignment]
    http_kill_load.SOURCES = NAMES[:-1]  # type: ignore[assignment]
    http_kill_load.COPIES = COPIES
    http_kill_load.make_topics = make_topics  # type: ignore[assignment]
    http_kill_load.main()


if __name__ == "__main__":
    begin()
