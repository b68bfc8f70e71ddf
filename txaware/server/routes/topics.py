"""Routes of topics themselves: what a server adds to their verbs."""

from typing import Any

from txaware.model.topics import TopicName
from txaware.protocol.topics import LIST_NAMESPACES, LIST_TOPICS, REPLACE_TOPIC
from txaware.protocol.verb import Verb
from txaware.server.exchange import Request
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import Act


def _replace(server_context: ServerContext, _: Request, arguments: Any) -> None:
    server_context.service.replace_topic(**REPLACE_TOPIC.shape.options(arguments))


def _names(
    server_context: ServerContext, request: Request, arguments: Any
) -> list[str]:
    may_see, namespace = request.principal.may_see, arguments.namespace
    names = server_context.service.topics(namespace)
    return [name for name in names if may_see(TopicName(name, namespace))]


def _namespaces(server_context: ServerContext, request: Request, _: Any) -> list[str]:
    names = server_context.service.all_topics()
    return sorted({name.namespace for name in names if request.principal.may_see(name)})


ACTS: dict[Verb[..., Any], Act] = {
    REPLACE_TOPIC: _replace,
    LIST_TOPICS: _names,
    LIST_NAMESPACES: _namespaces,
}
