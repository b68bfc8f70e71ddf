"""Routes of consumer groups: what a server adds to their verbs."""

from typing import Any

from txaware.protocol.groups import LAG
from txaware.protocol.verb import Verb
from txaware.server.exchange import Request
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import Act


def _lag(server_context: ServerContext, _: Request, asked: Any) -> dict[str, int]:
    administration = server_context.administration
    return {
        "lagMs": administration.lag_ms(asked.group, asked.topic),
        "oldestUnreadMs": administration.oldest_unread_ms(asked.group, asked.topic),
    }


ACTS: dict[Verb[..., Any], Act] = {LAG: _lag}
