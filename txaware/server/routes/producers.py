"""Producers: they open, publish once, and are forgotten."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from txaware.errors import NotAuthorized, Unavailable
from txaware.model.messages import MessageId
from txaware.model.partitions import partition_needed
from txaware.model.producers import ProducerOpened
from txaware.protocol.producers import FORGET_PRODUCER, OPEN_PRODUCER
from txaware.protocol.publishes import PUBLISH_ONCE, PublishOnce
from txaware.protocol.rights import with_transactional_id
from txaware.protocol.shape import Unread
from txaware.protocol.verb import Verb
from txaware.server.exchange import Request
from txaware.server.routes.messages import begun_once_found
from txaware.server.routing import FutureOutcome
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import (
    LATER,
    QUICK_BYTES,
    Act,
    Caller,
    OnOutcome,
)
from txaware.service.producers.pipelines import Pipelines, SenderRequest
from txaware.service.topic_handles import PartitionedTopic, Place, TopicHandle


def _open(
    server_context: ServerContext, request: Request, arguments: Any
) -> ProducerOpened:
    """Opens a producer of the caller, who has to have the right to its name."""
    principal, name = request.principal, arguments.transactional_id
    if name is not None:
        with_transactional_id(principal, {"transactional_id": name})
    producing = server_context.service.producing
    return producing.open_producer(name, owner=principal.name)


def _forget(server_context: ServerContext, request: Request, arguments: Any) -> None:
    principal, producer_id = request.principal, arguments.producer_id
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


class PublishesOnce:
    """Publishes of producers, begun in the event loop.

    An id belongs to the principal that opened it, and that of a transactional id to all
    that may use the name.
    """

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._producing = server_context.service.producing
        self._pipelines = Pipelines(
            self._producing, server_context.outcomes.post, self._run_in_thread
        )
        self._tasks: set[asyncio.Task[None]] = set()
        # By partition, the last of those whose bodies are read.
        self._reading: dict[str, asyncio.Event] = {}

    def soon(
        self,
        context: ServerContext,
        caller: Caller,
        unread: Unread,
        on_outcome: OnOutcome,
    ) -> Any:
        """Publishes what is small; a large one has its body read in its turn."""
        is_large = len(unread.body) > QUICK_BYTES
        if is_large or unread.topic in self._reading:
            return self._read_in_turn(caller, unread, is_large=is_large)
        return begun_once_found(context, caller, unread, on_outcome, self._publish_here)

    def _read_in_turn(
        self, caller: Caller, unread: Unread, *, is_large: bool
    ) -> Coroutine[Any, Any, list[MessageId]]:
        """Has a thread read a large body; those to one partition keep their order."""
        topic = unread.topic
        before = self._reading.get(topic)
        turn = self._reading[topic] = asyncio.Event()
        context = self._server_context

        async def publish() -> list[MessageId]:
            outcome = FutureOutcome[list[MessageId]]()
            try:
                read = unread.read
                arguments: PublishOnce = (
                    await context.in_thread(read) if is_large else read()
                )
                if before is not None:
                    await before.wait()
                if arguments.producer.is_sender:
                    place = await context.place(topic)
                    if isinstance(place, PartitionedTopic):
                        raise partition_needed(place.topic)
                    self._publish_in_order(place, caller, arguments, outcome)
            finally:
                turn.set()
                if self._reading.get(topic) is turn:
                    del self._reading[topic]
            if arguments.producer.is_sender:
                return await outcome.future
            return await context.in_thread(_publish_once, context, caller, arguments)

        return publish()

    def _publish_here(
        self,
        context: ServerContext,
        place: Place,
        caller: Caller,
        unread: Unread,
        on_outcome: OnOutcome,
    ) -> Any:
        if isinstance(place, PartitionedTopic):
            raise partition_needed(place.topic)
        arguments: PublishOnce = unread.read()
        if arguments.producer.is_sender:
            self._publish_in_order(place, caller, arguments, on_outcome)
            return LATER

        def answered(error: Unavailable | None) -> None:
            on_outcome(_ids_to_answer(arguments, ids or []) if error is None else error)

        ids = self._producing.publish_soon(
            place,
            arguments.messages,
            producer=arguments.producer,
            sequence=arguments.sequence,
            caller=caller.principal,
            on_written=partial(context.outcomes.post, answered),
        )
        if ids is None:
            return context.in_thread(_publish_once, context, caller, arguments)
        return LATER

    def _publish_in_order(
        self,
        place: TopicHandle,
        caller: Caller,
        arguments: PublishOnce,
        on_outcome: OnOutcome,
    ) -> None:
        def answered(outcome: list[MessageId] | Exception) -> None:
            if isinstance(outcome, Exception):
                on_outcome(outcome)
            else:
                on_outcome(_ids_to_answer(arguments, outcome))

        self._pipelines.publish(
            SenderRequest(
                arguments.topic,
                place,
                arguments.messages,
                arguments.producer,
                arguments.sequence,
                answered,
                caller.principal,
            )
        )

    def _run_in_thread(
        self,
        publish: Callable[[], list[MessageId]],
        on_outcome: Callable[[list[MessageId] | Exception], None],
    ) -> None:
        """Has a thread do what may wait for a disk, or raises."""

        async def published() -> None:
            try:
                outcome: (
                    list[MessageId] | Exception
                ) = await self._server_context.in_thread(publish)
            except Exception as error:
                outcome = error
            on_outcome(outcome)

        task = asyncio.ensure_future(published())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _publish_once(
    server_context: ServerContext, caller: Caller, arguments: PublishOnce
) -> list[MessageId]:
    ids = server_context.service.producing.publish_once(
        **PUBLISH_ONCE.shape.options(arguments), caller=caller.principal
    )
    return _ids_to_answer(arguments, ids)


def _ids_to_answer(arguments: PublishOnce, ids: list[MessageId]) -> list[MessageId]:
    """Returns the ids that a producer is told of."""
    if arguments.producer.is_sender:  # which counts on from the first
        return ids[:1]
    # A plain publish returns none.
    return [] if arguments.producer.by_client else ids


ACTS: dict[Verb[..., Any], Act] = {
    OPEN_PRODUCER: _open,
    FORGET_PRODUCER: _forget,
    PUBLISH_ONCE: _publish_once,
}
