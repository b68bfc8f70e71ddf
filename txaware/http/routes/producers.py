"""Routes of producers: they open, publish once, and operators see them."""

from functools import partial

from txaware.errors import NotAuthorized, Unavailable
from txaware.http.routes.messages import begun_at_topic
from txaware.http.routes.topics import TOPIC
from txaware.http.server.exchange import DONE, JSON, Reply, Request
from txaware.http.server.routing import Begun, Route, Told, in_a_task
from txaware.http.server.server_context import ServerContext
from txaware.http.wire import Format
from txaware.http.wire.publish_once import OnceRequest, read_once, write_ids
from txaware.model.messages import MessageId
from txaware.model.producers import MAX_PRODUCER_ID
from txaware.protocol.fields import TEXT, Body, Field, plain
from txaware.protocol.rights import (
    anybody,
    monitor,
    on_topic,
    with_transactional_id,
)
from txaware.protocol.values import read_json, to_json
from txaware.service.topic_handles import TopicHandle

PRODUCERS = "/v1/producers"
PRODUCER = PRODUCERS + "/{producer}"
FORGET_PRODUCER = PRODUCERS + "/forget"
PUBLISH_ONCE = TOPIC + "/publish-once"

OPENS = Body("the body", (Field("transactionalId", TEXT.or_null(), default=None),))
NAMED_PRODUCER = Body("the body", (Field("producerId", plain(0, MAX_PRODUCER_ID)),))


class ProducerRoutes:
    """Routes of producers.

    An id belongs to the principal that opened it, and that of a transactional id to all
    that may use the name.
    """

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._producing = server_context.service.producing

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        return [
            Route(
                "POST",
                PUBLISH_ONCE,
                in_a_task(self._publish),
                on_topic("publish"),
                begin=self._publish,
            ),
            Route("POST", PRODUCERS, self._open, anybody, keyed=True),
            Route("GET", PRODUCERS, self._list, monitor),
            Route("POST", FORGET_PRODUCER, self._forget, anybody, keyed=True),
            Route("GET", PRODUCER, self._describe, monitor),
        ]

    def _publish(self, request: Request, told: Told) -> Begun:
        return begun_at_topic(
            self._server_context,
            request,
            told,
            large=self._publish_large,
            here=self._publish_here,
        )

    def _publish_here(
        self, place: TopicHandle, format_: Format, request: Request, told: Told
    ) -> Begun:
        asked = read_once(request.body, format_)

        def answered(error: Unavailable | None) -> None:
            told(_reply(asked, ids or [], format_) if error is None else error)

        ids = self._producing.publish_soon(
            place,
            asked.messages,
            producer=asked.producer,
            sequence=asked.sequence,
            caller=request.principal,
            then=partial(self._server_context.outcomes.tell, answered),
        )
        if ids is None:
            return self._server_context.in_thread(
                self._publish_asked, request, format_, asked
            )
        return None

    def _publish_large(self, request: Request, format_: Format) -> Reply:
        return self._publish_asked(request, format_, read_once(request.body, format_))

    def _publish_asked(
        self, request: Request, format_: Format, asked: OnceRequest
    ) -> Reply:
        ids = self._producing.publish_once(
            request.topic,
            asked.messages,
            producer=asked.producer,
            sequence=asked.sequence,
            caller=request.principal,
        )
        return _reply(asked, ids, format_)

    async def _open(self, request: Request) -> Reply:
        request.query()
        principal = request.principal
        name = OPENS.read(read_json(request.body or b"{}"))["transactionalId"]
        if name is not None:
            with_transactional_id(principal, {"transactional_id": name})
        opened = await self._server_context.in_coordinator_thread(
            self._producing.open_producer, name, owner=principal.name
        )
        return Reply(200, to_json(opened), JSON)

    async def _list(self, request: Request) -> Reply:
        request.query()
        found = await self._server_context.in_thread(self._producing.producers)
        return Reply(200, to_json(found), JSON)

    async def _describe(self, request: Request) -> Reply:
        request.query()
        producer_id = int(request.params["producer"])
        found = await self._server_context.in_thread(
            self._producing.describe_producer, producer_id
        )
        return Reply(200, to_json(found), JSON)

    async def _forget(self, request: Request) -> Reply:
        request.query()
        producer_id = NAMED_PRODUCER.read(read_json(request.body))["producerId"]
        await self._server_context.in_thread(self._forget_own, request, producer_id)
        return DONE

    def _forget_own(self, request: Request, producer_id: int) -> None:
        principal = request.principal
        found = self._producing.describe_producer(producer_id)
        if found.transactional_id is not None and not principal.is_operator:
            named = {"transactional_id": found.transactional_id}
            with_transactional_id(principal, named)
        elif found.owner != principal.name and not principal.is_operator:
            raise NotAuthorized(
                f"{principal.name} may not forget producer {producer_id}: somebody "
                f"else opened it"
            )
        self._producing.forget_producer(producer_id)


def _reply(asked: OnceRequest, ids: list[MessageId], format_: Format) -> Reply:
    if asked.producer.by_client:  # whose plain publish returns no ids
        return DONE
    return Reply(200, write_ids(ids, format_), format_.media_type)
