"""Routes of consumer groups: what a server adds to their verbs."""

from typing import Any

from txaware.http.routes.verbs import Act
from txaware.http.server.exchange import Request
from txaware.http.server.server_context import ServerContext
from txaware.protocol.groups import LAG
from txaware.protocol.verb import Verb


def _lag(server_context: ServerContext, _: Request, asked: Any) -> dict[str, int]:
    administration = server_context.administration
    return {
        "lagMs": administration.lag_ms(asked.group, asked.topic),
        "oldestUnreadMs": administration.oldest_unread_ms(asked.group, asked.topic),
    }


ACTS: dict[Verb[..., Any], Act] = {LAG: _lag}
