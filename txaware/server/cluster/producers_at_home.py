"""Producers that were opened at home, and publish to a shard at another server."""

from functools import partial

import msgspec

from txaware.client.calls.call import Call, reading
from txaware.model.shards import HOME
from txaware.protocol.rights import operator
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.sealed_calls import SealedCalls, moved, require_server
from txaware.server.exchange import Reply, Request
from txaware.server.routing import Route
from txaware.server.server_context import ServerContext
from txaware.service.producers.producer_ids import ProducerIds
from txaware.store.producer_table import ProducerRow

PRODUCER_PATH = "/v1/cluster/producers/{producer}"


class SentProducer(msgspec.Struct, array_like=True):
    """A producer as home knows it."""

    epoch: int
    owner: str | None
    opened_ms: int
    has_ended: bool
    transactional_id: str | None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SentProducer | None).decode


def producer_route(server_context: ServerContext, membership: ClusterPart) -> Route:
    """Returns the route at which home tells of a producer; nothing for none.

    A server that was home, or is about to be, knows of none that others opened. One
    that hung meanwhile may take itself for home still: so it looks whether it is.
    """
    ids = server_context.service.producing.ids

    def found(producer_id: int) -> ProducerRow | None:
        row = ids.find(producer_id)
        ids.look_owned()
        return row

    async def describe(request: Request) -> Reply:
        require_server(request.headers)
        if not membership.is_home:
            return moved(f"shard {HOME}")
        producer_id = int(request.params["producer"])
        row = await server_context.in_thread(found, producer_id)
        sent = None if row is None or row.by_client else _sent(row)
        return Reply(200, _encode(sent))

    return Route("GET", PRODUCER_PATH, describe, operator)


def _sent(row: ProducerRow) -> SentProducer:
    return SentProducer(
        row.epoch, row.owner, row.opened_ms, row.has_ended, row.transactional_id
    )


def ask_home(ids: ProducerIds, calls: SealedCalls) -> None:
    """Has home be asked for the producers that are opened there."""

    def found(producer_id: int) -> ProducerRow | None:
        path = PRODUCER_PATH.format(producer=producer_id)
        return calls.perform(HOME, Call("GET", path, partial(_read, producer_id)))

    def _read(producer_id: int, answer: object) -> ProducerRow | None:
        sent: SentProducer | None = _read_sent(answer)  # type: ignore[arg-type]
        if sent is None:
            return None
        return ProducerRow(
            producer_id,
            sent.epoch,
            sent.owner,
            sent.opened_ms,
            has_ended=sent.has_ended,
            transactional_id=sent.transactional_id,
        )

    ids.ask_home = found


_read_sent = reading(_decode)
