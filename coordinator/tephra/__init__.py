"""Apache Tephra itself: in a JVM of our own, or elsewhere by its Thrift service."""

from coordinator.tephra.tephra_coordinator import TephraCoordinator
from coordinator.tephra.thrift_calls import ThriftCoordinator

__all__ = ["TephraCoordinator", "ThriftCoordinator"]
