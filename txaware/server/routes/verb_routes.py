"""Routes of declared verbs: each reads its request, has it performed, and answers."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from txaware.errors import BadRequest
from txaware.protocol.formats import format_of
from txaware.protocol.verb import Repeat
from txaware.server.exchange import DONE, JSON, Reply, Request
from txaware.server.routing import Begin, Begun, Route, Told, in_a_task
from txaware.server.verb_performer import LATER, VerbPerformer

# Clients send the latter for a body where a program names no type.
UNNAMED = (None, "application/x-www-form-urlencoded")


def verb_routes(performers: Iterable[VerbPerformer]) -> list[Route]:
    """Returns the routes of the verbs that these perform."""
    return [_route(performer) for performer in performers]


def _route(performer: VerbPerformer) -> Route:
    verb = performer.verb

    def read(request: Request) -> Any:
        if verb.typed and request.content_type not in UNNAMED:
            format_of(request.content_type)
        return verb.shape.read(
            request.params, request.query, request.body, request.content_type
        )

    def written(value: Any) -> Reply:
        answer = verb.written(value)
        return DONE if answer is None else Reply(200, answer, JSON)

    begin = beginning(performer, read, written)
    if verb.finds_topic:
        begin = _finding_topic(performer, begin)
    return Route(
        verb.method,
        verb.path,
        in_a_task(begin),
        verb.right,
        waits=verb.waits is not None,
        keyed=verb.repeat is Repeat.KEYED,
        query=tuple(field.name for field in verb.shape.query.values()),
        begin=begin if performer.is_soon else None,
    )


def _finding_topic(performer: VerbPerformer, begin: Begin) -> Begin:
    """Returns the same, but that a refused request of an unknown topic is told that."""

    async def refused(request: Request, error: BadRequest) -> Reply:
        await performer.find_topic(request.topic)
        raise error

    def begin_or_find(request: Request, told: Told) -> Begun:
        try:
            return begin(request, told)
        except BadRequest as error:
            return refused(request, error)

    return begin_or_find


def beginning(
    performer: VerbPerformer,
    read: Callable[[Request], Any],
    written: Callable[[Any], Reply],
) -> Begin:
    """Returns what begins a verb that a request asks for, in a form of its own."""

    async def replied(waiting: Coroutine[Any, Any, Any]) -> Reply:
        return written(await waiting)

    def begin(request: Request, told: Told) -> Begun:
        def told_value(outcome: Any) -> None:
            told(outcome if isinstance(outcome, Exception) else written(outcome))

        begun = performer.begin(request, read(request), told_value)
        if begun is LATER:
            return None
        return replied(begun) if isinstance(begun, Coroutine) else written(begun)

    return begin
