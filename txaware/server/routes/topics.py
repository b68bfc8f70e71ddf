"""Routes of topics: create, change, describe, list, delete."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from coordinator.remote.wire import shown
from txaware.errors import BadRequest
from txaware.model.topics import DEFAULT_TTL_S, MAX_TTL_S, PUBLISHING, TopicName
from txaware.protocol.fields import LEFT_OUT, Body, Field, Kind
from txaware.protocol.formats import format_of
from txaware.protocol.json_schema import NULL, TEXT, any_of, or_null, whole
from txaware.protocol.rights import on_topic, to_list, to_see
from txaware.protocol.values import topic_to_json
from txaware.server.exchange import (
    DONE,
    JSON,
    Reply,
    Request,
    exists_ok,
    json_reply,
)
from txaware.server.routing import Route
from txaware.server.server_context import ServerContext

TOPICS = "/v1/namespaces/{namespace}/topics"
TOPIC = TOPICS + "/{topic}"
# Clients send the latter for a body where a program names no type.
UNNAMED = (None, "application/x-www-form-urlencoded")


def _is_number_or_text(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _ttl(value: object, *, what: str) -> object:
    if not _is_number_or_text(value):
        raise BadRequest(f"{what} is a whole number of seconds, not {shown(value)}")
    return value


def _generation(value: object, *, what: str) -> None:
    if value is not None and not _is_generation(value):
        raise BadRequest(f"{what} is a number above 0, not {shown(value)}")


def _is_generation(value: object) -> bool:
    if not _is_number_or_text(value):
        return False
    text = str(value)
    return text.isascii() and text.isdigit() and int(text[:20]) > 0


def _text(value: object, *, what: str, kind: str, takes_away: bool) -> object:
    if isinstance(value, str) or (takes_away and value is None):
        return value
    kind = kind.format(" or null" if takes_away else "")
    raise BadRequest(f"{what} is {kind}, not {shown(value)}")


_TTL = any_of(whole(1, MAX_TTL_S), {"type": "string", "pattern": "^[1-9][0-9]{0,8}$"})
_GENERATION = any_of(
    NULL,
    {"type": "integer", "minimum": 1},
    {"type": "string", "pattern": "^0{0,19}[1-9][0-9]*$"},
)
_WORDS = f"one of {', '.join(PUBLISHING)}{{}}"
# A field that is not known, and no text, may be a misspelt one.
_FREE = "text{}, as all properties are but ttl, generation and publishing"


def _declared(ttl_says: str, *, takes_away: bool) -> Body:
    """Declares the properties of a topic; where it `takes_away`, null removes one."""
    words = [*PUBLISHING, None] if takes_away else [*PUBLISHING]
    publishing = partial(_text, kind=_WORDS, takes_away=takes_away)
    free = partial(_text, kind=_FREE, takes_away=takes_away)
    ttl = Kind(_ttl, _TTL | {"description": ttl_says})
    generation = Kind(_generation, _GENERATION | {"description": "It is passed over."})
    return Body(
        "the body",
        (
            Field("ttl", ttl, default=LEFT_OUT),
            Field("generation", generation, default=LEFT_OUT),
            Field("publishing", Kind(publishing, {"enum": words}), default=LEFT_OUT),
        ),
        others=Kind(free, or_null(TEXT) if takes_away else TEXT),
    )


PROPERTIES = _declared(
    f"Seconds; {DEFAULT_TTL_S} where it is missing.", takes_away=False
)
CHANGES = _declared("Seconds; it stays where it is missing.", takes_away=True)


class TopicRoutes:
    """Routes of topics themselves, not of their messages."""

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._service = server_context.service

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        return [
            Route(
                "PUT",
                TOPIC,
                self._create,
                on_topic("admin"),
                keyed=True,
                query=("existOk",),
            ),
            Route("GET", TOPIC, self._describe, to_see),
            Route("DELETE", TOPIC, self._delete, on_topic("admin"), keyed=True),
            Route(
                "PUT",
                TOPIC + "/properties",
                self._replace,
                on_topic("admin"),
                keyed=True,
            ),
            Route(
                "PATCH",
                TOPIC + "/properties",
                self._change,
                on_topic("admin"),
                keyed=True,
            ),
            Route("GET", TOPICS, self._list, to_list),
            Route("GET", "/v1/namespaces", self._namespaces),
        ]

    async def _create(self, request: Request) -> Reply:
        ttl_s, properties = _properties(request)
        await self._server_context.in_thread(
            self._service.create_topic,
            request.topic,
            ttl_s=ttl_s,
            properties=properties,
            exist_ok=exists_ok(request.query()),
        )
        return DONE

    async def _replace(self, request: Request) -> Reply:
        await self._server_context.place(request.topic)
        if not request.body:
            raise BadRequest("the body is a JSON object of all properties")
        ttl_s, properties = _properties(request)
        await self._server_context.in_thread(
            self._service.replace_topic,
            request.topic,
            ttl_s=ttl_s,
            properties=properties,
        )
        return DONE

    async def _change(self, request: Request) -> Reply:
        await self._server_context.place(request.topic)
        if not request.body:
            raise BadRequest("the body is a JSON object of what to change")
        ttl_s, properties = _properties(request, CHANGES)
        await self._server_context.in_thread(
            self._service.update_topic,
            request.topic,
            ttl_s=ttl_s,
            properties=properties,
        )
        return DONE

    async def _describe(self, request: Request) -> Reply:
        place = await self._server_context.place(request.topic)
        return Reply(200, topic_to_json(place.topic), JSON)

    async def _delete(self, request: Request) -> Reply:
        await self._server_context.in_thread(self._service.delete_topic, request.topic)
        return DONE

    async def _list(self, request: Request) -> Reply:
        namespace = request.params["namespace"]
        names = await self._server_context.in_thread(self._service.topics, namespace)
        may_see = request.principal.may_see
        return json_reply(
            [name for name in names if may_see(TopicName(name, namespace))]
        )

    async def _namespaces(self, request: Request) -> Reply:
        may_see = request.principal.may_see
        names = await self._server_context.in_thread(self._service.all_topics)
        return json_reply(sorted({name.namespace for name in names if may_see(name)}))


def _properties(
    request: Request, declared: Body = PROPERTIES
) -> tuple[Any, Mapping[str, Any]]:
    """Returns the ttl, if any, and all others; drops `generation`, which is ours."""
    if request.content_type not in UNNAMED:
        format_of(request.content_type)
    if not request.body:
        return None, {}
    try:
        found = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON: {error}") from error
    sent = declared.read(found)
    sent.pop("generation", None)
    return sent.pop("ttl", None), sent
