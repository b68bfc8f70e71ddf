"""The embedded coordinator: it decides, and its journal remembers."""

from coordinator.embedded.coordinator import EmbeddedCoordinator

__all__ = ["EmbeddedCoordinator"]
