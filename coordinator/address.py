"""Opens the coordinator that an address names."""

from coordinator.embedded import EmbeddedCoordinator
from coordinator.errors import BadRequest
from coordinator.interfaces import Coordinator


def open_coordinator(address: str) -> Coordinator:
    """`embedded` lives in memory."""
    if address == "embedded":
        return EmbeddedCoordinator()
    raise BadRequest(f"{address!r} names no coordinator")
