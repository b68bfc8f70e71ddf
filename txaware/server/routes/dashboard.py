"""The page for operators, and what it shows."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import attrs

from txaware.auth import QUEUE_VERBS, VERBS, Principal
from txaware.errors import BadRequest, NotAuthorized
from txaware.model.partitions import named_partition
from txaware.model.topics import (
    DEFAULT_NAMESPACE,
    QueueName,
    TableName,
    checked_group,
)
from txaware.protocol.rights import monitor
from txaware.protocol.values import to_json
from txaware.server.dashboard import FILES, HEADERS, PAGES
from txaware.server.exchange import JSON, Reply, Request, json_reply
from txaware.server.metrics.exposition import Exposition
from txaware.server.routing import Route
from txaware.server.server_context import ServerContext
from txaware.service.monitor.overview import Overview, sight

_HEADERS = tuple((name.encode(), value.encode()) for name, value in HEADERS.items())


class DashboardRoutes:
    """Routes of the page: its files for anybody, its data for those who may monitor."""

    def __init__(self, server_context: ServerContext, overview: Overview) -> None:
        self._server_context = server_context
        self._overview = overview

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        return [
            *(
                Route(
                    "GET",
                    path,
                    self._file,
                    is_open=True,
                    query=None,
                    is_page=path in PAGES,
                )
                for path in FILES
            ),
            Route(
                "GET",
                "/v1/overview",
                self._answer,
                query=("search", "namespace", "history"),
            ),
            Route(
                "GET",
                "/v1/rights",
                self._rights,
                query=("topic", "group", "queue", "table"),
            ),
        ]

    async def _file(self, request: Request) -> Reply:
        content_type, data = FILES[request.path]
        return Reply(200, data, content_type, _HEADERS)

    async def _answer(self, request: Request) -> Reply:
        principal = request.principal
        principal.require_monitor()
        fields = request.query()

        snapshot = partial(
            self._overview.snapshot,
            search=fields.get("search", ""),
            namespace=fields.get("namespace"),
            sees=sight(principal),
            history=_flag(fields.get("history", "false")),
        )
        report = await self._server_context.in_monitor_thread(snapshot)
        enrich = self._server_context.owners.enrich
        found = [enrich(one.id, one) for one in report.transactions]
        shown = attrs.evolve(
            report,
            transactions=found,
            coordinator=self._server_context.redacted(principal, report.coordinator),
            store=self._server_context.redacted(principal, report.store),
        )
        return Reply(200, to_json(shown), JSON)

    async def _rights(self, request: Request) -> Reply:
        refused = {}
        for right, require in _rights_to_check(request.principal, request.query()):
            try:
                require()
            except NotAuthorized as error:
                refused[right] = str(error)
        return json_reply({"principal": request.principal.name, "refused": refused})


def _rights_to_check(
    principal: Principal, names: Mapping[str, str]
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yields what somebody may want to do with these, and what refuses it."""
    yield "operate", principal.require_operator
    yield "transactions", principal.require_transactions
    namespace = DEFAULT_NAMESPACE
    if "topic" in names:
        topic, _ = named_partition(names["topic"])
        namespace = topic.namespace
        for verb in VERBS:
            yield verb, partial(principal.require, verb, topic)
    if "group" in names:
        group = checked_group(names["group"])
        yield "group", partial(principal.require_group, namespace, group)
    if "queue" in names:
        queue = QueueName.parse(names["queue"])
        for act in QUEUE_VERBS:
            yield act, partial(principal.require_queue, act, queue)
    if "table" in names:
        table = TableName.parse(names["table"])
        place = table.namespace, table.name
        yield "read", partial(principal.require_table, "consume", *place)


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise BadRequest(f"history is true or false, not {text[:50]!r}")
    return text == "true"


class MetricsRoutes:
    """Routes of metrics: what the client may see, in the form that it asks for."""

    def __init__(self, server_context: ServerContext, exposition: Exposition) -> None:
        self._server_context = server_context
        self._exposition = exposition

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        return [Route("GET", "/metrics", self._metrics, monitor)]

    async def _metrics(self, request: Request) -> Reply:
        accept = request.headers.get(b"accept", b"").decode("latin-1")
        content_type, body = await self._server_context.in_monitor_thread(
            self._exposition.text, accept, sight(request.principal)
        )
        return Reply(200, body, content_type)
