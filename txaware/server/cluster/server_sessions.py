"""Sessions of the servers of a store with home, which gives them shards.

Each server says again and again which shards it has, and hears which it is to have.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import msgspec

from txaware.errors import BadRequest
from txaware.model.shards import HOME
from txaware.server.cluster.server_map import ServerEntry, ServerMap, ShardEntry

log = logging.getLogger(__name__)

# A server says that it lives at this interval; what one has that was silent for so long
# is offered to others, who take it if its owner has ended.
BEAT_S, SUSPECT_S = 1.0, 3.0
# What servers say to each other: those of another version cannot share a store.
SPEAKS = 2
# A new home waits so long for servers that have shards from before.
GREET_S = 1.5


def require_same(speaks: int, other: str) -> None:
    """Raises `BadRequest` where another server says other things to servers."""
    if speaks != SPEAKS:
        raise BadRequest(
            f"{other} has another version of txaware, which speaks {speaks} with other "
            f"servers, and here it is {SPEAKS}: all servers of a store have to be of "
            f"one; end those of the other first"
        )


class SentHello(msgspec.Struct, array_like=True):
    """A server, the shards that it has, and the epoch of the map that it knows."""

    entry: ServerEntry
    holds: list[int]
    epoch: int
    is_leaving: bool = False
    speaks: int = SPEAKS


class Orders(msgspec.Struct, array_like=True):
    """The map, and the shards that a server is to have.

    Of these it takes those of `seizes` from owners that are silent, at once.
    """

    server_map: ServerMap
    has: list[int]
    seizes: list[int]
    speaks: int = SPEAKS

    def has_news_for(self, sent: SentHello) -> bool:
        """Tells whether it says anything to who has said this."""
        return self.server_map.epoch != sent.epoch or {*self.has} != {*sent.holds}


@attrs.define(eq=False)
class _Session:
    entry: ServerEntry
    heard_s: float
    holds: frozenset[int] = frozenset()
    is_leaving: bool = False
    is_offered: bool = False  # what it has, to others, since it was heard last


class ServerSessions:
    """The servers of a store as home knows them, and which of them has each shard.

    A server that is silent for `silence_s` is none any more, and its shards are taken
    from it. Any thread may call; `on_change` is called with each later map.
    """

    def __init__(
        self,
        own: ServerEntry,
        shards: Iterable[int],
        *,
        silence_s: float,
        epoch: int,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own = own
        self._silence_s = silence_s
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._shards = sorted({HOME, *shards})
        self._began_s = clock_s()
        self._sessions = {
            own.id: _Session(own, self._began_s, holds=frozenset((HOME,)))
        }
        self._named: dict[int, str] = {}
        # Which server is to have each shard, as was said last.
        self._wanted: dict[int, str] = {}
        # Shards whose owners were silent for too long, until somebody has them.
        self._seizable: set[int] = set()
        self._epoch = epoch
        self._instance = secrets.token_hex(8)
        self._facts: dict[str, Any] = {}
        self.on_change: list[Callable[[ServerMap], object]] = []
        self._map = self._made()

    @property
    def server_map(self) -> ServerMap:
        """The map as it is now."""
        return self._map

    def hello(self, sent: SentHello) -> Orders:
        """Takes what a server says; returns what it is to have."""
        require_same(sent.speaks, f"server {sent.entry.id}, {sent.entry.own},")
        with self._lock:
            self._heard(sent)
            return self._orders(sent.entry.id)

    def orders(self) -> Orders:
        """Returns what home's own server is to have."""
        with self._lock:
            self._look()
            return self._orders(self._own.id)

    def hold(self, shards: Iterable[int]) -> None:
        """Notes which shards home's own server has."""
        with self._lock:
            self._holds(self._sessions[self._own.id], {HOME, *shards})

    def add(self, shards: Iterable[int]) -> None:
        """Notes shards that were made."""
        with self._lock:
            self._shards = sorted({*self._shards, *shards})
            self._change()

    def tell_facts(self, facts: Mapping[str, Any]) -> None:
        """Has the map tell what home tells clients of itself."""
        with self._lock:
            self._facts = {**facts}
            self._change()

    def give(self, shard: int, server: str) -> str:
        """Has a shard go to a server, and stay there while that is there.

        The server is named by its id or its own address; returns its id.
        """
        with self._lock:
            found = next(
                (
                    one
                    for one in self._sessions.values()
                    if server in (one.entry.id, one.entry.own) and not one.is_leaving
                ),
                None,
            )
            if found is None:
                listed = ", ".join(one.entry.own for one in self._sessions.values())
                raise BadRequest(f"there is no server {server:.200}: {listed} are")
            is_home = shard == HOME and found.entry is not self._own
            if shard not in self._shards or is_home:
                raise BadRequest(
                    f"shard {shard} is not one that moves: {self._shards[1:]} are"
                )
            self._named[shard] = found.entry.id
            self._change()
            return found.entry.id

    def leave(self) -> None:
        """Has home's own shards go to others, where there are others."""
        with self._lock:
            self._sessions[self._own.id].is_leaving = True
            self._change()

    @property
    def is_left(self) -> bool:
        """True when home's own server has no further shard, or nobody takes any."""
        with self._lock:
            return self._sessions[self._own.id].holds <= {HOME} or not any(
                self._there()
            )

    def holder_of(self, shard: int) -> str | None:
        """Returns the id of the server that has a shard; None while nobody does."""
        with self._lock:
            return self._holders().get(shard)

    def _heard(self, sent: SentHello) -> None:
        entry, now_s = sent.entry, self._clock_s()
        if entry.id == self._own.id:
            raise BadRequest(f"server {entry.id} is home, and has no session with it")
        if sent.epoch > self._epoch:  # of a home before, whose clock is ahead
            self._epoch = sent.epoch
            self._change()
        for other in [*self._sessions.values()]:
            if other.entry.own == entry.own and other.entry.id not in (
                *(entry.id, self._own.id),
            ):
                self._forget(other)  # its process began anew
        known = self._sessions.get(entry.id)
        if sent.is_leaving and not sent.holds:
            if known is not None:
                self._forget(known)
            return
        if known is None:
            log.info("server %s, %s, is there", entry.id, entry.own)
            known = self._sessions[entry.id] = _Session(entry, now_s)
            self._change()
        known.heard_s, known.is_offered = now_s, False
        if sent.is_leaving and not known.is_leaving:
            known.is_leaving = True
            self._change()
        self._holds(known, {*sent.holds})
        self._look()

    def _holds(self, session: _Session, shards: Iterable[int]) -> None:
        """Notes what a server has; what it is given was its former owner's till now."""
        holders = self._holders()
        mine = set()
        for shard in shards:
            other = self._sessions.get(holders.get(shard, session.entry.id))
            if other is None or other is session:
                mine.add(shard)
            elif self._is_suspect(other):
                other.holds -= {shard}
                mine.add(shard)
        if session.holds != mine:
            session.holds = frozenset(mine)
            self._seizable -= mine
            self._change(is_other=True)

    def _look(self) -> None:
        """Forgets servers that were silent for too long."""
        now_s = self._clock_s()
        for session in [*self._sessions.values()]:
            silent_s = now_s - session.heard_s
            if session.entry is self._own or silent_s <= self._silence_s:
                continue
            log.warning(
                "server %s, %s, has been silent for %.1f s: its shards go to others",
                *(session.entry.id, session.entry.own, silent_s),
            )
            self._seizable |= session.holds
            self._forget(session)

    def _forget(self, session: _Session) -> None:
        del self._sessions[session.entry.id]
        self._named = {
            shard: server
            for shard, server in self._named.items()
            if server != session.entry.id
        }
        self._change(is_other=True)

    def _holders(self) -> dict[int, str]:
        return {
            shard: session.entry.id
            for session in self._sessions.values()
            for shard in session.holds
        }

    def _orders(self, server_id: str) -> Orders:
        """Returns what a server is to have: what it has, and what is nobody's."""
        now_s = self._clock_s()
        last = self._holders()
        holders = {
            shard: holder
            for shard, holder in last.items()
            if not self._is_suspect(self._sessions[holder])
        }
        before = {**self._wanted, **holders}
        wanted = assigned(self._shards, self._there(), before, self._named)
        self._wanted = wanted
        is_early = now_s - self._began_s < GREET_S
        has = []
        for shard, server in wanted.items():
            holder = holders.get(shard)
            if server == server_id and (holder == server_id or holder is None):
                if holder is None and is_early:
                    continue
                has.append(shard)
                if holder is None and shard in last:
                    self._offer(self._sessions[last[shard]])
        return Orders(self._map, has, sorted(self._seizable.intersection(has)))

    def _offer(self, session: _Session) -> None:
        """Notes that another may take a shard of a silent server from now on.

        That one answers before it is in the map, and does not know what was done here.
        """
        if not session.is_offered:
            session.is_offered = True
            self._change(is_other=True)

    def _there(self) -> list[str]:
        """Returns the servers that may have shards."""
        return [
            one.entry.id
            for one in self._sessions.values()
            if not (one.is_leaving or self._is_suspect(one))
        ]

    def _is_suspect(self, session: _Session) -> bool:
        silent_s = self._clock_s() - session.heard_s
        return silent_s > SUSPECT_S and session.entry is not self._own

    def _change(self, *, is_other: bool = False) -> None:
        """Makes a later map; of another life, where owners remember no repeats."""
        self._epoch += 1
        if is_other:
            self._instance = secrets.token_hex(8)
        self._map = self._made()
        for callback in self.on_change:
            callback(self._map)

    def _made(self) -> ServerMap:
        holders = self._holders()
        return ServerMap(
            self._epoch,
            self._instance,
            tuple(session.entry for session in self._sessions.values()),
            tuple(ShardEntry(one, holders.get(one)) for one in self._shards),
            self._facts,
        )


