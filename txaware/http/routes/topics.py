"""Routes of topics: create, change, describe, list, delete."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from coordinator.remote.wire import shown
from txaware.errors import BadRequest
from txaware.http.server.exchange import DONE, JSON, Reply, Request, json_reply
from txaware.http.server.permissions import on_topic, to_list, to_see
from txaware.http.server.routing import Route
from txaware.http.server.server_context import ServerContext
from txaware.http.wire import format_of
from txaware.http.wire.values import topic_to_json
from txaware.topics import PUBLISHING, TopicName

TOPICS = "/v1/namespaces/{namespace}/topics"
TOPIC = TOPICS + "/{topic}"
# Clients send the latter for a body where a program names no type.
UNNAMED = (None, "application/x-www-form-urlencoded")


class TopicRoutes:
    """Routes of topics themselves, not of their messages."""

    def __init__(self, hosted: ServerContext) -> None:
        self._hosted = hosted
        self._service = hosted.service

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        return [
            Route("PUT", TOPIC, self._create, on_topic("admin"), keyed=True),
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
        await self._hosted.in_thread(
            self._service.create_topic,
            request.topic,
            ttl_s=ttl_s,
            properties=properties,
        )
        return DONE

    async def _replace(self, request: Request) -> Reply:
        await self._hosted.place(request.topic)
        if not request.body:
            raise BadRequest("the body is a JSON object of all properties")
        ttl_s, properties = _properties(request)
        await self._hosted.in_thread(
            self._service.replace_topic,
            request.topic,
            ttl_s=ttl_s,
            properties=properties,
        )
        return DONE

    async def _change(self, request: Request) -> Reply:
        await self._hosted.place(request.topic)
        if not request.body:
            raise BadRequest("the body is a JSON object of what to change")
        ttl_s, properties = _properties(request, takes_away=True)
        await self._hosted.in_thread(
            self._service.update_topic,
            request.topic,
            ttl_s=ttl_s,
            properties=properties,
        )
        return DONE

    async def _describe(self, request: Request) -> Reply:
        place = await self._hosted.place(request.topic)
        return Reply(200, topic_to_json(place.topic), JSON)

    async def _delete(self, request: Request) -> Reply:
        await self._hosted.in_thread(self._service.delete_topic, request.topic)
        return DONE

    async def _list(self, request: Request) -> Reply:
        namespace = request.params["namespace"]
        names = await self._hosted.in_thread(self._service.topics, namespace)
        may_see = request.principal.may_see
        return json_reply(
            [name for name in names if may_see(TopicName(name, namespace))]
        )

    async def _namespaces(self, request: Request) -> Reply:
        may_see = request.principal.may_see
        names = await self._hosted.in_thread(self._service.all_topics)
        return json_reply(sorted({name.namespace for name in names if may_see(name)}))


def _properties(
    request: Request, *, takes_away: bool = False
) -> tuple[Any, Mapping[str, Any]]:
    """Returns the ttl, if any, and all others; drops `generation`, which is ours.

    `takes_away` says that null stands for a property to remove.
    """
    if request.content_type not in UNNAMED:
        format_of(request.content_type)
    if not request.body:
        return None, {}
    try:
        found = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadRequest("the body is no JSON object of properties")
    if "ttl" in found and not _is_number_or_text(found["ttl"]):
        raise BadRequest(f"ttl is a whole number of seconds, not {shown(found['ttl'])}")
    generation = found.pop("generation", None)
    if generation is not None and not _is_generation(generation):
        raise BadRequest(f"generation is a number above 0, not {shown(generation)}")
    ttl_s = found.pop("ttl", None)
    for name, value in found.items():
        if not isinstance(value, str) and not (takes_away and value is None):
            _refuse(name, value, takes_away=takes_away)
    return ttl_s, found


def _refuse(name: str, value: object, *, takes_away: bool) -> NoReturn:
    """Says what is known: a field that is not, and no text, may be a misspelt one."""
    null = " or null" if takes_away else ""
    if name == "publishing":
        known = f"publishing is one of {', '.join(PUBLISHING)}{null}"
    else:
        known = (
            f"the property {shown(name)} is text{null}, as all are but ttl, generation "
            f"and publishing"
        )
    raise BadRequest(f"{known}, not {shown(value)}")


def _is_number_or_text(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _is_generation(value: object) -> bool:
    if not _is_number_or_text(value):
        return False
    text = str(value)
    return text.isascii() and text.isdigit() and int(text[:20]) > 0
