"""The places of the further shards of a store: directories, or tables in HBase."""

from contextlib import closing
from pathlib import Path
from typing import Protocol

from txaware.model.clock import ClockMs
from txaware.model.interfaces import OrderedTable
from txaware.model.settings import Settings
from txaware.model.shards import DIRECTORY
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.ownership import Pause
from txaware.store.hbase.schema import create_tables, missing_tables
from txaware.store.hbase.table import HBaseTable
from txaware.store.interfaces import InDirectory, InHBase, KeepsJournal
from txaware.store.leveldb import LevelDbTable
from txaware.store.memory import MemoryTable


class ShardPlace(Protocol):
    """The place where the further shards of a store are."""

    def name_of(self, number: int) -> str:
        """Returns the place of a shard, for messages."""

    def has(self, number: int) -> bool:
        """Tells whether something is in the place of a shard."""

    def open(self, number: int, clock_ms: ClockMs) -> OrderedTable:
        """Opens a shard, which nobody else has; makes it where nothing is."""


class ShardDirectories:
    """The further shards of a store in a directory: each in a directory within."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self._directory = directory
        self._settings = settings

    def _path(self, number: int) -> Path:
        return self._directory / DIRECTORY / str(number)

    def name_of(self, number: int) -> str:
        """Returns the directory of a shard."""
        return str(self._path(number))

    def has(self, number: int) -> bool:
        """Tells whether a shard has a directory with rows."""
        return (self._path(number) / "rows").is_dir()

    def open(self, number: int, clock_ms: ClockMs) -> OrderedTable:
        """Opens the directory of a shard."""
        return LevelDbTable.open(self._path(number), self._settings, clock_ms=clock_ms)


class ShardsInHBase:
    """The further shards of a store in HBase: tables `NAME.sK_...` beside `NAME_...`.

    `home` are connections to the first shard, which stay its own. With `seizes` a shard
    is taken from its owner at once, as somebody else knows that this one has to go.
    With `pause` an owner is watched, as `Ownership` says. `made` are shards whose
    tables were found: HBase is not asked for those again, which takes it long.
    """

    def __init__(
        self,
        home: HBaseConnections,
        settings: Settings,
        *,
        seizes: bool = False,
        pause: Pause | None = None,
        made: set[int] | None = None,
    ) -> None:
        self._home = home
        self._settings = settings
        self._made = set[int]() if made is None else made
        self._seizes, self._pause = seizes, pause

    def connections(self, number: int) -> HBaseConnections:
        """Returns connections to a shard, for the caller to close."""
        return self._home.beside(self._home.address.shard(number))

    def name_of(self, number: int) -> str:
        """Returns the address of a shard."""
        return str(self._home.address.shard(number))

    def has(self, number: int) -> bool:
        """Tells whether all tables of a shard are there."""
        if number not in self._made:
            with closing(self.connections(number)) as connections:
                if missing_tables(connections):
                    return False
            self._made.add(number)
        return True

    def open(self, number: int, clock_ms: ClockMs) -> OrderedTable:
        """Takes a shard, once its tables are there."""
        if number not in self._made:
            with closing(self.connections(number)) as connections:
                create_tables(connections)
            self._made.add(number)
        connections = self.connections(number)
        return HBaseTable.on(
            connections,
            self._settings,
            clock_ms=clock_ms,
            pause=self._pause,
            seizes=self._seizes,
        )


class ShardsInMemory:
    """The further shards of a store in memory, which end with it."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def name_of(self, number: int) -> str:
        """Returns what a shard is called."""
        return f"shard {number} in memory"

    def has(self, number: int) -> bool:
        """Tells whether a shard was made."""
        return number in self._known

    def open(self, number: int, clock_ms: ClockMs) -> OrderedTable:
        """Makes a shard."""
        self._known.add(number)
        return MemoryTable(clock_ms=clock_ms)


def place_beside(table: OrderedTable, settings: Settings) -> ShardPlace | None:
    """Returns the place of the shards beside a table; None where there can be none."""
    if isinstance(table, InDirectory):
        return ShardDirectories(table.directory, settings)
    if isinstance(table, InHBase):
        return ShardsInHBase(table.connections, settings)
    return None if isinstance(table, KeepsJournal) else ShardsInMemory()
