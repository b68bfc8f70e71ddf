"""Routes without a permission of their own: health, schemas, limits, OpenAPI."""

import json
import logging
from collections.abc import Awaitable, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any

from txaware.auth import Principal
from txaware.errors import TxAwareError
from txaware.model.compression import usable_compressions
from txaware.protocol.formats import schemas
from txaware.server.exchange import DONE, JSON, Reply, Request, json_reply
from txaware.server.openapi import described, operation_of
from txaware.server.routing import OnReply, Route, in_a_task
from txaware.server.server_context import ServerContext

log = logging.getLogger(__name__)

OK, NOT_WELL = "OK", "not well; the log says why, and operators are told here"


class OpenRoutes:
    """Health, schemas, and what a client has to know of the server."""

    def __init__(self, server_context: ServerContext) -> None:
        self._server_context = server_context
        self._schemas = schemas()

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        return [
            Route(
                "GET",
                "/ping",
                in_a_task(self._ping),
                is_open=True,
                query=None,
                begin=self._ping,
            ),
            Route("POST", "/ping", self._nothing, is_open=True, query=None),
            Route("GET", "/health", self._health, is_open=True),
            Route("GET", "/v1/schemas", self._answer_schemas, is_open=True),
            Route("GET", "/v1/server", self._server),
            Route("GET", "/v1/servers", self._servers),
        ]

    def _ping(self, _: Request, __: OnReply) -> Reply:
        return Reply(200, b"OK", "text/plain; charset=utf-8")

    async def _nothing(self, _: Request) -> Reply:
        """Takes any body and does nothing: it shows the least that a request costs."""
        return DONE

    async def _health(self, request: Request) -> Reply:
        """Tells of both parts: a plain publish works while the coordinator is away."""
        principal = request.principal
        parts = {
            "table": await self._part(
                principal,
                self._server_context.in_thread(
                    self._server_context.administration.table_status
                ),
            ),
            "coordinator": await self._part(
                principal,
                self._server_context.in_coordinator_thread(
                    self._server_context.coordinator.status
                ),
            ),
        }
        is_well = all(status == OK for status in parts.values())
        return json_reply(
            {
                "status": OK if is_well else "not all parts are well",
                "parts": parts,
                "stopping": self._server_context.stopping.is_set,
            },
            status=200 if is_well and not self._server_context.stopping.is_set else 503,
        )

    async def _part(self, principal: Principal, status: Awaitable[str]) -> str:
        try:
            found = await status
        except TxAwareError as error:
            found = str(error)
        except Exception as error:  # an answer is owed, whatever a part comes up with
            log.exception("a part cannot be asked whether it is well")
            found = f"cannot be asked: {error}"
        return found if found == OK or principal.is_operator else NOT_WELL

    async def _answer_schemas(self, _: Request) -> Reply:
        return json_reply(self._schemas)

    async def _server(self, _: Request) -> Reply:
        found = self._server_context.servers()
        facts = found.facts or server_facts(self._server_context)
        return json_reply({"instance": found.instance, **facts})

    async def _servers(self, _: Request) -> Reply:
        return json_reply(self._server_context.servers().shown())


def server_facts(server_context: ServerContext) -> dict[str, Any]:
    """Returns what a client has to know of a server; home's holds for a cluster."""
    settings = server_context.settings
    return {
        "version": version("txaware"),
        "limits": {
            "requestBytes": settings.request_limit_bytes,
            "messageBytes": settings.message_limit_bytes,
            "bufferBytes": settings.buffer_limit_bytes,
            "carriedBytes": server_context.carried_bytes,
            "pollMessages": settings.poll_limit_messages,
            "pollBytes": settings.poll_limit_bytes,
            "longPollS": settings.long_poll_s,
            "transactionTimeoutS": settings.transaction_timeout_s,
            "maxTransactionTimeoutS": server_context.owners.longest_timeout_s,
        },
        "sharesJournal": server_context.shares_journal,
        "takesParticipants": True,
        "takesProducers": True,
        "takesSenders": True,
        "takesCommits": True,
        "commitsAtOnce": server_context.carried_bytes > 0,
        "takesWrites": server_context.write_entries is not None,
        "compressions": [*usable_compressions()],
        "settleGraceS": server_context.coordinator.settle_grace_s,
    }


class OpenApiRoutes:
    """Describes all other routes, and this one."""

    def __init__(self, others: Sequence[Route], *, needs_tokens: bool) -> None:
        own = Route("GET", "/openapi.json", self._answer, is_open=True)
        self._routes = [own]
        self._described = [*others, own]
        self._needs_tokens = needs_tokens
        for route in self._described:
            operation_of(route)  # a route without a description is a mistake of ours

    def routes(self) -> list[Route]:
        """Returns these routes, by method and path."""
        return self._routes

    async def _answer(self, _: Request) -> Reply:
        return Reply(200, self._document, JSON)

    @cached_property
    def _document(self) -> bytes:
        found = described(self._described, needs_tokens=self._needs_tokens)
        return json.dumps(found).encode()
