"""Routes of queues themselves: what a server adds to their verbs."""

from typing import Any

from txaware.model.queues import QueueDescriptor, QueueItem
from txaware.model.topics import QueueName
from txaware.protocol.queues import (
    BROWSE_QUEUE,
    CREATE_QUEUE,
    LIST_QUEUES,
    REDRIVE,
    UPDATE_QUEUE,
)
from txaware.protocol.verb import Verb
from txaware.server.exchange import Request
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import Act


def _names(
    server_context: ServerContext, request: Request, arguments: Any
) -> list[str]:
    may_see, namespace = request.principal.may_see_queue, arguments.namespace
    names = server_context.queues.queues(namespace)
    return [name for name in names if may_see(QueueName(name, namespace))]


def _create(
    server_context: ServerContext, request: Request, arguments: Any
) -> QueueDescriptor:
    settings = _settings(CREATE_QUEUE, request, arguments)
    return server_context.queues.create_queue(**settings)


def _update(
    server_context: ServerContext, request: Request, arguments: Any
) -> QueueDescriptor:
    settings = _settings(UPDATE_QUEUE, request, arguments)
    return server_context.queues.update_queue(**settings)


def _settings(verb: Verb[..., Any], request: Request, arguments: Any) -> dict[str, Any]:
    """Returns what is named; dead letters go where the caller may push."""
    settings = verb.shape.options(arguments)
    letters = settings.get("dead_letter_queue")
    if letters is not None:
        request.principal.require_queue("push", QueueName.parse(letters))
    return settings


def _browse(
    server_context: ServerContext, request: Request, arguments: Any
) -> list[QueueItem]:
    """Shows items; dead ones lie in another queue, which has to allow it."""
    queues = server_context.queues
    if arguments.state == "dead":
        letters = queues.queue_descriptor(arguments.name).dead_letters
        request.principal.require_queue("pop", QueueName.parse(letters))
    return queues.browse_queue(arguments.name, arguments.state, arguments.limit)


def _redrive(server_context: ServerContext, request: Request, arguments: Any) -> int:
    """Sends letters back; those of others where the caller may push to them."""
    may = request.principal.may_on_queue
    return server_context.queues.redrive(
        arguments.name,
        arguments.limit,
        may_push=lambda name: may("push", QueueName.parse(name)),
    )


ACTS: dict[Verb[..., Any], Act] = {
    LIST_QUEUES: _names,
    CREATE_QUEUE: _create,
    UPDATE_QUEUE: _update,
    BROWSE_QUEUE: _browse,
    REDRIVE: _redrive,
}
