"""Routes for operators: look into topics, clean up, check, back up."""

from collections.abc import AsyncIterator, Iterator, Mapping

from coordinator.remote.wire import shown
from txaware.errors import BadRequest
from txaware.http.metrics.topic_labels import seen_metrics
from txaware.http.routes.topics import TOPIC
from txaware.http.server.exchange import (
    JSON,
    Reply,
    Request,
    Stream,
    json_reply,
    start_in,
    whole_number,
)
from txaware.http.server.permissions import monitor, on_topic, operator, sight
from txaware.http.server.routing import Route
from txaware.http.server.server_context import ServerContext
from txaware.http.wire.json_body import (
    FLAG,
    ID,
    SNAPSHOT,
    TEXT,
    Body,
    Field,
    Kind,
    plain,
)
from txaware.http.wire.values import read_json, to_json
from txaware.model.messages import MessageId
from txaware.model.requests import MOST_PIECES

MOST_PEEKED = 1000
PRUNE = Body("the body", (Field("exclusive", FLAG, default=False),))
RANGE = Body(
    "the body", (Field("from", ID), Field("to", ID), Field("transaction", SNAPSHOT))
)


class OperatorRoutes:
    """Routes of what `Messaging` offers beside the service."""

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._administration = server_context.administration

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        return [
            Route(
                "GET",
                TOPIC + "/peek",
                self._peek,
                on_topic("consume"),
                query=("startFrom", "limit"),
            ),
            Route("GET", TOPIC + "/inspect", self._inspect, on_topic("consume")),
            Route(
                "GET",
                TOPIC + "/splits",
                self._splits,
                on_topic("consume"),
                query=("from", "to", "partBytes"),
            ),
            Route(
                "POST",
                TOPIC + "/first-undecided",
                self._first_undecided,
                on_topic("consume"),
            ),
            Route("GET", "/v1/metrics", self._metrics, monitor),
            Route("POST", "/v1/admin/clean-up", self._clean_up, operator),
            Route("POST", "/v1/admin/prune", self._prune, operator),
            Route("POST", "/v1/admin/check", self._check, operator),
            Route("GET", "/v1/admin/backup", self._backup, operator),
        ]

    async def _peek(self, request: Request) -> Reply:
        fields = request.query()
        peeked = await self._server_context.in_slow_thread(
            self._administration.peek,
            request.topic,
            start=start_in(fields),
            limit=min(whole_number(fields.get("limit", "100"), "limit"), MOST_PEEKED),
        )
        return Reply(200, to_json(peeked), JSON)

    async def _inspect(self, request: Request) -> Reply:
        inspect = self._administration.inspect
        report = await self._server_context.in_slow_thread(
            inspect, request.topic, go_on=self._server_context.threads.go_on
        )
        return Reply(200, to_json(report), JSON)

    async def _splits(self, request: Request) -> Reply:
        fields = request.query()
        ids = await self._server_context.in_planning_thread(
            self._administration.splits,
            request.topic,
            start=MessageId.parse(_needed(fields, "from")),
            stop=MessageId.parse(_needed(fields, "to")),
            part_bytes=whole_number(_needed(fields, "partBytes"), "partBytes"),
        )
        return json_reply({"ids": [str(one) for one in ids]})

    async def _first_undecided(self, request: Request) -> Reply:
        asked = RANGE.read(read_json(request.body))
        found = await self._server_context.in_planning_thread(
            self._administration.first_undecided,
            request.topic,
            start=asked["from"],
            stop=asked["to"],
            snapshot=asked["transaction"],
        )
        return json_reply({"id": str(found)})

    async def _metrics(self, request: Request) -> Reply:
        metrics = await self._server_context.in_monitor_thread(
            self._administration.metrics
        )
        sees = sight(request.principal)
        if sees is not None:
            metrics = seen_metrics(metrics, sees)
        return Reply(200, to_json(metrics), JSON)

    async def _clean_up(self, _: Request) -> Reply:
        cleaned = await self._server_context.in_slow_thread(
            self._administration.clean_up, self._server_context.threads.go_on
        )
        return Reply(200, to_json(cleaned), JSON)

    async def _prune(self, request: Request) -> Reply:
        asked = PRUNE.read(read_json(request.body or b"{}"))
        pruned = await self._server_context.in_slow_thread(
            self._administration.prune,
            exclusive=asked["exclusive"],
            on_progress=self._server_context.threads.go_on,
        )
        return Reply(200, to_json(pruned), JSON)

    async def _check(self, _: Request) -> Reply:
        report = await self._server_context.in_slow_thread(
            self._administration.check, self._server_context.threads.go_on
        )
        return Reply(200, to_json(report), JSON)

    async def _backup(self, _: Request) -> Stream:
        chunks = await self._server_context.in_slow_thread(self._administration.backup)
        return Stream(self._pieces(chunks), "application/octet-stream")

    async def _pieces(self, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Yields one chunk at a time, as the client takes them."""
        while chunk := await self._server_context.in_slow_thread(next, chunks, b""):
            yield chunk


def _needed(fields: Mapping[str, str], name: str) -> str:
    if name not in fields:
        raise BadRequest(f"{name} is missing; splits needs from, to and partBytes")
    return fields[name]


PLAN, PIECE, FINISH = (
    f"/v1/admin/clean-up/{step}" for step in ("plan", "piece", "finish")
)


def _plan_id(value: object, *, what: str) -> str:
    """Reads the id of a plan; what no server gave out is a plan that is forgotten."""
    if isinstance(value, str):
        return value
    raise BadRequest(f"{what} is a string, not {shown(value)}")


_PLAN = Field("plan", Kind(_plan_id, TEXT.schema))
PLANNED = Body(
    "the body", (Field("pieces", plain(1, MOST_PIECES), default=1),), others=True
)
NAMED_PIECE = Body("the body", (_PLAN, Field("piece", plain())), others=True)
NAMED_PLAN = Body("the body", (_PLAN,), others=True)


class CleanUpRoutes:
    """Routes of a clean-up in pieces.

    The plan stays in this server; a client only names the piece to be done.
    """

    def __init__(self, server_context: ServerContext) -> None:
        self._in_slow_thread = server_context.in_slow_thread
        self._administration = server_context.administration

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        return [
            Route("POST", PLAN, self._plan, operator),
            Route("POST", PIECE, self._piece, operator),
            Route("POST", FINISH, self._finish, operator),
        ]

    async def _plan(self, request: Request) -> Reply:
        asked = PLANNED.read(read_json(request.body or b"{}"))
        plan = self._administration.plan_clean_up
        opened = await self._in_slow_thread(plan, pieces=asked["pieces"])
        return Reply(200, to_json(opened), JSON)

    async def _piece(self, request: Request) -> Reply:
        asked = NAMED_PIECE.read(read_json(request.body))
        clean = self._administration.clean_piece
        rows = await self._in_slow_thread(clean, asked["plan"], asked["piece"])
        return json_reply({"rows": rows})

    async def _finish(self, request: Request) -> Reply:
        asked = NAMED_PLAN.read(read_json(request.body))
        finish = self._administration.finish_clean_up
        cleaned = await self._in_slow_thread(finish, asked["plan"])
        return Reply(200, to_json(cleaned), JSON)
