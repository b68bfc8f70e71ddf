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
from txaware.service.administration import Administration
from txaware.shards.opening import make_shards, open_shard, open_some
from txaware.shards.placement import KeepElsewhere, mend_copies
from txaware.shards.shard_place import ShardDirectories, ShardsInHBase
from txaware.shards.sharded_table import ShardedTable
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.ownership import Pause
from txaware.store.hbase.table import HBaseTable
from txaware.store.memory import MemoryTable
from txaware.store.shard_rows import ShardIdentity, StoreShards
from txaware.store.topic_table import TopicTable


def shards_made(url: str, settings: Settings, *, least: int) -> StoreShards:
    """Makes the shards of a directory that are missing, and returns all."""
    return make_shards(_directory(url), settings, least=least)


def _directory(url: str) -> Path:
    return Path(url.partition(":")[2])


# Opens a shard by its number; taken from an owner that may live, or with a pause.
OpenShard = Callable[[int, bool, Pause | None], OrderedTable]


class ShardCopies:
    """The copies of topics' rows in the shards that are open here."""

    def __init__(
        self,
        table: ShardedTable,
        topics: TopicTable,
        open_shard: OpenShard,
        *,
        forget: Callable[[], object],
    ) -> None:
        self._table = table
        self._topics = topics
        self._open_shard = open_shard
        self._forget = forget

    def open(
        self, shard: int, *, seizes: bool = False, pause: Pause | None = None
    ) -> None:
        """Opens one more shard; `seizes` takes it from an owner that may live."""
        self._table.add(shard, self._open_shard(shard, seizes, pause))
        self._forget()

    def close(self, shard: int) -> None:
        """Gives a shard back, which others then open."""
        table = self._table.remove(shard)
        try:
            table.close()
        finally:
            self._forget()

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
    keep_elsewhere: KeepElsewhere,
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
        table.remote_rows = read_elsewhere
    place = ShardDirectories(_directory(url), settings)

    def opened(number: int, *_: object) -> OrderedTable:
        return open_shard(place, ShardIdentity(known.store, number), clock_ms)

    forget = parts.served.service.forget
    return parts, ShardCopies(table, topics, opened, forget=forget)


def opened_home(
    home: HBaseTable,
    coordinator: str | Coordinator | None,
    settings: Settings,
    clock_ms: ClockMs,
    *,
    known: StoreShards,
    keep_elsewhere: KeepElsewhere,
    read_elsewhere: Callable[[int], OrderedTable],
) -> tuple[Parts, ShardCopies]:
    """Opens the first shard of a store in HBase; further ones come and go."""
    table = ShardedTable({HOME: home})
    parts = open_on(
        table, coordinator, settings, clock_ms, None, keep_elsewhere=keep_elsewhere
    )
    table.remote_rows = read_elsewhere
    return parts, _moving(table, parts, home.connections, known, settings)


def opened_member(
    connections: HBaseConnections,
    coordinator: str | Coordinator,
    settings: Settings,
    clock_ms: ClockMs,
    *,
    known: StoreShards,
) -> tuple[Parts, ShardCopies]:
    """Opens a server that has no shard of a store in HBase yet; shards come and go."""
    table = ShardedTable({}, MemoryTable(clock_ms=clock_ms))
    parts = open_on(table, coordinator, settings, clock_ms, None, is_home=False)
    return parts, _moving(table, parts, connections, known, settings)


def _moving(
    table: ShardedTable,
    parts: Parts,
    connections: HBaseConnections,
    known: StoreShards,
    settings: Settings,
) -> ShardCopies:
    assert parts.served is not None
    made = set[int]()

    def opened(number: int, seizes: bool, pause: Pause | None) -> OrderedTable:
        place = ShardsInHBase(
            connections, settings, seizes=seizes, pause=pause, made=made
        )
        identity = ShardIdentity(known.store, number)
        return open_shard(place, identity, table.clock.now_ms)

    administration = parts.administration
    assert isinstance(administration, Administration)
    topics = parts.served.service.handles.topics
    return ShardCopies(table, topics, opened, forget=administration.forget)
