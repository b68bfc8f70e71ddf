"""The route of the server's own description."""

import json
from collections.abc import Sequence

from txaware.http.openapi import described
from txaware.http.server.exchange import JSON, Reply, Request
from txaware.http.server.routing import Route


class OpenApiRoutes:
    """Describes all other routes, and this one."""

    def __init__(self, others: Sequence[Route]) -> None:
        own = Route("GET", "/openapi.json", self._answer, is_open=True)
        self._routes = [own]
        self._document = json.dumps(described([*others, own])).encode()

    def routes(self) -> list[Route]:
        """Methods and paths."""
        return self._routes

    async def _answer(self, _: Request) -> Reply:
        return Reply(200, self._document, JSON)
