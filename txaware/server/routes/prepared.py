"""Routes of prepared transactions: who prepared one ends it, and so may operators."""

import json
from functools import partial

from coordinator.remote.calls import (
    COMMIT_PREPARED,
    PREPARED,
    ROLLBACK_PREPARED,
    RemoteCall,
)
from coordinator.remote.client import Answer, CoordinatorRoutes
from coordinator.remote.prepared_calls import name_in, prepared_as
from coordinator.remote.wire import fields_of
from txaware.errors import NotAuthorized, PreparedNotFound
from txaware.protocol.rights import holder_or_operator
from txaware.server.exchange import JSON, Reply, Request
from txaware.server.routes.transactions import route_of
from txaware.server.routing import Route
from txaware.server.server_context import ServerContext


class PreparedRoutes:
    """Routes that list prepared transactions, and end them by name."""

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._owners = server_context.owners
        self._coordinator = CoordinatorRoutes(server_context.coordinator)

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        ends = (COMMIT_PREPARED, ROLLBACK_PREPARED)
        return [
            route_of(PREPARED, self._list, holder_or_operator),
            *(
                route_of(call, partial(self._end, call=call), holder_or_operator)
                for call in ends
            ),
        ]

    async def _list(self, request: Request) -> Reply:
        answer = await self._server_context.in_coordinator_thread(
            self._coordinator.call, PREPARED
        )
        if answer.status != 200:
            return _reply(answer)
        found = json.loads(answer.body)
        principal = request.principal
        if not principal.is_operator:
            found = [one for one in found if one["principal"] == principal.name]
        return Reply(200, json.dumps(found).encode(), JSON)

    async def _end(self, request: Request, *, call: RemoteCall) -> Reply:
        body = await self._server_context.in_coordinator_thread(self._checked, request)
        return await self._call(call, body=body)

    async def _call(self, call: RemoteCall, **named: object) -> Reply:
        answer = await self._server_context.in_coordinator_thread(
            self._coordinator.call, call, **named
        )
        return _reply(answer)

    def _checked(self, request: Request) -> bytes:
        """Returns the body; raises where the caller may not end what it names.

        The body names the transaction as well: the name may be another one's by then.
        An earlier, lost request may have ended it: then the id has to be the caller's.
        """
        principal, fields = request.principal, fields_of(request.body)
        if principal.is_operator:
            return request.body
        name, pointer = name_in(fields), fields.get("transactionId")
        found = prepared_as(self._server_context.coordinator, name)
        if found is not None and found.principal != principal.name:
            raise NotAuthorized(
                f"{principal.name} may not end what is prepared as {name!r}: somebody "
                f"else prepared it"
            )
        if found is None and not isinstance(pointer, int):
            raise PreparedNotFound(f"no transaction is prepared as {name!r}")
        if found is None and isinstance(pointer, int):
            self._owners.check((pointer,), principal)
        if found is not None and pointer is None:
            pointer = found.transaction_id
        return json.dumps({**fields, "transactionId": pointer}).encode()


def _reply(answer: Answer) -> Reply:
    return Reply(answer.status, answer.body, answer.content_type)
