"""Routes of consumer groups: their positions, and how far behind they are."""

from coordinator.transaction import Transaction
from txaware.http.server.exchange import DONE, Reply, Request, json_reply
from txaware.http.server.routing import Route
from txaware.http.server.server_context import ServerContext
from txaware.model.messages import MessageId
from txaware.model.requests import checked_pointer
from txaware.protocol.fields import ID, SNAPSHOT, Body, Field, plain
from txaware.protocol.rights import in_group
from txaware.protocol.values import read_json

POSITION = "/v1/namespaces/{namespace}/groups/{group}/positions/{topic}"
SEEN_BY = Body("the body", (Field("transaction", SNAPSHOT),))
NEW_POSITION = Body(
    "the body", (Field("position", ID.or_null()), Field("transaction", plain(1)))
)


class GroupRoutes:
    """Routes of positions, as a snapshot sees them, and saved with a transaction."""

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._service = server_context.service

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        return [
            Route("GET", POSITION, self._position, in_group()),
            Route("POST", POSITION, self._position_seen, in_group()),
            Route("PUT", POSITION, self._save, in_group(transactions=True), keyed=True),
            Route("GET", POSITION + "/lag", self._lag, in_group()),
        ]

    async def _position(self, request: Request) -> Reply:
        group = request.params["group"]
        position = await self._server_context.in_coordinator_thread(
            self._service.position, group, request.topic
        )
        return _reply(position)

    async def _position_seen(self, request: Request) -> Reply:
        group = request.params["group"]
        transaction = SEEN_BY.read(read_json(request.body))["transaction"]
        position = await self._server_context.in_thread(
            self._service.position, group, request.topic, transaction=transaction
        )
        return _reply(position)

    async def _save(self, request: Request) -> Reply:
        group = request.params["group"]
        asked = NEW_POSITION.read(read_json(request.body))
        pointer = checked_pointer(asked["transaction"])
        self._server_context.owners.used((pointer,), request.principal)
        await self._server_context.in_thread(
            self._service.save_position,
            group,
            request.topic,
            asked["position"],
            transaction=Transaction(pointer, 0),
        )
        return DONE

    async def _lag(self, request: Request) -> Reply:
        group = request.params["group"]
        lag_ms, oldest_unread_ms = await self._server_context.in_coordinator_thread(
            self._behind, group, request.topic
        )
        return json_reply({"lagMs": lag_ms, "oldestUnreadMs": oldest_unread_ms})

    def _behind(self, group: str, topic: str) -> tuple[int, int]:
        administration = self._server_context.administration
        return (
            administration.lag_ms(group, topic),
            administration.oldest_unread_ms(group, topic),
        )


def _reply(position: MessageId | None) -> Reply:
    return json_reply({"position": None if position is None else str(position)})
