"""Routes for operators: what a server adds to their verbs, and the backup."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from txaware.model.keeper import Keeper
from txaware.model.metrics import Metrics
from txaware.model.reports import Peeked
from txaware.protocol.operator import METRICS, MOST_PEEKED, PEEK, REPORT_KEEPER
from txaware.protocol.rights import operator
from txaware.protocol.verb import Verb
from txaware.server.exchange import Request, Stream
from txaware.server.metrics.topic_labels import seen_metrics
from txaware.server.routing import Route
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import Act
from txaware.service.monitor.overview import sight


def _peek(server_context: ServerContext, _: Request, arguments: Any) -> list[Peeked]:
    return server_context.administration.peek(
        arguments.topic, start=arguments.start, limit=min(arguments.limit, MOST_PEEKED)
    )


def _metrics(server_context: ServerContext, request: Request, _: Any) -> Metrics:
    metrics, sees = server_context.administration.metrics(), sight(request.principal)
    return metrics if sees is None else seen_metrics(metrics, sees)


def _report_keeper(
    server_context: ServerContext, request: Request, arguments: Any
) -> Keeper:
    """Notes who reported: the server cannot ask a keeper of somebody else."""
    return server_context.administration.report_keeper(
        arguments.name,
        arguments.smallest_pointer,
        principal=request.principal.name,
        is_operator=request.principal.is_operator,
    )


ACTS: dict[Verb[..., Any], Act] = {
    PEEK: _peek,
    METRICS: _metrics,
    REPORT_KEEPER: _report_keeper,
}


class BackupRoutes:
    """The route of a backup, which is streamed."""

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context

    def routes(self) -> list[Route]:
        """Returns the route."""
        return [Route("GET", "/v1/admin/backup", self._backup, operator)]

    async def _backup(self, _: Request) -> Stream:
        backup = self._server_context.administration.backup
        chunks = await self._server_context.in_slow_thread(backup)
        return streamed(self._server_context, chunks)


def streamed(server_context: ServerContext, chunks: Iterator[bytes]) -> Stream:
    """Returns what answers a backup's bytes, each chunk as the client takes it."""

    async def pieces() -> AsyncIterator[bytes]:
        while chunk := await server_context.in_slow_thread(next, chunks, b""):
            yield chunk

    return Stream(pieces(), "application/octet-stream")
