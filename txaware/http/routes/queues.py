"""Routes of queues themselves: create, describe, pause, truncate, redrive, delete."""

from collections.abc import Callable
from functools import partial
from typing import Any

from coordinator.remote.wire import is_number, shown
from txaware.errors import BadRequest
from txaware.http.server.exchange import (
    DONE,
    JSON,
    Reply,
    Request,
    exists_ok,
    json_reply,
    whole_number,
)
from txaware.http.server.routing import Route
from txaware.http.server.server_context import ServerContext
from txaware.model.queues import MAX_DELAY_S, MAX_LEASE_S, ORDERS
from txaware.model.topics import MAX_TTL_S, QueueName
from txaware.protocol.fields import LEFT_OUT, Body, Field, Kind, plain, text
from txaware.protocol.json_schema import FULL_NAME, INT_MAX
from txaware.protocol.json_values import load
from txaware.protocol.rights import on_queue, queue_in, to_list, to_see_queue
from txaware.protocol.values import camel, read_json, to_json

QUEUES = "/v1/namespaces/{namespace}/queues"
QUEUE = QUEUES + "/{queue}"


def _number(value: object, *, what: str) -> object:
    if value is None or not is_number(value):
        raise BadRequest(f"{what} is a number of seconds, not {shown(value)}")
    return value


def _seconds(most: int) -> Kind:
    return Kind(_number, {"type": "number", "exclusiveMinimum": 0, "maximum": most})


_COUNT = plain(1, INT_MAX)
_SETTINGS = {
    "lease_s": _seconds(MAX_LEASE_S),
    "max_deliveries": _COUNT.or_null(),
    "dead_letter_queue": text(FULL_NAME).or_null(),
    "order": text({"enum": [*ORDERS]}),
    "max_pushes_per_pipe": _COUNT,
    "max_push_time_of_pipe_s": _seconds(MAX_DELAY_S),
    "max_pop_width": _COUNT,
    "ttl_s": plain(1, MAX_TTL_S).or_null(),
}
SETTINGS = Body(
    "the body",
    tuple(
        Field(camel(name), kind, default=LEFT_OUT) for name, kind in _SETTINGS.items()
    ),
)
REDRIVE = Body("the body", (Field("limit", _COUNT.or_null(), default=None),))


class QueueRoutes:
    """Routes of queues, for whoever manages them or looks at them."""

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._queues = server_context.queues

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        manages = on_queue("manage")
        return [
            Route("GET", QUEUES, self._names, to_list),
            Route("PUT", QUEUE, self._create, manages, keyed=True, query=("existOk",)),
            Route("PATCH", QUEUE, self._update, manages, keyed=True),
            Route("GET", QUEUE, self._describe, to_see_queue),
            Route("DELETE", QUEUE, self._delete, manages, keyed=True),
            Route("GET", QUEUE + "/stats", self._stats, to_see_queue),
            Route(
                "GET",
                QUEUE + "/peek",
                self._peek,
                on_queue("pop"),
                query=("limit",),
            ),
            Route("POST", QUEUE + "/pause", partial(self._pause, paused=True), manages),
            Route(
                "POST", QUEUE + "/resume", partial(self._pause, paused=False), manages
            ),
            Route("POST", QUEUE + "/truncate", self._truncate, manages, keyed=True),
            Route("POST", QUEUE + "/redrive", self._redrive, manages, keyed=True),
        ]

    async def _names(self, request: Request) -> Reply:
        namespace, principal = request.params["namespace"], request.principal
        names = await self._server_context.in_thread(self._queues.queues, namespace)
        return json_reply(
            [
                name
                for name in names
                if principal.may_see_queue(QueueName(name, namespace))
            ]
        )

    async def _create(self, request: Request) -> Reply:
        """Creates a queue; its dead letters go where the caller may push."""
        create = partial(
            self._queues.create_queue,
            queue_named(request),
            exist_ok=exists_ok(request.query()),
            **_settings(request, request.body or b"{}"),
        )
        return await self._told(request, create)

    async def _update(self, request: Request) -> Reply:
        """Changes what is named; dead letters go where the caller may push, too."""
        if not request.body:
            raise BadRequest("the body is a JSON object of what to change")
        settings = _settings(request, request.body)
        update = partial(self._queues.update_queue, queue_named(request), **settings)
        return await self._told(request, update)

    async def _describe(self, request: Request) -> Reply:
        return await self._told(
            request, partial(self._queues.queue_descriptor, queue_named(request))
        )

    async def _stats(self, request: Request) -> Reply:
        return await self._told(
            request, partial(self._queues.queue_stats, queue_named(request))
        )

    async def _peek(self, request: Request) -> Reply:
        limit = whole_number(request.query().get("limit", "10"), "limit")
        look = partial(self._queues.peek_queue, queue_named(request), limit)
        return await self._told(request, look)

    async def _told(self, request: Request, ask: Callable[[], Any]) -> Reply:
        found = await self._server_context.in_coordinator_thread(ask)
        return Reply(200, to_json(found), JSON)

    async def _delete(self, request: Request) -> Reply:
        await self._server_context.in_thread(
            self._queues.delete_queue, queue_named(request)
        )
        return DONE

    async def _pause(self, request: Request, *, paused: bool) -> Reply:
        await self._server_context.in_thread(
            self._queues.pause_queue, queue_named(request), paused=paused
        )
        return DONE

    async def _truncate(self, request: Request) -> Reply:
        await self._server_context.in_thread(
            self._queues.truncate_queue, queue_named(request)
        )
        return DONE

    async def _redrive(self, request: Request) -> Reply:
        """Sends letters back; those of others where the caller may push to them."""
        limit = REDRIVE.read(load(request.body or b"{}"))["limit"]
        principal = request.principal
        moved = await self._server_context.in_slow_thread(
            self._queues.redrive,
            queue_named(request),
            limit,
            may_push=lambda name: principal.may_on_queue("push", QueueName.parse(name)),
        )
        return json_reply({"moved": moved})


def _settings(request: Request, body: bytes) -> dict[str, Any]:
    """Returns the settings that are named, where the caller may name them."""
    sent = SETTINGS.read(read_json(body))
    settings = {name: sent[camel(name)] for name in _SETTINGS if camel(name) in sent}
    letters = settings.get("dead_letter_queue")
    if letters is not None:
        request.principal.require_queue("push", QueueName.parse(letters))
    return settings


def queue_named(request: Request) -> str:
    """Returns the queue that a request's path names."""
    return str(queue_in(request.params))
