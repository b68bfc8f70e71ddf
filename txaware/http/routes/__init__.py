"""All routes of the server."""

from txaware.http.metrics.exposition import Exposition
from txaware.http.routes import groups, operator, producers, queues
from txaware.http.routes.commits import CommitRoutes
from txaware.http.routes.dashboard import DashboardRoutes, MetricsRoutes
from txaware.http.routes.messages import MessageRoutes
from txaware.http.routes.polls import PollingRoutes
from txaware.http.routes.prepared import PreparedRoutes
from txaware.http.routes.producers import ProducerRoutes
from txaware.http.routes.queue_jobs import QueueJobRoutes
from txaware.http.routes.tables import TableRoutes
from txaware.http.routes.topics import TopicRoutes
from txaware.http.routes.transactional_ids import TransactionalIdRoutes
from txaware.http.routes.transactions import TransactionRoutes
from txaware.http.routes.unguarded import OpenApiRoutes, OpenRoutes
from txaware.http.routes.verbs import verb_routes
from txaware.http.server.routing import Route
from txaware.http.server.server_context import ServerContext
from txaware.protocol import verbs
from txaware.service.monitor.overview import Overview

ACTS = groups.ACTS | operator.ACTS | producers.ACTS | queues.ACTS


def all_routes(
    server_context: ServerContext,
    overview: Overview,
    exposition: Exposition,
    *,
    needs_tokens: bool,
) -> list[Route]:
    """Returns every route of the server."""
    transactions = TransactionRoutes(server_context)
    routes = [
        *MessageRoutes(server_context).routes(),
        *PollingRoutes(server_context).routes(),
        *TopicRoutes(server_context).routes(),
        *TableRoutes(server_context).routes(),
        *PreparedRoutes(server_context).routes(),
        *QueueJobRoutes(server_context).routes(),
        *transactions.routes(),
        *CommitRoutes(server_context, transactions).routes(),
        *TransactionalIdRoutes(server_context, transactions).routes(),
        *operator.BackupRoutes(server_context).routes(),
        *verb_routes(server_context, verbs.VERBS, ACTS),
        *ProducerRoutes(server_context).routes(),
        *MetricsRoutes(server_context, exposition).routes(),
        *DashboardRoutes(server_context, overview).routes(),
        *OpenRoutes(server_context).routes(),
    ]
    return [*routes, *OpenApiRoutes(routes, needs_tokens=needs_tokens).routes()]
