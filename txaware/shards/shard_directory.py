"""The shards of a store as operators see them, and add more."""

from collections import Counter
from collections.abc import Callable, Mapping

from txaware.errors import BadRequest
from txaware.model.interfaces import OrderedTable
from txaware.model.settings import Settings
from txaware.model.shards import HOME, Shard, checked_more
from txaware.shards.opening import add_shards, make_further
from txaware.shards.shard_place import ShardsInMemory, place_beside
from txaware.shards.sharded_table import ShardedTable
from txaware.store.interfaces import numbered_stores
from txaware.store.keys import ABOVE_ALL
from txaware.store.shard_rows import shards_in
from txaware.store.topic_table import TopicTable


class ShardDirectory:
    """The shards of a table, which is alone or has several."""

    def __init__(self, table: OrderedTable, settings: Settings) -> None:
        self._place = place_beside(
            table.store_of(HOME) if isinstance(table, ShardedTable) else table, settings
        )
        self._table, self._settings = table, settings
        # Has other processes open shards that were made here, where there are some.
        self.hand_out: Callable[[list[int]], object] | None = None
        self.server_of: Callable[[int], str | None] | None = None
        self.give_to: Callable[[int, str], object] | None = None

    def all(self) -> list[Shard]:
        """Returns all shards by their numbers, also those at other servers."""
        partitions: Counter[int] = Counter()
        for topic in TopicTable(self._table).all():
            if topic.generation > 0:
                partitions.update(map(topic.shard_of, range(topic.partitions)))
        here = dict(numbered_stores(self._table))
        known = shards_in(here[HOME]) if HOME in here else None
        return [
            Shard(number, partitions[number], *self._size_and_status(number, here))
            for number in sorted(here.keys() | set(known.shards if known else ()))
        ]

    def add(self, count: int) -> list[int]:
        """Makes so many shards more, which are used at once where there are some."""
        table = self._table
        if self._place is None:
            raise BadRequest("this data has one shard alone, and no place for more")
        if isinstance(table, ShardedTable) and self.hand_out is not None:
            made = self._made(table.store_of(HOME), count)
            self.hand_out(made)
            return made
        if isinstance(table, ShardedTable):
            table.require_all("adding more")
            return [*add_shards(table, self._place, count)]
        if isinstance(self._place, ShardsInMemory):
            raise BadRequest(
                "what is in memory gets its first further shards when it is opened: "
                "set `shards` then"
            )
        return self._made(table, count)

    def _size_and_status(
        self, number: int, here: Mapping[int, OrderedTable]
    ) -> tuple[int | None, str]:
        table = here.get(number)
        if table is not None:
            return table.size_bytes(b"", ABOVE_ALL), table.status()
        server = None if self.server_of is None else self.server_of(number)
        return None, "at no server just now" if server is None else f"at {server}"

    def _made(self, home: OrderedTable, count: int) -> list[int]:
        """Makes shards, and leaves them closed."""
        known = shards_in(home)
        before = known.shards if known is not None else (HOME,)
        checked_more(count)
        found = make_further(home, self._settings, least=len(before) + count)
        return [one for one in found.shards if one not in before]
