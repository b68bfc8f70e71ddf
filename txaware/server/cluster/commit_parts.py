"""Parts of a commit that home writes to the shards of other servers."""

from contextlib import nullcontext

import msgspec

from coordinator.optional_ports import AdmitsElsewhere, AdmitsSent
from coordinator.remote.remote_barrier import entered_by_the_server
from txaware.client.calls.call import Call, reading
from txaware.model.requests import Payloads
from txaware.protocol.formats import MSGPACK, PublishRequest, encode_publish
from txaware.protocol.rights import operator
from txaware.protocol.verb import Repeat
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.sealed_calls import (
    SealedCalls,
    moved,
    require_server,
    until_there,
)
from txaware.server.exchange import Reply, Request
from txaware.server.routing import Route
from txaware.server.server_context import ServerContext
from txaware.server.write_entries import WriteEntries
from txaware.service.local import LocalService

PARTS_PATH = "/v1/cluster/parts"


class SentPart(msgspec.Struct, array_like=True):
    """Messages for a partition of a shard, and what their write joins with."""

    shard: int
    partition: str
    request: bytes
    since: str
    ticket: str


class WrittenPart(msgspec.Struct, array_like=True):
    """The answer: what the next part joins with."""

    ticket: str


_encode = msgspec.msgpack.Encoder().encode
_sent = msgspec.msgpack.Decoder(SentPart).decode
_written = reading(msgspec.msgpack.Decoder(WrittenPart).decode)


def parts_route(server_context: ServerContext, membership: ClusterPart) -> Route:
    """Returns the route at which the owner of a shard writes a part for home."""
    service, coordinator = server_context.service, server_context.coordinator
    admission = (
        coordinator.admission if isinstance(coordinator, AdmitsElsewhere) else None
    )

    def write(sent: SentPart) -> None:
        publish_request = MSGPACK.publish_request(sent.request)
        with entered_by_the_server(sent.since, sent.ticket):
            service.publish(
                sent.partition,
                publish_request.messages,
                transaction=publish_request.pointer,
            )

    async def take(request: Request) -> Reply:
        require_server(request.headers)
        sent, uses = _sent(request.body), membership.uses
        with nullcontext() if uses is None else uses.using(sent.shard):
            if not membership.has(sent.shard):
                return moved(f"shard {sent.shard}")
            await server_context.in_thread(write, sent)
        ticket = ""
        if isinstance(admission, AdmitsSent):
            ticket = admission.ticket_for(sent.since)
        return Reply(200, _encode(WrittenPart(ticket)))

    return Route("POST", PARTS_PATH, take, operator)


class CommitParts:
    """Publishes the parts of commits that this server, which has home, drives.

    It enters its own barrier for a part and persists the start, so that the owner has
    not to ask for that.
    """

    def __init__(
        self,
        service: LocalService,
        calls: SealedCalls,
        entries: WriteEntries,
        *,
        wait_s: float = 0.0,
    ) -> None:
        self._service, self._calls, self._entries = service, calls, entries
        self._wait_s = wait_s
        self._tickets: dict[int, str] = {}

    def publish(self, shard: int, name: str, payloads: Payloads, pointer: int) -> None:
        """Publishes in a transaction to a shard, which may be at this server too.

        A shard that nobody has, as it moves, is waited for.
        """

        def publish() -> None:
            with self._calls.using(shard) as is_here:
                if is_here:
                    self._service.publish(name, payloads, transaction=pointer)
                else:
                    self._send(shard, name, payloads, pointer)

        until_there(publish, wait_s=self._wait_s)

    def _send(self, shard: int, name: str, payloads: Payloads, pointer: int) -> None:
        request = encode_publish(PublishRequest(pointer, payloads))
        with self._entries.sending(shard, pointer) as since:
            ticket = self._tickets.get(shard, "")
            sent = SentPart(shard, name, request, since, ticket)
            call = Call(
                "POST",
                PARTS_PATH,
                _written,
                _encode(sent),
                content_type=b"application/octet-stream",
                repeat=Repeat.NEVER,
            )
            written: WrittenPart = self._calls.perform(shard, call)
        self._tickets[shard] = written.ticket
