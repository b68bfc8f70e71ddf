"""A table of several stores, each of which has the rows of the partitions in it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from coordinator.embedded.commit_log import Wait
from coordinator.embedded.journal import Journal
from coordinator.interfaces import OnWritten
from txaware.errors import BadRequest, ShardAway, Unavailable
from txaware.model.clock import StoreClock
from txaware.model.interfaces import Emptiness, OrderedTable, Row, Write
from txaware.model.metrics import WriteMetrics
from txaware.model.shards import HOME
from txaware.store.interfaces import HasView, KeepsJournal, View
from txaware.store.keys import TOPIC
from txaware.store.shard_rows import shards_in
from txaware.store.sharded_rows import OF_PARTITIONS, ShardPlaces, merged
from txaware.store.together import Together, at_once, submitting, wait_for_all


class ShardedTable:
    """An `OrderedTable` over the shards of a store that this process has open.

    Messages and what belongs to them, also how far producers have come in a topic, are
    in the shard of their partition; all other rows are in the first one. Its journal is
    the coordinator's. What is written to several shards at once is a batch in each, and
    no more than that. Where the first one is elsewhere, the shards that are here have
    copies of the topics in them; while none is here, what is no message is in `spare`.
    """

    def __init__(
        self, tables: Mapping[int, OrderedTable], spare: OrderedTable | None = None
    ) -> None:
        self._tables = dict(sorted(tables.items()))
        self._spare = spare
        self._places = ShardPlaces(self.get)
        # Reads the rows of shards that are at other servers, where that is known.
        self.remote_rows: Callable[[int], OrderedTable] | None = None

    @property
    def _first(self) -> OrderedTable:
        found = next(iter(self._tables.values()), self._spare)
        assert found is not None
        return found

    @property
    def shards(self) -> tuple[int, ...]:
        """The numbers of the shards that are here."""
        return tuple(self._tables)

    def store_of(self, number: int) -> OrderedTable:
        """Returns the table of a shard; raises `ShardAway` where it is elsewhere.

        Rows that are no messages are this process's own where home is elsewhere.
        """
        found = self._tables.get(number)
        if found is None and number == HOME:
            return self._first
        if found is None:
            raise ShardAway(f"shard {number} is not at this server now; ask again")
        return found

    def rows_of(self, number: int) -> OrderedTable:
        """Returns the table of a shard, or what reads the rows of one elsewhere."""
        if number in self._tables:
            return self._tables[number]
        if self.remote_rows is not None:
            return self.remote_rows(number)
        raise ShardAway(f"shard {number} is not at this server now; ask again")

    def add(self, number: int, table: OrderedTable) -> None:
        """Takes one more shard."""
        self._tables = dict(sorted({**self._tables, number: table}.items()))

    def remove(self, number: int) -> OrderedTable:
        """Leaves out a shard, which goes elsewhere; returns its table."""
        tables = dict(self._tables)
        found = tables.pop(number)
        self._tables = tables
        return found

    def place_of(self, key: bytes) -> int | None:
        """Returns the shard of a row; None for what begins rows of several shards.

        Raises `ShardAway` for messages in the first shard, where that is elsewhere.
        """
        place = self._places.of(key)
        if place == HOME and HOME not in self._tables and key[0] in OF_PARTITIONS:
            raise ShardAway(f"shard {HOME} is not at this server now; ask again")
        return place

    def _written_to(self, key: bytes) -> int:
        """Returns the shard that a row is written to: where it is, or belongs."""
        place = self.place_of(key)
        if place is not None:
            return place
        for number, table in self._tables.items():
            if table.get(key) is not None:
                return number
        return HOME

    def _home(self, key: bytes) -> Iterable[OrderedTable]:
        """Returns the tables that may have a row of the first shard, or its copy."""
        if HOME not in self._tables and key[:1] == TOPIC:
            return self._tables.values()
        return (self.store_of(HOME),)

    def _readable(self, key: bytes) -> Iterable[OrderedTable]:
        place = self.place_of(key) if key else None
        if place is None:
            return self._tables.values()
        return self._home(key) if place == HOME else (self.rows_of(place),)

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key; None if it has none."""
        for table in self._readable(key):
            value = table.get(key)
            if value is not None:
                return value
        return None

    def scan(
        self,
        prefix: bytes,
        *,
        start: bytes = b"",
        stop: bytes | None = None,
        limit: int = 1000,
        max_bytes: int = 1 << 20,
        reverse: bool = False,
    ) -> list[Row]:
        """Reads the rows whose key begins with `prefix`, in order, without the prefix.

        Rows of several shards are not of one view.
        """
        pages = [
            table.scan(
                prefix,
                start=start,
                stop=stop,
                limit=limit,
                max_bytes=max_bytes,
                reverse=reverse,
            )
            for table in self._readable(prefix)
        ]
        if len(pages) == 1:
            return pages[0]
        return merged(pages, limit, max_bytes, reverse=reverse)

    def submit(
        self, writes: Sequence[Write], on_written: OnWritten | None = None
    ) -> Wait:
        """Takes writes for the next batch of each shard that gets any."""
        parts = self._split(writes)
        if len(parts) == 1:
            [(table, own)] = parts
            return table.submit(own, on_written)
        ended = Together(len(parts), on_written or _nothing).ended
        waits: list[Wait] = []
        with submitting(waits):
            submits = at_once([table for table, _ in parts])
            for submit, (_, own) in zip(submits, parts, strict=True):
                waits.append(submit(own, ended))
        return partial(wait_for_all, waits)

    def hand_over(self, writes: Sequence[Write], on_written: OnWritten) -> None:
        """Takes writes for the next batches; `on_written` is told how all ended."""
        parts = self._split(writes)
        ended = (
            on_written if len(parts) == 1 else Together(len(parts), on_written).ended
        )
        for table, own in parts:
            table.hand_over(own, ended)

    def _split(
        self, writes: Sequence[Write]
    ) -> list[tuple[OrderedTable, Sequence[Write]]]:
        found: dict[int, list[Write]] = {}
        anywhere: list[Write] = []
        for write in writes:
            place = self.place_of(write[0])
            if place is None:
                anywhere.append(write)
            else:
                found.setdefault(place, []).append(write)
        beside = [*found] if len(found) == 1 else []
        for write in anywhere:
            for place in self._places_for(write, beside):
                found.setdefault(place, []).append(write)
        if len(found) > 1:
            return [(self.store_of(one), own) for one, own in found.items()]
        return [(self.store_of(next(iter(found), HOME)), writes)]

    def _places_for(self, write: Write, beside: Sequence[int]) -> Sequence[int]:
        """Returns the shards for a row that may be in any, and in several.

        It goes with the rows `beside` it, where those are of one shard; by itself, or
        to be removed, to all shards that have it.
        """
        key, value = write
        if beside and value is not None:
            return beside
        tables = self._tables.items()
        return [one for one, table in tables if table.get(key) is not None] or [HOME]

    def hold(self, pointer: int, writes: Sequence[Write]) -> bool:
        """Holds rows for the commit; False where they are not of the first shard."""
        if any(self._written_to(key) != HOME for key, _ in writes):
            return False
        return self.store_of(HOME).hold(pointer, writes)

    def replace_held(self, key: bytes, value: bytes) -> bool:
        """Changes a row that is held; False if it is not held (any more)."""
        return self.store_of(self._written_to(key)).replace_held(key, value)

    def compare_and_set(self, key: bytes, old: bytes | None, new: bytes) -> bool:
        """Sets the value of a key if it is still `old`; returns once that is kept."""
        place = self._written_to(key)
        return self.store_of(place).compare_and_set(key, old, new)

    @property
    def clock(self) -> StoreClock:
        """The time of the first shard, which the others never fall behind."""
        return self._first.clock

    @property
    def reads_wait(self) -> bool:
        """True when a read may wait for a network."""
        return self._first.reads_wait

    def reserve_time(self) -> None:
        """Waits until no restart can give out a time of the first shard again."""
        self._first.reserve_time()

    def newest_format(self) -> Sequence[Write]:
        """Returns nothing: a store of shards has a newer format."""
        return self._first.newest_format()

    def partitioned_format(self) -> Sequence[Write]:
        """Returns nothing: a store of shards has a newer format."""
        return self._first.partitioned_format()

    def sharded_format(self) -> Sequence[Write]:
        """Returns what keeps the version before away from the first shard."""
        return self._first.sharded_format()

    def packed_format(self) -> Sequence[Write]:
        """Returns nothing: a store of shards has a newer format."""
        return self._first.packed_format()

    @property
    def has_batches(self) -> bool:
        """True where a shard may have some; the format of shards does not tell."""
        return any(table.has_batches for table in self._tables.values())

    def compact(self, start: bytes, stop: bytes) -> None:
        """Gives the space of deleted rows back to the disk, in all shards."""
        for table in self._tables.values():
            table.compact(start, stop)

    def size_bytes(self, start: bytes, stop: bytes) -> int:
        """Returns about the size of a range, in all shards together."""
        return sum(table.size_bytes(start, stop) for table in self._tables.values())

    def outline(self, tag: bytes) -> Emptiness | None:
        """Returns None: a look into each topic tells more."""
        return None

    @property
    def journal(self) -> Journal:
        """The journal of the first shard, which is the coordinator's."""
        first: Any = self._first
        found: Journal = first.journal
        return found

    def write_metrics(self) -> WriteMetrics:
        """Returns the figures about the batches of all shards."""
        found = [
            table.write_metrics()
            for table in self._tables.values()
            if isinstance(table, KeepsJournal)
        ]
        return WriteMetrics.together(found)

    def view(self) -> View:
        """Returns a view of the rows on disk now, the first shard's first.

        Shards at other servers are viewed there, right after it.
        """
        views: list[View] = []
        if self.remote_rows is None:
            self.require_all("a backup")
        known = shards_in(self._first)
        try:
            for number in self._tables if known is None else known.shards:
                table = self.rows_of(number)
                if not isinstance(table, HasView):
                    raise BadRequest("what is in memory has no backup")
                views.append(table.view())
            if shards_in(self._first) != known:
                raise Unavailable("shards were added just now; ask again")
            return ShardedView(views)
        except BaseException:
            for view in views:
                view.close()
            raise

    def require_all(self, what: str) -> None:
        """Raises `BadRequest` where shards are at other servers."""
        known = shards_in(self._first)
        if known is None or set(known.shards) != set(self._tables):
            raise BadRequest(
                f"the shards of this store are at several servers, and {what} needs "
                f"all of them: stop the servers first"
            )

    def status(self) -> str:
        """Returns `"OK"`, or a sentence about what is wrong in a shard."""
        for number, table in self._tables.items():
            found = table.status()
            if found != "OK":
                return found if number == HOME else f"shard {number}: {found}"
        return "OK"

    def close(self) -> None:
        """Gives all shards back, the first one last."""
        errors: list[Exception] = []
        for table in reversed(self._tables.values()):
            try:
                table.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


def _nothing(_: Unavailable | None) -> None:
    """Does nothing: whoever wrote waits."""


class ShardedView:
    """The views of all shards, one after the other, each in the order of its keys.

    The first shard's is the oldest: what had committed in it is in the others as a
    whole, and what these have of later transactions is lost with the journal. A new
    shard begins where a key does not rise.
    """

    def __init__(self, views: Sequence[View]) -> None:
        self._views = views
        self._sizes = [view.size_bytes for view in views]
        self._at = 0

    def pieces(self, piece_bytes: int) -> Iterator[list[Row]]:
        """Reads all rows, about `piece_bytes` of them at a time."""
        for at, view in enumerate(self._views):
            self._at = at
            yield from view.pieces(piece_bytes)

    def part(self, key: bytes) -> float:
        """Returns about which part of all rows precedes a key of the last piece."""
        done = self._views[self._at].part(key) * self._sizes[self._at]
        return (sum(self._sizes[: self._at]) + done) / max(1, self.size_bytes)

    @property
    def size_bytes(self) -> int:
        """The size of all rows, about."""
        return sum(self._sizes)

    def close(self) -> None:
        """Ends all views; a second close does nothing."""
        for view in self._views:
            view.close()
