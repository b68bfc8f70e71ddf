"""The client: the same calls as embedded, made of a server."""

from txaware.client.link import Link
from txaware.client.server_info import ServerInfo
from txaware.client.service import (
    CoordinatorSend,
    HttpAdministration,
    HttpGroups,
    HttpQueues,
    HttpService,
    HttpTables,
    within_limits,
)
from txaware.client.settings import ClientSettings
from txaware.client.transport import Transport

__all__ = [
    "ClientSettings",
    "CoordinatorSend",
    "HttpAdministration",
    "HttpGroups",
    "HttpQueues",
    "HttpService",
    "HttpTables",
    "Link",
    "ServerInfo",
    "Transport",
    "within_limits",
]
