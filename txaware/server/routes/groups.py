"""Routes of consumer groups: what a server adds to their verbs."""

from typing import Any

from txaware.protocol.groups import LAG, SAVE_POSITION, NewPosition
from txaware.protocol.verb import Verb
from txaware.server.exchange import Request
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import LATER, Act, Caller, OnOutcome, Soon
from txaware.service.wakeups import WouldWait


def _lag(server_context: ServerContext, _: Request, arguments: Any) -> dict[str, int]:
    administration = server_context.administration
    return {
        "lagMs": administration.lag_ms(arguments.group, arguments.topic),
        "oldestUnreadMs": administration.oldest_unread_ms(
            arguments.group, arguments.topic
        ),
    }


def _save_position(
    server_context: ServerContext,
    _: Caller,
    arguments: NewPosition,
    on_outcome: OnOutcome,
) -> object:
    """Saves in the event loop; what takes a position back reads, and has a thread."""
    service = server_context.service
    if arguments.position is None or service.reads_wait:
        raise WouldWait
    is_begun = service.save_position_soon(
        *(arguments.group, arguments.topic, arguments.position),
        transaction=arguments.transaction,
        post=server_context.outcomes.post,
        on_written=on_outcome,
    )
    if not is_begun:
        raise WouldWait
    return LATER


ACTS: dict[Verb[..., Any], Act] = {LAG: _lag}
SOON: dict[Verb[..., Any], Soon] = {SAVE_POSITION: _save_position}
