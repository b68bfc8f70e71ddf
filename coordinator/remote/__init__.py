"""Both ends of a coordinator over HTTP, without a web server."""

from coordinator.remote.calls import ROOT
from coordinator.remote.client import RemoteCoordinator
from coordinator.remote.server import CoordinatorRoutes
from coordinator.remote.wire import BYTES, JSON, Answer

__all__ = ["BYTES", "JSON", "ROOT", "Answer", "CoordinatorRoutes", "RemoteCoordinator"]
