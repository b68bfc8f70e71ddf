"""The rows of a shard at another server, for what looks at those of all."""

from typing import Any, NoReturn, TypeVar

import msgspec

from txaware.client.calls.call import Call, reading
from txaware.errors import ShardAway
from txaware.model.clock import StoreClock, system_clock_ms
from txaware.model.interfaces import Emptiness, OrderedTable, Row
from txaware.protocol.rights import operator
from txaware.protocol.verb import Repeat
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.remote_view import RemoteView
from txaware.server.cluster.sealed_calls import SealedCalls, require_server
from txaware.server.exchange import Reply, Request
from txaware.server.routing import Route
from txaware.server.server_context import ServerContext

ROWS_PATH = "/v1/cluster/rows"
_AHEAD_MS = 1 << 62

T = TypeVar("T")


class RowsRequest(msgspec.Struct, array_like=True):
    """The rows to read of a shard: one by its `key`, or a range, or a range's size."""

    shard: int
    key: bytes | None = None
    prefix: bytes = b""
    start: bytes = b""
    stop: bytes | None = None
    limit: int = 1000
    max_bytes: int = 1 << 20
    reverse: bool = False
    is_size: bool = False

    def read(self, table: OrderedTable) -> Any:
        """Returns what is asked for."""
        if self.key is not None:
            return table.get(self.key)
        if self.is_size:
            assert self.stop is not None
            return table.size_bytes(self.start, self.stop)
        return table.scan(
            self.prefix,
            start=self.start,
            stop=self.stop,
            limit=self.limit,
            max_bytes=self.max_bytes,
            reverse=self.reverse,
        )


_encode = msgspec.msgpack.Encoder().encode
_decode_request = msgspec.msgpack.Decoder(RowsRequest).decode
_value = reading(msgspec.msgpack.Decoder(bytes | None).decode)
_size = reading(msgspec.msgpack.Decoder(int).decode)
_rows = reading(msgspec.msgpack.Decoder(list[tuple[bytes, bytes]]).decode)


def rows_route(server_context: ServerContext, membership: ClusterPart) -> Route:
    """Returns the route at which a server reads rows for another one."""

    async def read(request: Request) -> Reply:
        require_server(request.headers)
        rows_request = _decode_request(request.body)
        copies = membership.copies
        if copies is None or not membership.has(rows_request.shard):
            raise ShardAway(f"shard {rows_request.shard} is not at this server")
        table = copies.rows(rows_request.shard)
        found = await server_context.in_monitor_thread(rows_request.read, table)
        return Reply(200, _encode(found))

    return Route("POST", ROWS_PATH, read, operator, harmless=True)


class RemoteRows:
    """Reads the rows of a shard that is elsewhere; only its owner writes there."""

    reads_wait = True
    has_batches = True  # perhaps: who reads looks

    def __init__(self, shard: int, calls: SealedCalls) -> None:
        self._shard = shard
        self._calls = calls

    def get(self, key: bytes) -> bytes | None:
        """Returns the value of a key; None if it has none."""
        found: bytes | None = self._ask(RowsRequest(self._shard, key), _value)
        return found

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
        """Reads the rows whose key begins with `prefix`, in order, without that."""
        rows_request = RowsRequest(
            *(self._shard, None, prefix, start, stop),
            *(limit, max_bytes, reverse),
        )
        return list(self._ask(rows_request, _rows))

    def size_bytes(self, start: bytes, stop: bytes) -> int:
        """Returns about the size of a range."""
        rows_request = RowsRequest(self._shard, start=start, stop=stop, is_size=True)
        found: int = self._ask(rows_request, _size)
        return found

    def outline(self, _: bytes) -> Emptiness | None:
        """Returns None: a look into each topic tells more."""
        return None

    def _ask(self, rows_request: RowsRequest, read: Any) -> Any:
        call = Call(
            "POST",
            ROWS_PATH,
            read,
            _encode(rows_request),
            content_type=b"application/octet-stream",
            repeat=Repeat.HARMLESS,
        )
        return self._calls.perform(self._shard, call)

    def view(self) -> RemoteView:
        """Returns a view of the rows on disk there now."""
        return RemoteView(self._shard, self._calls)

    def status(self) -> str:
        """Returns `"OK"`: its own server tells how it is."""
        return "OK"

    def close(self) -> None:
        """Does nothing: the rows are another server's."""

    def _written(self, *_: object, **__: object) -> NoReturn:
        raise ShardAway(
            f"shard {self._shard} is not at this server now, and is not written to "
            f"here; ask again"
        )

    submit = hand_over = hold = replace_held = compare_and_set = compact = _written
    reserve_time = newest_format = partitioned_format = sharded_format = _written
    packed_format = _written

    @property
    def clock(self) -> StoreClock:
        """A clock that is ahead: no row there is newer than what may be read."""
        return StoreClock(system_clock_ms, _AHEAD_MS)
