"""Opens some shards of a store, for one of several servers that have them all."""

from collections.abc import Callable, Sequence
from pathlib import Path

from coordinator import Coordinator
from txaware.messaging.addresses import open_on, open_table
from txaware.messaging.parts import Parts
from txaware.model.clock import ClockMs
from txaware.model.interfaces import OrderedTable
from txaware.model.settings import Settings
from txaware.model.shards import HOME
from txaware.model.topics import Topic
from txaware.shards.opening import make_shards, open_shard, open_some
from txaware.shards.placement import KeepCopy, mend_copies
from txaware.shards.shard_place import ShardDirectories
from txaware.shards.sharded_table import ShardedTable
from txaware.store.shard_rows import ShardIdentity, StoreShards
from txaware.store.topic_table import TopicTable


def shards_made(url: str, settings: Settings, *, least: int) -> StoreShards:
    """Makes the shards of a directory that are missing, and returns all."""
    return make_shards(_directory(url), settings, least=least)


def _directory(url: str) -> Path:
    return Path(url.partition(":")[2])


class ShardCopies:
    """The copies of topics' rows in the shards that are open here."""

    def __init__(
        self,
        table: ShardedTable,
        topics: TopicTable,
        open_shard: Callable[[int], OrderedTable],
    ) -> None:
        self._table = table
        self._topics = topics
        self._open_shard = open_shard

    def open(self, shard: int) -> None:
        """Opens one more shard, which was made meanwhile."""
        self._table.add(shard, self._open_shard(shard))

    def rows(self, shard: int) -> OrderedTable:
        """Returns the rows of a shard."""
        return self._table.store_of(shard)

    def keep(self, shard: int, topic: Topic) -> None:
        """Keeps a copy, instead of the one before."""
        self._topics.keep(topic, self._table.store_of(shard))

    def mend(self, shard: int, topics: list[Topic]) -> None:
        """Makes the copies in a shard what home has."""
        rows = self._table.store_of(shard)
        known = list(TopicTable(rows).all())
        if mend_copies(topics, shard, rows):
            for topic in (*known, *topics):
                self._topics.forget(topic.topic)


def opened_shards(
    url: str,
    coordinator: str | Coordinator | None,
    settings: Settings,
    clock_ms: ClockMs,
    *,
    known: StoreShards,
    numbers: Sequence[int],
    token: str | None,
    keep_elsewhere: KeepCopy,
    read_elsewhere: Callable[[int], OrderedTable],
) -> tuple[Parts, ShardCopies | None]:
    """Opens some shards of a directory; the others are at other servers.

    `keep_elsewhere` has another server keep the copy of a topic's row for a shard, and
    `read_elsewhere` returns what reads the rows of one.
    """
    table: OrderedTable
    if known.further:
        table = open_some(_directory(url), known, numbers, settings, clock_ms=clock_ms)
    else:
        table = open_table(url, settings, clock_ms)
    parts = open_on(
        table,
        coordinator,
        settings,
        clock_ms,
        token,
        is_home=HOME in numbers,
        keep_elsewhere=keep_elsewhere,
    )
    assert parts.served is not None
    topics = parts.served.service.handles.topics
    if not isinstance(table, ShardedTable):
        return parts, None
    if HOME in numbers:
        table.elsewhere = read_elsewhere
    place = ShardDirectories(_directory(url), settings)

    def opened(number: int) -> OrderedTable:
        return open_shard(place, ShardIdentity(known.store, number), clock_ms)

    return parts, ShardCopies(table, topics, opened)
