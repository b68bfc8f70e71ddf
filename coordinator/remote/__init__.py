"""Both ends of a coordinator over HTTP, without a web server."""

from coordinator.remote.client import (
    BYTES,
    JSON,
    ROOT,
    Answer,
    CoordinatorRoutes,
    RemoteCoordinator,
)

__all__ = ["BYTES", "JSON", "ROOT", "Answer", "CoordinatorRoutes", "RemoteCoordinator"]
