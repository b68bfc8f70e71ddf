"""The part that this server has in its cluster: the map, and what is here."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from txaware.errors import KeeperMissing
from txaware.model.interfaces import OrderedTable
from txaware.model.shards import HOME
from txaware.model.topics import Topic
from txaware.server.cluster.server_map import ServerEntry, ServerMap
from txaware.server.cluster.server_seal import ServerSeal
from txaware.server.cluster.server_sessions import ServerSessions
from txaware.server.cluster.shard_uses import ShardUses

Pause = Callable[[float], None]
# Why calls to such a server end, as a caller reads it.
GONE = "it is no server any more, and others have its shards"


class TopicCopies(Protocol):
    """The copies of topics' rows in the shards that are here; calls wait for a disk."""

    def open(
        self, shard: int, *, seizes: bool = False, pause: Pause | None = None
    ) -> None:
        """Opens one more shard; `seizes` takes it from an owner that may live.

        `pause` is called between two looks at whether its owner is gone.
        """

    def close(self, shard: int) -> None:
        """Gives a shard back, which others then open."""

    def rows(self, shard: int) -> OrderedTable:
        """Returns the rows of a shard that is here."""

    def keep(self, shard: int, topic: Topic) -> None:
        """Keeps a copy, instead of the one before."""

    def mend(self, shard: int, topics: list[Topic]) -> None:
        """Makes the copies in a shard what home has, which tells all of its topics."""


class ClusterPart:
    """The map as this server knows it; of one event loop, once that has begun.

    `token` is one that all servers of the store take from each other, and from programs
    that find them by the data. `certificate` is the one that they speak TLS with. The
    server that `leads` tells such programs where it is.
    """

    def __init__(
        self,
        server_id: str,
        secret: bytes,
        server_map: ServerMap,
        *,
        token: str,
        certificate: str | None = None,
        leads: bool = False,
        shards: Iterable[int] = (),
    ) -> None:
        self.id = server_id
        self.leads = leads
        self._shards = frozenset(shards)
        self.map = server_map
        self.seal = ServerSeal(secret)
        self.token = token
        self.certificate = certificate
        # What the servers of home and of shards do for each other, once it is opened.
        self.copies: TopicCopies | None = None
        # Home's sessions with servers on other machines; None elsewhere.
        self.sessions: ServerSessions | None = None
        # Where shards move: the requests under way in each.
        self.uses: ShardUses | None = None
        self.on_change: list[Callable[[ServerMap], object]] = []
        # Called with the own address of a server that has left the cluster, once others
        # have all of its shards: what it was asked, it will not do now.
        self.on_gone: list[Callable[[str], object]] = []
        self._holders: dict[int, str] = {}
        self._servers: set[str] = set()
        self._changed: set[asyncio.Event] = set()

    def take(self, shards: Iterable[int]) -> None:
        """Notes that more shards are here."""
        self._shards |= frozenset(shards)

    def give(self, shard: int) -> None:
        """Notes that a shard is here no more, as far as new requests go."""
        self._shards -= {shard}

    @property
    def shards(self) -> frozenset[int]:
        """The shards that are here."""
        return self._shards

    @property
    def entry(self) -> ServerEntry:
        """This server."""
        found = self.map.server(self.id)
        assert found is not None
        return found

    @property
    def is_home(self) -> bool:
        """True when this server has the coordinator, and all that is no message."""
        return self.has(HOME)

    def has(self, shard: int) -> bool:
        """Tells whether a shard is here, also before the map says so."""
        return shard in self._shards

    def other_owner(self, shard: int) -> ServerEntry | None:
        """Returns the other server that has a shard; None while nobody does."""
        owner = self.map.owner(shard)
        return None if owner is None or owner.id == self.id else owner

    def address_of(self, shard: int) -> str | None:
        """Returns where the server of a shard is; None while nobody has it."""
        owner = self.map.owner(shard)
        return None if owner is None else owner.own

    def require_all(self) -> None:
        """Raises `KeeperMissing` while a shard is at no server, which may need much."""
        away = [one.number for one in self.map.shards if one.server is None]
        if away:
            listed = ", ".join(map(str, away))
            raise KeeperMissing(
                f"shard {listed} is at no server just now, and nobody knows what its "
                f"rows need; nothing was forgotten, try again once it is back"
            )

    def change(self, server_map: ServerMap) -> None:
        """Takes a later map, and wakes those who wait for one."""
        if server_map.epoch < self.map.epoch:
            return
        self.map = server_map
        for event in self._changed:
            event.set()
        for callback in self.on_change:
            callback(server_map)
        for own in self._gone(server_map):
            self.lose(own)

    def lose(self, own: str) -> None:
        """Ends calls to the server at that own address, which is none any more."""
        for leave in self.on_gone:
            leave(own)

    def _gone(self, server_map: ServerMap) -> set[str]:
        """Notes who has what; returns the servers that lost all to others.

        A new home knows nobody at first, so that being in no map is not enough.
        """
        for one in server_map.shards:
            holder = server_map.server(one.server)
            if holder is not None:
                self._holders[one.number] = holder.own
        there = {one.own for one in server_map.servers}
        gone = self._servers - there - {*self._holders.values()}
        self._servers = (self._servers - gone) | there
        return gone

    async def next_map(self, timeout_s: float) -> None:
        """Returns once there is a later map, or at that time."""
        event = asyncio.Event()
        self._changed.add(event)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await event.wait()
        finally:
            self._changed.discard(event)
