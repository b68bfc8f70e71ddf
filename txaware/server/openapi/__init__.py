"""The server's description in OpenAPI 3.1, made from its table of routes."""

from txaware.server.openapi.document import described, operation_of

__all__ = ["described", "operation_of"]
