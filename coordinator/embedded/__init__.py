"""The embedded coordinator, which decides, and its journal, which remembers."""

from coordinator.embedded.coordinator import EmbeddedCoordinator

__all__ = ["EmbeddedCoordinator"]
