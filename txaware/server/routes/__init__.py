"""All routes of the server."""

from typing import Any

from txaware.protocol import verbs
from txaware.protocol.commits import COMMIT, COMMIT_AT_ONCE
from txaware.protocol.messages import BOUNDS, POLL, WAIT
from txaware.protocol.publishes import PUBLISH_ONCE
from txaware.protocol.transactional_ids import BEGIN_TRANSACTION
from txaware.protocol.transactions import BEGIN
from txaware.protocol.verb import Verb
from txaware.server.metrics.exposition import Exposition
from txaware.server.routes import (
    entries,
    groups,
    members,
    messages,
    operator,
    prepared,
    producers,
    queue_jobs,
    queues,
    tables,
    topics,
    transactional_ids,
    transactions,
)
from txaware.server.routes.commits import Commits
from txaware.server.routes.commits_at_once import CommitsAtOnce
from txaware.server.routes.dashboard import DashboardRoutes, MetricsRoutes
from txaware.server.routes.polls import Polls
from txaware.server.routes.producers import PublishesOnce
from txaware.server.routes.transactional_ids import BeginsOfIds
from txaware.server.routes.transactions import Begins
from txaware.server.routes.unguarded import OpenApiRoutes, OpenRoutes
from txaware.server.routes.verb_routes import upgrade_route, verb_routes
from txaware.server.routing import Route
from txaware.server.server_context import ServerContext
from txaware.server.verb_performer import Soon, VerbPerformer, performers
from txaware.service.monitor.overview import Overview

ACTS = (
    entries.ACTS
    | groups.ACTS
    | members.ACTS
    | messages.ACTS
    | operator.ACTS
    | prepared.ACTS
    | producers.ACTS
    | queues.ACTS
    | tables.ACTS
    | topics.ACTS
    | transactional_ids.ACTS
    | transactions.ACTS
)
# The verbs that the event loop begins.
SOON: dict[Verb[..., Any], Soon] = {
    **entries.SOON,
    **groups.SOON,
    **members.SOON,
    **messages.SOON,
    **queue_jobs.SOON,
    **transactions.SOON,
}


def all_performers(server_context: ServerContext) -> list[VerbPerformer]:
    """Returns what performs each declared verb."""
    polls = Polls(server_context)
    begins, commits = Begins(server_context), Commits(server_context)
    soon = SOON | {
        BEGIN: begins.soon,
        COMMIT: commits.soon,
        COMMIT_AT_ONCE: CommitsAtOnce(server_context, begins, commits).soon,
        BEGIN_TRANSACTION: BeginsOfIds(server_context).soon,
        POLL: polls.poll,
        WAIT: polls.wait,
        BOUNDS: polls.bounds,
        PUBLISH_ONCE: PublishesOnce(server_context).soon,
    }
    return performers(server_context, verbs.VERBS, ACTS, soon)


def all_routes(
    server_context: ServerContext,
    overview: Overview,
    exposition: Exposition,
    *,
    needs_tokens: bool,
) -> list[Route]:
    """Returns every route of the server."""
    routes = [
        *operator.BackupRoutes(server_context).routes(),
        *verb_routes(
            all_performers(server_context), transactions.written(server_context)
        ),
        *MetricsRoutes(server_context, exposition).routes(),
        *DashboardRoutes(server_context, overview).routes(),
        *OpenRoutes(server_context).routes(),
    ]
    if server_context.settings.frames:
        routes.append(upgrade_route())
    return [*routes, *OpenApiRoutes(routes, needs_tokens=needs_tokens).routes()]
