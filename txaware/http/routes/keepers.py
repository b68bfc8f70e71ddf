"""Routes of participants that keep rows of their own: who they are, what they need."""

import attrs

from txaware.http.server.exchange import DONE, JSON, Reply, Request
from txaware.http.server.permissions import holder, operator
from txaware.http.server.routing import Route
from txaware.http.server.server_context import ServerContext
from txaware.http.wire.json_values import checked_fields
from txaware.http.wire.values import from_json, read_json, to_json

KEEPERS = "/v1/keepers"
FORGET = KEEPERS + "/forget"


@attrs.frozen
class _Reported:
    """The body with which a keeper registers, and registers again."""

    name: str
    smallest_pointer: int | None = None


@attrs.frozen
class _Named:
    """The body that names a keeper."""

    name: str


class KeeperRoutes:
    """Routes of keepers. The server cannot ask them: the last report is the answer."""

    def __init__(self, hosted: ServerContext) -> None:
        self._in_coordinator_thread = hosted.in_coordinator_thread
        self._administration = hosted.administration

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
        _check_fields(request.body, "name", "smallestPointer")
        asked, principal = from_json(_Reported, request.body), request.principal
        keeper = await self._in_coordinator_thread(
            self._administration.report_keeper,
            asked.name,
            asked.smallest_pointer,
            principal=principal.name,
            is_operator=principal.is_operator,
        )
        return Reply(200, to_json(keeper), JSON)

    async def _forget(self, request: Request) -> Reply:
        request.query()
        _check_fields(request.body, "name")
        asked = from_json(_Named, request.body)
        await self._in_coordinator_thread(
            self._administration.forget_keeper, asked.name
        )
        return DONE


def _check_fields(body: bytes, *known: str) -> None:
    """Refuses unknown fields: a misspelt one would be taken for one left out."""
    checked_fields(read_json(body), what="the body", known=known)
