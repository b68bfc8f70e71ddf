"""All rows of a shard at another server, as they are at one moment, for a backup."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import attrs
import msgspec

from txaware.client.calls.call import Call, done
from txaware.errors import ShardAway, Unavailable
from txaware.model.interfaces import Row
from txaware.protocol.rights import operator
from txaware.protocol.verb import Repeat
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.sealed_calls import SealedCalls, require_server
from txaware.server.exchange import DONE, Peer, Reply, Request, Stream
from txaware.server.routes.operator import streamed
from txaware.server.routing import Route
from txaware.server.server_context import ServerContext
from txaware.service.transfer.backup import backup_chunks
from txaware.service.transfer.backup_format import BackupReading, Chunks

VIEW_PATH, READ_PATH = "/v1/cluster/view", "/v1/cluster/view/read"


class ViewRequest(msgspec.Struct, array_like=True):
    """A view of a shard's rows; `name` is what its reader calls it."""

    shard: int
    name: str


_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(ViewRequest).decode


class ViewRoutes:
    """The routes at which a server gives all rows of a shard to another one.

    They come as the bytes of a backup. The view is taken at once, and read once that is
    asked for: an answer that nobody takes for long would be cut. It ends with the
    answer, so that it does not outlive the server that asked.
    """

    def __init__(self, server_context: ServerContext, membership: ClusterPart) -> None:
        self._server_context = server_context
        self._membership = membership
        self._waiting: dict[str, asyncio.Event] = {}

    def routes(self) -> list[Route]:
        """Returns the routes."""
        return [
            Route("POST", VIEW_PATH, self._view, operator, harmless=True),
            Route("POST", READ_PATH, self._read, operator, harmless=True),
        ]

    async def _view(self, request: Request) -> Stream:
        require_server(request.headers)
        view_request, copies = _decode_request(request.body), self._membership.copies
        if copies is None or not self._membership.has(view_request.shard):
            raise ShardAway(f"shard {view_request.shard} is not at this server")
        table = copies.rows(view_request.shard)
        chunks = await self._server_context.in_slow_thread(backup_chunks, table)
        stream = streamed(self._server_context, chunks)
        pieces = self._once_asked(view_request.name, request.peer, stream.pieces)
        return attrs.evolve(stream, pieces=pieces)

    async def _once_asked(
        self, name: str, peer: Peer, pieces: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        """Yields the beginning, and all else once it is asked for."""
        is_asked = self._waiting[name] = asyncio.Event()
        peer.set_when_gone(is_asked)
        try:
            yield await anext(pieces)
            await is_asked.wait()
        finally:
            peer.set_when_gone(None)
            del self._waiting[name]
        async for piece in pieces:
            yield piece

    async def _read(self, request: Request) -> Reply:
        require_server(request.headers)
        view_request = _decode_request(request.body)
        waiting = self._waiting.get(view_request.name)
        if waiting is None:
            raise ShardAway(
                f"shard {view_request.shard} has no such view at this server"
            )
        waiting.set()
        return DONE


class RemoteView:
    """A `View` of a shard's rows at its owner, taken as this is made; read once."""

    def __init__(self, shard: int, calls: SealedCalls) -> None:
        self._calls = calls
        self._view_request = ViewRequest(shard, secrets.token_hex(8))
        self._chunks = calls.stream(shard, self._call(VIEW_PATH))
        with self._away():
            self._reading = BackupReading(Chunks(self._chunks))
        self.size_bytes: int = self._reading.about["about_bytes"]

    def _call(self, path: str) -> Call[None]:
        return Call(
            "POST",
            path,
            done,
            _encode(self._view_request),
            content_type=b"application/octet-stream",
            accept=b"application/octet-stream",
            repeat=Repeat.NEVER,
        )

    def pieces(self, _: int) -> Iterator[list[Row]]:
        """Reads all rows in order, in the pieces that the owner makes."""
        with self._away():
            self._calls.perform(self._view_request.shard, self._call(READ_PATH))
            yield from self._reading.pieces()

    def part(self, _: bytes) -> float:
        """Returns about which part of all rows has been read."""
        return self._reading.part

    def close(self) -> None:
        """Ends the view; the owner hears of it, where not all was read."""
        self._chunks.close()

    @contextmanager
    def _away(self) -> Iterator[None]:
        try:
            yield
        except ShardAway:
            raise
        except Unavailable as error:
            raise ShardAway(
                f"shard {self._view_request.shard} is away just now: {error}"
            ) from error
