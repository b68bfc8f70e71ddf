"""Routes of declared verbs: each reads its request, performs it, and answers."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from txaware.protocol.verb import Repeat, Verb, Work
from txaware.server.exchange import DONE, JSON, Reply, Request
from txaware.server.routing import Route
from txaware.server.server_context import ServerContext

# What a server does beside the engine: by the context, who asks, and what.
Act = Callable[[ServerContext, Request, Any], Any]


def verb_routes(
    server_context: ServerContext,
    verbs: Iterable[Verb[..., Any]],
    acts: Mapping[Verb[..., Any], Act],
) -> list[Route]:
    """Returns the routes of verbs; `acts` has those that the engine does not do alone.

    Without one, the engine's method of the verb's name is called with the request.
    """
    return [_route(server_context, verb, acts.get(verb)) for verb in verbs]


def _route(
    server_context: ServerContext, verb: Verb[..., Any], act: Act | None
) -> Route:
    in_thread = _threads(server_context)[verb.work]
    perform = (
        _performing(server_context, verb)
        if act is None
        else partial(act, server_context)
    )

    async def handle(request: Request) -> Reply:
        asked = verb.shape.read(request.params, request.query, request.body)
        if verb.shape.pointers:
            pointers = [getattr(asked, name) for name in verb.shape.pointers]
            server_context.owners.used(pointers, request.principal)
        answer = verb.written(await in_thread(perform, request, asked))
        return DONE if answer is None else Reply(200, answer, JSON)

    return Route(
        verb.method,
        verb.path,
        handle,
        verb.right,
        keyed=verb.repeat is Repeat.KEYED,
        query=tuple(field.name for field in verb.shape.query.values()),
    )


def _threads(server_context: ServerContext) -> dict[Work, Callable[..., Any]]:
    return {
        Work.ROWS: server_context.in_thread,
        Work.COORDINATOR: server_context.in_coordinator_thread,
        Work.SLOW: server_context.in_slow_thread,
        Work.PLANNING: server_context.in_planning_thread,
        Work.MONITOR: server_context.in_monitor_thread,
    }


def _performing(
    server_context: ServerContext, verb: Verb[..., Any]
) -> Callable[[Request, Any], Any]:
    """Returns what calls the engine with a request."""
    engine = server_context.engine(verb.port)
    shape = verb.shape
    go_on = {} if shape.go_on is None else {shape.go_on: server_context.threads.go_on}

    def perform(_: Request, asked: Any) -> Any:
        method = getattr(engine, verb.name)
        return method(**shape.options(asked), **verb.fixed, **go_on)

    return perform
