"""Routes of participants that keep rows of their own: who they are, what they need."""

from txaware.http.server.exchange import DONE, JSON, Reply, Request
from txaware.http.server.permissions import holder, operator
from txaware.http.server.routing import Route
from txaware.http.server.server_context import ServerContext
from txaware.http.wire.json_body import NAME, Body, Field, plain
from txaware.http.wire.values import read_json, to_json

KEEPERS = "/v1/keepers"
FORGET = KEEPERS + "/forget"


NAMED = Body("the body", (Field("name", NAME),))
REPORT = Body(
    "the body",
    (*NAMED.fields, Field("smallestPointer", plain().or_null(), default=None)),
)


class KeeperRoutes:
    """Routes of keepers. The server cannot ask them: the last report is the answer."""

    def __init__(self, server_context: ServerContext) -> None:
        self._in_coordinator_thread = server_context.in_coordinator_thread
        self._administration = server_context.administration

    def routes(self) -> list[Route]:
        """Returns these routes: holders of transactions register, operators forget."""
        return [
            Route("GET", KEEPERS, self._list, operator),
            Route("POST", KEEPERS, self._report, holder),
            Route("POST", FORGET, self._forget, operator, keyed=True),
        ]

    async def _list(self, request: Request) -> Reply:
        request.query()
        found = await self._in_coordinator_thread(self._administration.keepers)
        return Reply(200, to_json(found), JSON)

    async def _report(self, request: Request) -> Reply:
        request.query()
        asked, principal = REPORT.read(read_json(request.body)), request.principal
        keeper = await self._in_coordinator_thread(
            self._administration.report_keeper,
            asked["name"],
            asked["smallestPointer"],
            principal=principal.name,
            is_operator=principal.is_operator,
        )
        return Reply(200, to_json(keeper), JSON)

    async def _forget(self, request: Request) -> Reply:
        request.query()
        asked = NAMED.read(read_json(request.body))
        await self._in_coordinator_thread(
            self._administration.forget_keeper, asked["name"]
        )
        return DONE