def assigned(
    shards: Iterable[int],
    servers: Sequence[str],
    holders: Mapping[int, str],
    named: Mapping[int, str],
) -> dict[int, str]:
    """Returns the server that is to have each shard: evenly, and few of them move.

    `holders` have them now. Home stays where it is, and so does what an operator has
    `named` a server for, as long as that one is there. No server has two more than
    another, as far as these allow it. Without servers nobody gets anything.
    """
    wanted: dict[int, str] = {}
    of_server: dict[str, list[int]] = {one: [] for one in servers}
    for shard in sorted(shards):
        for server in (named.get(shard), holders.get(shard)):
            if server in of_server:
                wanted[shard] = server
                of_server[server].append(shard)
                break
    free = [shard for shard in sorted(shards) if shard not in wanted]
    least, more = divmod(len(free) + len(wanted), max(1, len(servers)))
    # Those that have most keep one more than the others.
    for at, server in enumerate(sorted(servers, key=lambda one: -len(of_server[one]))):
        most = least + (1 if at < more else 0)
        movable = [
            one for one in of_server[server] if one != HOME and named.get(one) != server
        ]
        surplus = max(0, len(of_server[server]) - most)
        for shard in movable[::-1][:surplus]:
            of_server[server].remove(shard)
            free.append(shard)
    for shard in free:
        if not servers:
            wanted.pop(shard, None)
            continue
        server = min(servers, key=lambda one: len(of_server[one]))
        wanted[shard] = server
        of_server[server].append(shard)
    return wanted
