"""Routes of a clean-up that many processes share: its plan, its pieces, its end."""

import attrs

from txaware.http.server.exchange import JSON, Reply, Request, json_reply
from txaware.http.server.permissions import operator
from txaware.http.server.routing import Route
from txaware.http.server.server_context import Hosted
from txaware.http.wire.values import from_json, to_json

PLAN, PIECE, FINISH = (
    f"/v1/admin/clean-up/{step}" for step in ("plan", "piece", "finish")
)


@attrs.frozen
class _Planned:
    """The body of a request for a plan."""

    pieces: int = 1


@attrs.frozen
class _Named:
    """The body that names a plan."""

    plan: str


@attrs.frozen
class _NamedPiece:
    """The body that names a piece of a plan."""

    plan: str
    piece: int


class CleanUpRoutes:
    """A plan stays here: who has its pieces done names them, and says nothing else."""

    def __init__(self, hosted: Hosted) -> None:
        self._in_slow_thread = hosted.in_slow_thread
        self._administration = hosted.administration

    def routes(self) -> list[Route]:
        """Methods and paths."""
        return [
            Route("POST", PLAN, self._plan, operator),
            Route("POST", PIECE, self._piece, operator),
            Route("POST", FINISH, self._finish, operator),
        ]

    async def _plan(self, request: Request) -> Reply:
        asked = from_json(_Planned, request.body or b"{}")
        plan = self._administration.plan_clean_up
        opened = await self._in_slow_thread(plan, pieces=asked.pieces)
        return Reply(200, to_json(opened), JSON)

    async def _piece(self, request: Request) -> Reply:
        asked = from_json(_NamedPiece, request.body)
        clean = self._administration.clean_piece
        rows = await self._in_slow_thread(clean, asked.plan, asked.piece)
        return json_reply({"rows": rows})

    async def _finish(self, request: Request) -> Reply:
        asked = from_json(_Named, request.body)
        finish = self._administration.finish_clean_up
        cleaned = await self._in_slow_thread(finish, asked.plan)
        return Reply(200, to_json(cleaned), JSON)
