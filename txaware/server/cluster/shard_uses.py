"""The requests that are under way in a shard, which ends them before it moves."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, cast

import attrs
import msgspec

from txaware.errors import ShardAway
from txaware.server.exchange import Peer, Reply, Request, Settable, Stream
from txaware.server.routing import Answer, Begun, OnReply, Route

# Routes that count, each for one shard: a server has some tens of both.
_KNOWN_ROUTES = 4096


class ShardUses:
    """Counts who works in which shard; any thread may ask."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way: Counter[int] = Counter()
        self._moving: set[int] = set()
        # Polls that wait in a shard, and the event loop in which they do.
        self._polls: dict[Settable, tuple[int, asyncio.AbstractEventLoop]] = {}
        self.counting = lru_cache(_KNOWN_ROUTES)(self._counting)

    @contextmanager
    def using(self, shard: int) -> Iterator[None]:
        """Counts the block as under way."""
        self._enter(shard)
        try:
            yield
        finally:
            self._leave(shard)

    def _enter(self, shard: int) -> None:
        with self._changed:
            self._under_way[shard] += 1

    def _enter_here(self, shard: int) -> None:
        """Does so where the shard is here still; raises `ShardAway` once it goes."""
        with self._changed:
            if shard in self._moving:
                raise ShardAway(
                    f"shard {shard} goes to another server just now; try again in a "
                    f"moment"
                )
            self._under_way[shard] += 1

    def _leave(self, shard: int) -> None:
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

    def _counting(self, route: Route, shard: int) -> Route:
        """Returns the route whose requests are counted as under way in a shard.

        The shard stays here until they are answered. What may wait for messages has a
        task, and hears that the shard moves; all others begin without one. One that was
        on its way as the shard went is asked again: nothing is done for it.
        """
        begin = None
        if route.begin is not None and not route.waits:
            begin = partial(self._begun, route, shard)
        handle = partial(self._handled, route, shard)
        return attrs.evolve(route, handle=handle, begin=begin)

    def _begun(
        self, route: Route, shard: int, request: Request, on_reply: OnReply
    ) -> Begun:
        assert route.begin is not None
        is_inside = True
        self._enter_here(shard)

        def leave() -> None:
            nonlocal is_inside
            if is_inside:  # an outcome may be told twice
                is_inside = False
                self._leave(shard)

        def left(outcome: Reply | Exception) -> None:
            leave()
            on_reply(outcome)

        try:
            begun = route.begin(request, left)
        except BaseException:
            leave()
            raise
        if begun is None:
            return None  # it is told, mostly later
        if isinstance(begun, Reply):
            leave()
            return begun
        return self._awaited(begun, shard, leave)

    async def _awaited(
        self,
        begun: Stream | Coroutine[Any, Any, Answer],
        shard: int,
        leave: Callable[[], None],
    ) -> Answer:
        try:
            answer = begun if isinstance(begun, Stream) else await begun
            return self._in_pieces(answer, shard)
        finally:
            leave()

    async def _handled(self, route: Route, shard: int, request: Request) -> Answer:
        peer = cast(Peer, _PollingPeer(request.peer, self, shard))
        self._enter_here(shard)
        try:
            answer = await route.handle(msgspec.structs.replace(request, peer=peer))
            return self._in_pieces(answer, shard)
        finally:
            self._leave(shard)

    def _in_pieces(self, answer: Answer, shard: int) -> Answer:
        if isinstance(answer, Stream):
            pieces = self._counted_pieces(answer, shard)
            return attrs.evolve(answer, pieces=pieces)
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

    def set_when_gone(self, event: Settable | None) -> None:
        """Sets the event when the other end goes, or the shard moves."""
        self._peer.set_when_gone(event)
        self._uses.wait_here(self._shard, event, self._event)
        self._event = event
