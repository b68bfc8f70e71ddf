"""The route that Prometheus asks."""

from txaware.http.metrics.exposition import Exposition
from txaware.http.server.exchange import Reply, Request
from txaware.http.server.permissions import monitor, sight
from txaware.http.server.routing import Route
from txaware.http.server.server_context import Hosted


class MetricsRoutes:
    """Metrics of what the client may see, in the form that it asks for."""

    def __init__(self, hosted: Hosted, exposition: Exposition) -> None:
        self._hosted = hosted
        self._exposition = exposition

    def routes(self) -> list[Route]:
        """Methods and paths."""
        return [Route("GET", "/metrics", self._metrics, monitor)]

    async def _metrics(self, request: Request) -> Reply:
        accept = request.headers.get(b"accept", b"").decode("latin-1")
        content_type, body = await self._hosted.in_monitor_thread(
            self._exposition.text, accept, sight(request.principal)
        )
        return Reply(200, body, content_type)
