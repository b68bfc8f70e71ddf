"""Routes of declared verbs, by path and in frames: each reads, performs and answers."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import CoroutineType
from typing import Any

import attrs
import msgspec

from txaware.errors import BadRequest
from txaware.protocol.formats import Format, format_of
from txaware.protocol.frames import FRAMES_PATH, PROTOCOL
from txaware.protocol.shape import Unread
from txaware.protocol.verb import Repeat, Verb
from txaware.server.exchange import (
    DONE,
    DONE_IN_JSON,
    JSON,
    Reply,
    Request,
    Stream,
)
from txaware.server.failures import error_reply
from txaware.server.routing import (
    Answer,
    Begin,
    Begun,
    Match,
    OnReply,
    Route,
    in_a_task,
)
from txaware.server.verb_performer import LATER, MayComeAgain, VerbPerformer

# Clients send the latter for a body where a program names no type.
UNNAMED = (None, "application/x-www-form-urlencoded")
ANY_JSON = frozenset((JSON, "application/*", "*/*"))


# Makes the answer of a request, of what it asks for, and of the value.
Written = Callable[[Request, Any, Any], Reply]


def verb_routes(
    performers: Iterable[VerbPerformer],
    written: Mapping[Verb[..., Any], Written] | None = None,
) -> list[Route]:
    """Returns the routes of the verbs that these perform.

    Those of `written` have answers that need more than the value.
    """
    return [_route(one, (written or {}).get(one.verb)) for one in performers]


def _route(performer: VerbPerformer, own: Written | None) -> Route:
    verb = performer.verb

    def read(request: Request) -> Any:
        if request.arguments is not None:
            return request.arguments
        if verb.typed and request.content_type not in UNNAMED:
            format_of(request.content_type)
        return verb.shape.read(
            request.params, request.query, request.body, request.content_type
        )

    def written(_: Request, __: Any, value: Any) -> Reply:
        answer = verb.written(value)
        return DONE if answer is None else Reply(200, answer, verb.media_type)

    def written_in_its_format(request: Request, arguments: Unread, value: Any) -> Reply:
        return in_its_format(request, verb, arguments.format, value)

    in_formats = verb.formats is not None
    derived = written_in_its_format if in_formats else written
    begin = beginning(performer, read, own or derived)
    if verb.finds_topic and not in_formats:
        begin = _finding_topic(performer, begin)
    return attrs.evolve(
        _declared_route(verb, begin),
        query=tuple(field.name for field in verb.shape.query.values()),
        begin=begin if performer.is_soon else None,
    )


def in_its_format(
    request: Request, verb: Verb[..., Any], format_: Format, value: Any
) -> Reply:
    """Returns the answer of a verb whose body came in one of several formats."""
    body, type_ = verb.written_in(format_, value), format_.media_type
    if body:
        return Reply(200, body, type_)
    # CDAP's clients get an empty answer, and so does one that accepts nothing.
    is_json = verb.says_done_in_json and type_ == JSON
    is_told = is_json and ANY_JSON.intersection(request.accepts)
    return DONE_IN_JSON if is_told else DONE


def _finding_topic(performer: VerbPerformer, begin: Begin) -> Begin:
    """Returns the same, but that a refused request of an unknown topic is told that."""

    async def refused(request: Request, error: BadRequest) -> Reply:
        await performer.find_topic(request.topic)
        raise error

    def begin_or_find(request: Request, on_reply: OnReply) -> Begun:
        try:
            return begin(request, on_reply)
        except BadRequest as error:
            return refused(request, error)

    return begin_or_find


def beginning(
    performer: VerbPerformer,
    read: Callable[[Request], Any],
    written: Written,
) -> Begin:
    """Returns what begins a verb that a request asks for, in a form of its own.

    `written` makes the answer of the request, what it asks for, and the value; what
    goes in pieces is an answer already.
    """

    def answer(request: Request, arguments: Any, value: Any) -> Answer:
        if isinstance(value, Reply | Stream):
            return value
        return written(request, arguments, value)

    async def awaited(
        request: Request, arguments: Any, waiting: Coroutine[Any, Any, Any]
    ) -> Answer:
        return answer(request, arguments, await waiting)

    def begin(request: Request, on_reply: OnReply) -> Begun:
        arguments = read(request)

        def on_outcome(outcome: Any) -> None:
            if isinstance(outcome, Exception):
                on_reply(outcome)
            elif isinstance(outcome, MayComeAgain):
                reply = written(request, arguments, outcome.value)
                on_reply(msgspec.structs.replace(reply, again=outcome.again))
            else:
                on_reply(written(request, arguments, outcome))

        begun = performer.begin(request, arguments, on_outcome)
        if begun is LATER:
            return None
        if isinstance(begun, CoroutineType):  # the abstract class is slow to ask
            return awaited(request, arguments, begun)
        return answer(request, arguments, begun)

    return begin


UPGRADE = ((b"upgrade", PROTOCOL.encode()), (b"connection", b"upgrade"))


async def _without_upgrade(_: Request) -> Reply:
    return error_reply(
        426,
        "BadRequest",
        f"{FRAMES_PATH} turns a connection into one of frames: ask with Connection: "
        f"upgrade and Upgrade: {PROTOCOL}",
        headers=UPGRADE,
    )


def upgrade_route() -> Route:
    """Returns the route that a connection asks for frames at."""
    return Route("GET", FRAMES_PATH, _without_upgrade)


@attrs.frozen(eq=False)
class FrameRoute:
    """A verb as frames ask for it, and the route that performs it."""

    verb: Verb[..., Any]
    route: Route

    def match(self, body: bytes) -> Match:
        """Returns the match of a request; the names in its path come from the fields.

        Raises `BadRequest` for fields that make no request.
        """
        arguments, words = self.verb.shape.unpacked(body)
        return Match(self.route, self.verb.path.format_map(words), words, arguments)


def frame_routes(performers: Iterable[VerbPerformer]) -> dict[int, FrameRoute]:
    """Returns the verbs that go by frames, by their numbers."""
    return {
        performer.verb.number: FrameRoute(performer.verb, _route_in_frames(performer))
        for performer in performers
        if performer.verb.number is not None
    }


def _route_in_frames(performer: VerbPerformer) -> Route:
    verb = performer.verb
    begin = beginning(
        performer,
        lambda request: request.arguments,
        lambda _, __, value: Reply(200, verb.packed(value)),
    )
    return _declared_route(verb, begin)


def _declared_route(verb: Verb[..., Any], begin: Begin) -> Route:
    """Returns a route as its verb declares it, begun in the event loop."""
    return Route(
        verb.method,
        verb.path,
        in_a_task(begin),
        verb.right,
        waits=verb.waits is not None,
        keyed=verb.repeat.is_keyed,
        harmless=verb.repeat is Repeat.HARMLESS,
        begin=begin,
    )
