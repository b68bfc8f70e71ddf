"""The client: the same calls as embedded, made of a server."""

from txaware.http.client.calls.coordinator_calls import CoordinatorSend
from txaware.http.client.link import Link
from txaware.http.client.server_info import ServerInfo
from txaware.http.client.service import (
    HttpAdministration,
    HttpQueues,
    HttpService,
    HttpTables,
    within_limits,
)
from txaware.http.client.settings import ClientSettings
from txaware.http.client.transport import Transport

__all__ = [
    "ClientSettings",
    "CoordinatorSend",
    "HttpAdministration",
    "HttpQueues",
    "HttpService",
    "HttpTables",
    "Link",
    "ServerInfo",
    "Transport",
    "within_limits",
]
