"""A view of a shard for another server: taken at once, and read once that is asked."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from txaware.errors import NotAuthorized, ShardAway
from txaware.protocol.frames import SERVER
from txaware.server.cluster.remote_view import ViewRoutes
from txaware.service.transfer.backup_format import BackupReading, Chunks
from txaware.store.interfaces import View

ROWS = [(b"a", b"1"), (b"b", b"2")]


class OneView:
    """A table that counts its views, of which each has two rows."""

    def __init__(self) -> None:
        self.taken = self.closed = 0
        self.clock = SimpleNamespace(now_ms=lambda: 7)
        self.size_bytes = 4

    def view(self) -> View:
        self.taken += 1
        return self

    def pieces(self, _: int) -> Any:
        yield ROWS

    def part(self, _: bytes) -> float:
        return 1.0

    def close(self) -> None:
        self.closed += 1


class Told:
    """The other end of a connection, which tells that it goes."""

    def __init__(self) -> None:
        self.event: asyncio.Event | None = None

    def set_when_gone(self, event: asyncio.Event | None) -> None:
        self.event = event


async def in_slow_thread(act: Any, *args: Any) -> Any:
    return act(*args)


class Site:
    """The routes of a server that has shard 1, and how they are asked."""

    def __init__(self) -> None:
        self.table, self.peer = OneView(), Told()
        copies = SimpleNamespace(rows=lambda _: self.table)
        membership: Any = SimpleNamespace(copies=copies, has=lambda shard: shard == 1)
        context: Any = SimpleNamespace(in_slow_thread=in_slow_thread)
        self._routes = ViewRoutes(context, membership).routes()

    async def ask(
        self, which: int, shard: int, name: str, *, sealed: bool = True
    ) -> Any:
        request: Any = SimpleNamespace(
            headers={SERVER: "sealed"} if sealed else {},
            body=msgspec.msgpack.encode([shard, name]),
            peer=self.peer,
        )
        return await self._routes[which].handle(request)


VIEW, READ = 0, 1


def test_it_is_taken_at_once_and_read_once_that_is_asked() -> None:
    async def lived() -> None:
        site = Site()
        stream = await site.ask(VIEW, 1, "mine")
        assert site.table.taken == 1
        pieces = aiter(stream.pieces)
        found = [await anext(pieces)]
        rest = asyncio.ensure_future(anext(pieces))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not rest.done()
        with pytest.raises(ShardAway):
            await site.ask(READ, 1, "another's")
        assert not rest.done()
        await site.ask(READ, 1, "mine")
        found += [await rest, *[piece async for piece in pieces]]
        reading = BackupReading(Chunks(found))
        assert [*reading.pieces()] == [ROWS]
        assert site.table.closed == 1

    asyncio.run(lived())


def test_it_ends_with_the_server_that_asked() -> None:
    async def lived() -> None:
        site = Site()
        pieces = aiter((await site.ask(VIEW, 1, "mine")).pieces)
        await anext(pieces)
        rest = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        assert site.peer.event is not None
        site.peer.event.set()
        await rest

    asyncio.run(lived())


def test_strangers_and_other_shards_are_refused() -> None:
    async def lived() -> None:
        site = Site()
        with pytest.raises(ShardAway, match="shard 2 is not at this server"):
            await site.ask(VIEW, 2, "mine")
        for which in (VIEW, READ):
            with pytest.raises(NotAuthorized):
                await site.ask(which, 1, "mine", sealed=False)
        assert site.table.taken == 0

    asyncio.run(lived())
