"""The table of what is written by hand, for every route there is."""

from txaware.http.openapi import message_operations as of_messages
from txaware.http.openapi import of_clean_up, of_keepers, of_topics
from txaware.http.openapi import server_operations as of_server
from txaware.http.openapi import transaction_operations as of_transactions
from txaware.http.openapi.operation import Operation
from txaware.http.server.routing import Route

OPERATIONS: dict[tuple[str, str], Operation] = {
    **of_messages.OPERATIONS,
    **of_topics.OPERATIONS,
    **of_transactions.OPERATIONS,
    **of_server.OPERATIONS,
    **of_clean_up.OPERATIONS,
    **of_keepers.OPERATIONS,
}


def operation_of(route: Route) -> Operation:
    """What is written of a route; a `KeyError` where nothing is."""
    return OPERATIONS[route.method, route.path]
