"""The requests that are under way in a shard, which ends them before it moves."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import attrs

from txaware.server.exchange import Peer, Request, Settable, Stream
from txaware.server.routing import Answer, Route


class ShardUses:
    """Counts who works in which shard; any thread may ask."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way: Counter[int] = Counter()
        self._moving: set[int] = set()
        # Polls that wait in a shard, and the event loop in which they do.
        self._polls: dict[Settable, tuple[int, asyncio.AbstractEventLoop]] = {}

    @contextmanager
    def using(self, shard: int) -> Iterator[None]:
        """Counts the block as under way."""
        with self._changed:
            self._under_way[shard] += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way[shard] -= 1
                self._changed.notify_all()

    def is_moving(self, shard: int) -> bool:
        """Tells whether what waits in a shard is to end."""
        return shard in self._moving

    def drain(self, shard: int, timeout_s: float) -> bool:
        """Ends what waits in a shard; tells whether nothing is under way by then."""
        with self._changed:
            self._moving.add(shard)
            for event, (at, loop) in self._polls.items():
                if at == shard:
                    loop.call_soon_threadsafe(event.set)
            return self._changed.wait_for(lambda: not self._under_way[shard], timeout_s)

    def take(self, shard: int) -> None:
        """Notes that a shard is here."""
        with self._changed:
            self._moving.discard(shard)

    def wait_here(
        self, shard: int, event: Settable | None, before: Settable | None
    ) -> None:
        """Has an event be set once the shard moves; instead of the one before."""
        with self._changed:
            if before is not None:
                self._polls.pop(before, None)
            if event is None:
                return
            self._polls[event] = shard, asyncio.get_running_loop()
            if shard in self._moving:
                event.set()

    async def counted(self, route: Route, shard: int, request: Request) -> Answer:
        """Answers a request in a shard, which stays here until it is answered."""
        peer = cast(Peer, _PollingPeer(request.peer, self, shard))
        with self.using(shard):
            answer = await route.handle(attrs.evolve(request, peer=peer))
            if isinstance(answer, Stream):
                first = self._counted_pieces(answer, shard)
                answer = attrs.evolve(answer, pieces=first)
            return answer

    async def _counted_pieces(self, answer: Stream, shard: int) -> Any:
        with self.using(shard):
            async for piece in answer.pieces:
                yield piece


class _PollingPeer:
    """The other end of a request, which hears no more once its shard moves."""

    def __init__(self, peer: Peer, uses: ShardUses, shard: int) -> None:
        self._peer, self._uses, self._shard = peer, uses, shard
        self._event: Settable | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._peer, name)

    @property
    def is_gone(self) -> bool:
        """True when a poll is to answer with what there is."""
        return self._peer.is_gone or self._uses.is_moving(self._shard)

    def tell_when_gone(self, event: Settable | None) -> None:
        """Sets the event when the other end goes, or the shard moves."""
        self._peer.tell_when_gone(event)
        self._uses.wait_here(self._shard, event, self._event)
        self._event = event
