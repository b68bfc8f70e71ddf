"""Routes of the coordinator, passed on to `coordinator.remote`."""

from coordinator import codec
from coordinator.remote import BYTES, ROOT, CoordinatorRoutes
from txaware.auth import Principal
from txaware.http.exchange import Reply, Request
from txaware.http.hosted import Hosted
from txaware.http.permissions import Params
from txaware.http.routing import Route

# What tells of transactions of others, or forgets them, is for operators.
FOR_OPERATORS = ("", "find-hanging", "truncate")
FOR_MONITORS = ("state", "invalid-size")


class TransactionRoutes:
    """Everything below `/v1/transactions`."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        self._owners = hosted.owners
        self._routes = CoordinatorRoutes(hosted.coordinator, clock_ms=hosted.clock_ms)

    def routes(self) -> list[Route]:
        """Methods and paths; which method a call takes is told by the coordinator."""
        paths = (ROOT, ROOT + "/{name}", ROOT + "/{name}/{call}")
        return [
            *(Route("GET", path, self._pass_on, _may_look) for path in paths),
            *(Route("POST", path, self._pass_on, _may_act) for path in paths),
        ]

    async def _pass_on(self, request: Request) -> Reply:
        name = request.params.get("name", "")
        if name.isascii() and name.isdigit() and len(name) < 20:
            self._owners.check(int(name), request.principal)
        path = request.path
        if request.query_string:
            path += "?" + request.query_string.decode("latin-1")
        answer = await self._hosted.in_thread(
            self._routes.answer, request.method, path, request.body
        )
        if request.path == ROOT and answer.content_type == BYTES:
            began = codec.decode(answer.body)
            self._owners.began(began.transaction_id, request.principal)
        return Reply(answer.status, answer.body, answer.content_type)


def _may_act(principal: Principal, params: Params) -> None:
    if params.get("name") == "truncate":
        principal.require_operator()
    else:
        principal.require_transactions()


def _may_look(principal: Principal, params: Params) -> None:
    """Whoever has transactions may ask about one that it knows the id of."""
    name = params.get("name", "")
    if name in FOR_OPERATORS:
        principal.require_operator()
    elif name in FOR_MONITORS:
        principal.require_monitor()
    else:
        principal.require_transactions()
