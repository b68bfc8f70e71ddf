"""Publishes: what the event loop begins of them, and keys that outlive a server."""

from functools import partial
from hashlib import sha256
from typing import Any

from txaware.errors import BadRequest
from txaware.model.messages import PublishResponse
from txaware.model.producers import ProducerIdentity
from txaware.model.queues import pipe_of
from txaware.model.requests import checked_pointer
from txaware.protocol.publishes import PUBLISH, Publish
from txaware.protocol.shape import Unread
from txaware.protocol.verb import Verb
from txaware.server.idempotency import KEY
from txaware.server.routing import FutureOutcome
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import (
    LATER,
    QUICK_BYTES,
    Act,
    Caller,
    OnOutcome,
    Soon,
    read,
)
from txaware.service.topic_handles import Place
from txaware.service.wakeups import WouldWait


def begun_once_found(
    server_context: ServerContext,
    caller: Caller,
    unread: Unread,
    on_outcome: OnOutcome,
    begin_there: Any,
) -> Any:
    """Begins a publish, by `begin_there`, once its topic is known.

    Finding the topic may have to wait for a network; then it has a task.
    """
    place = server_context.service.found_at_once(unread.topic)
    if place is not None:
        return begin_there(server_context, place, caller, unread, on_outcome)

    async def find_and_begin() -> Any:
        found = await server_context.place(unread.topic)
        later = FutureOutcome[Any]()
        begun = begin_there(server_context, found, caller, unread, later)
        return await (later.future if begun is LATER else begun)

    return find_and_begin()


def _soon(
    server_context: ServerContext, caller: Caller, unread: Unread, on_outcome: OnOutcome
) -> Any:
    """Publishes for the event loop, so that many connections share one batch."""
    if len(unread.body) > QUICK_BYTES:
        raise WouldWait
    return begun_once_found(server_context, caller, unread, on_outcome, _publish_here)


def _publish_here(
    server_context: ServerContext,
    place: Place,
    caller: Caller,
    unread: Unread,
    on_outcome: OnOutcome,
) -> Any:
    arguments: Publish = read(server_context, PUBLISH, caller, unread)
    is_plain = arguments.transaction is None and arguments.receipts is None
    if not is_plain or KEY in caller.headers:
        if _is_begun(server_context, place, arguments, on_outcome):
            return LATER
        return server_context.in_thread(_publish, server_context, caller, arguments)
    _check_pipe(arguments)
    post = server_context.outcomes.post
    server_context.service.publish_soon(
        place, arguments.messages, partial(post, on_outcome)
    )
    return LATER


def _is_begun(
    server_context: ServerContext,
    place: Place,
    arguments: Publish,
    on_outcome: OnOutcome,
) -> bool:
    """Publishes in a transaction; False, with nothing done, where that may wait."""
    tx, refers = arguments.transaction, arguments.receipts is not None
    if tx is None or refers or server_context.service.reads_wait:
        return False
    on_published = partial(server_context.outcomes.call, on_outcome)
    return server_context.service.publish_in_soon(
        place, arguments.messages, checked_pointer(tx), on_published
    )


def _check_pipe(arguments: Publish) -> None:
    if arguments.transaction is None and pipe_of(arguments.topic) is not None:
        raise BadRequest(
            f"{arguments.topic} is a pipe, which takes items in transactions only; "
            f"push others to its queue"
        )


def _publish(
    server_context: ServerContext, caller: Caller, arguments: Publish
) -> PublishResponse | None:
    """Publishes in a thread; a key stands for a producer, which publishes once."""
    _check_pipe(arguments)
    keyed, service = _producer_of(caller, arguments.topic), server_context.service
    if (
        keyed is not None
        and arguments.transaction is None
        and arguments.receipts is None
    ):
        service.producing.publish_alone(
            arguments.topic, arguments.messages, producer=keyed, caller=caller.principal
        )
        return None
    with server_context.writing_for(caller.principal):
        return service.publish(**PUBLISH.shape.options(arguments))


def _producer_of(caller: Caller, topic: str) -> ProducerIdentity | None:
    """Returns the producer that a key stands for, which publishes one request.

    So a repeat is known after a restart, too, and so is another request.
    """
    key = caller.headers.get(KEY)
    if key is None:
        return None
    scope = (caller.principal.name.encode(), topic.encode(), key)
    digest = sha256(b"\0".join(scope)).digest()
    return ProducerIdentity(int.from_bytes(digest[:8], "big") >> 1, by_client=True)


ACTS: dict[Verb[..., Any], Act] = {PUBLISH: _publish}
SOON: dict[Verb[..., Any], Soon] = {PUBLISH: _soon}
