"""Routes of producers: they open, publish once, and operators see them."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from txaware.errors import NotAuthorized, Unavailable
from txaware.model.messages import MessageId
from txaware.model.partitions import partition_needed
from txaware.model.producers import ProducerOpened
from txaware.protocol.formats import Format, OnceRequest, format_of
from txaware.protocol.formats.publish_once import read_once, write_ids
from txaware.protocol.producers import FORGET_PRODUCER, OPEN_PRODUCER
from txaware.protocol.rights import (
    on_topic,
    with_transactional_id,
)
from txaware.protocol.topics import TOPIC
from txaware.protocol.verb import Verb
from txaware.server.exchange import DONE, Reply, Request
from txaware.server.routes.messages import QUICK_BYTES, begun_once_found
from txaware.server.routing import Begun, FutureOutcome, Route, Told, in_a_task
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import Act
from txaware.service.producers.pipelines import Pipelines, SenderRequest
from txaware.service.topic_handles import PartitionedTopic, Place, TopicHandle

PUBLISH_ONCE = TOPIC + "/publish-once"


def _open(
    server_context: ServerContext, request: Request, asked: Any
) -> ProducerOpened:
    """Opens a producer of the caller, who has to have the right to its name."""
    principal, name = request.principal, asked.transactional_id
    if name is not None:
        with_transactional_id(principal, {"transactional_id": name})
    producing = server_context.service.producing
    return producing.open_producer(name, owner=principal.name)


def _forget(server_context: ServerContext, request: Request, asked: Any) -> None:
    principal, producer_id = request.principal, asked.producer_id
    producing = server_context.service.producing
    found = producing.describe_producer(producer_id)
    if found.transactional_id is not None and not principal.is_operator:
        named = {"transactional_id": found.transactional_id}
        with_transactional_id(principal, named)
    elif found.owner != principal.name and not principal.is_operator:
        raise NotAuthorized(
            f"{principal.name} may not forget producer {producer_id}: somebody "
            f"else opened it"
        )
    producing.forget_producer(producer_id)


ACTS: dict[Verb[..., Any], Act] = {OPEN_PRODUCER: _open, FORGET_PRODUCER: _forget}


class ProducerRoutes:
    """Routes of producers.

    An id belongs to the principal that opened it, and that of a transactional id to all
    that may use the name.
    """

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._producing = server_context.service.producing
        self._pipelines = Pipelines(
            self._producing, server_context.outcomes.tell, self._elsewhere
        )
        self._tasks: set[asyncio.Task[None]] = set()
        # By partition, the last of those whose bodies are read.
        self._reading: dict[str, asyncio.Event] = {}

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
        ]

    def _publish(self, request: Request, told: Told) -> Begun:
        is_large = len(request.body) > QUICK_BYTES
        if is_large or request.topic in self._reading:
            return self._read_in_turn(request, is_large=is_large)
        return begun_once_found(self._server_context, request, told, self._publish_here)

    def _read_in_turn(
        self, request: Request, *, is_large: bool
    ) -> Coroutine[Any, Any, Reply]:
        """Has a thread read a large body; those to one partition keep their order."""
        format_ = format_of(request.content_type)
        read = partial(read_once, request.body, format_)
        before = self._reading.get(request.topic)
        turn = self._reading[request.topic] = asyncio.Event()
        in_thread = self._server_context.in_thread

        async def publish() -> Reply:
            told = FutureOutcome[Reply]()
            try:
                asked = await in_thread(read) if is_large else read()
                if before is not None:
                    await before.wait()
                if asked.producer.is_sender:
                    place = await self._server_context.place(request.topic)
                    if isinstance(place, PartitionedTopic):
                        raise partition_needed(place.topic)
                    self._publish_in_order(place, format_, request, asked, told)
            finally:
                turn.set()
                if self._reading.get(request.topic) is turn:
                    del self._reading[request.topic]
            if asked.producer.is_sender:
                return await told.future
            return await in_thread(self._publish_asked, request, format_, asked)

        return publish()

    def _publish_here(
        self, place: Place, format_: Format, request: Request, told: Told
    ) -> Begun:
        if isinstance(place, PartitionedTopic):
            raise partition_needed(place.topic)
        asked = read_once(request.body, format_)
        if asked.producer.is_sender:
            self._publish_in_order(place, format_, request, asked, told)
            return None

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

    def _publish_in_order(
        self,
        place: TopicHandle,
        format_: Format,
        request: Request,
        asked: OnceRequest,
        told: Told,
    ) -> None:
        def answered(outcome: list[MessageId] | Exception) -> None:
            if isinstance(outcome, Exception):
                told(outcome)
            else:
                told(_reply(asked, outcome, format_))

        self._pipelines.publish(
            SenderRequest(
                request.topic,
                place,
                asked.messages,
                asked.producer,
                asked.sequence,
                answered,
                request.principal,
            )
        )

    def _elsewhere(
        self,
        publish: Callable[[], list[MessageId]],
        told: Callable[[list[MessageId] | Exception], None],
    ) -> None:
        """Has a thread do what may wait for a disk, or raises."""

        async def published() -> None:
            try:
                outcome: (
                    list[MessageId] | Exception
                ) = await self._server_context.in_thread(publish)
            except Exception as error:
                outcome = error
            told(outcome)

        task = asyncio.ensure_future(published())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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


def _reply(asked: OnceRequest, ids: list[MessageId], format_: Format) -> Reply:
    if asked.producer.is_sender:  # which counts on from the first
        return Reply(200, write_ids(ids[:1], format_), format_.media_type)
    if asked.producer.by_client:  # whose plain publish returns no ids
        return DONE
    return Reply(200, write_ids(ids, format_), format_.media_type)
