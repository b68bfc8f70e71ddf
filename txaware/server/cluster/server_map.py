"""The map of a cluster: its servers, and which of them has each shard."""

from collections.abc import Iterable
from typing import Any

import msgspec

from txaware.errors import BadRequest
from txaware.model.shards import ALONE, HOME


class ServerEntry(msgspec.Struct, frozen=True):
    """A server: the address of all of them together, and its own."""

    id: str
    url: str
    own: str


class ShardEntry(msgspec.Struct, frozen=True):
    """A shard, and the id of the server that has it; None while nobody does."""

    number: int
    server: str | None


class ServerMap(msgspec.Struct, frozen=True):
    """The servers and the shards as they are now; a later map has a greater epoch.

    `instance` names this life of the servers, and changes when one of them ends: what
    that one did last is not known to the others. `facts` are what home tells a client
    of itself, for servers that are asked while it is away.
    """

    epoch: int
    instance: str
    servers: tuple[ServerEntry, ...]
    shards: tuple[ShardEntry, ...]
    facts: dict[str, Any] = {}

    def owner(self, shard: int) -> ServerEntry | None:
        """Returns the server that has a shard; None while nobody does."""
        for one in self.shards:
            if one.number == shard:
                return self.server(one.server)
        return None

    def has_shards(self, own: str) -> bool:
        """Tells whether the server at that own address has any shard."""
        holders = {one.server for one in self.shards}
        return any(one.own == own and one.id in holders for one in self.servers)

    def server(self, server_id: str | None) -> ServerEntry | None:
        """Returns a server by its id."""
        return next((one for one in self.servers if one.id == server_id), None)

    @property
    def home(self) -> ServerEntry | None:
        """The server that has the coordinator, and all that is no message."""
        return self.owner(HOME)

    def shown(self) -> dict[str, Any]:
        """Returns what `GET /v1/servers` answers."""
        return {
            "epoch": self.epoch,
            "servers": [
                {"id": one.id, "url": one.url, "own": one.own} for one in self.servers
            ],
            "shards": [
                {"number": one.number, "server": one.server} for one in self.shards
            ],
        }


def alone(url: str, instance: str, shards: Iterable[int]) -> ServerMap:
    """Returns the map of a server that has all there is."""
    only = ServerEntry(ALONE, url, url)
    entries = tuple(ShardEntry(number, only.id) for number in shards)
    return ServerMap(1, instance, (only,), entries)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ServerMap).decode


def written(server_map: ServerMap) -> bytes:
    """Returns a map as one line."""
    return _encode(server_map)


def read(data: bytes) -> ServerMap:
    """Reads a map."""
    try:
        return _decode(data)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"that is no map of servers: {error}") from error
