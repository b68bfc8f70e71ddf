"""Routes of users' tables: what a server adds to their verbs."""

from typing import Any

from txaware.protocol.tables import LIST_TABLES
from txaware.protocol.verb import Verb
from txaware.server.exchange import Request
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import Act


def _names(
    server_context: ServerContext, request: Request, arguments: Any
) -> list[str]:
    may_see, namespace = request.principal.may_see_table, arguments.namespace
    names = server_context.tables.tables(namespace)
    return [name for name in names if may_see(namespace, name)]


ACTS: dict[Verb[..., Any], Act] = {LIST_TABLES: _names}
