"""Routes of frames: the one that begins them, and that of each verb by its number."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import attrs

from txaware.protocol.frames import FRAMES_PATH, PROTOCOL
from txaware.protocol.verb import Repeat, Verb
from txaware.server.exchange import Reply, Request
from txaware.server.failures import error_reply
from txaware.server.routes.verb_routes import beginning
from txaware.server.routing import Match, Route, in_a_task
from txaware.server.verb_performer import VerbPerformer

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
        asked, words = self.verb.shape.unpacked(body)
        return Match(self.route, self.verb.path.format_map(words), words, asked)


def frame_routes(performers: Iterable[VerbPerformer]) -> dict[int, FrameRoute]:
    """Returns the verbs that go by frames, by their numbers."""
    return {
        performer.verb.number: FrameRoute(performer.verb, _route(performer))
        for performer in performers
        if performer.verb.number is not None
    }


def _route(performer: VerbPerformer) -> Route:
    verb = performer.verb
    begin = beginning(
        performer,
        attrgetter("asked"),
        lambda _, __, value: Reply(200, verb.packed(value)),
    )
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
