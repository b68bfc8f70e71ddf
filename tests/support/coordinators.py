"""One fixture over every implementation of `Coordinator`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.interfaces import Coordinator
from coordinator.remote.client import RemoteCoordinator
from coordinator.remote.server import CoordinatorRoutes
from coordinator.transaction import Transaction

TEPHRA = pytest.mark.tephra
KINDS = [
    "memory",
    "durable",
    "remote-memory",
    "remote-durable",
    "http-memory",
    "http-durable",
    pytest.param("tephra", marks=TEPHRA),
    pytest.param("tephra_thrift", marks=TEPHRA),
    pytest.param("remote-tephra", marks=TEPHRA),
    pytest.param("http-tephra", marks=TEPHRA),
]


def commit_changes(coordinator: Coordinator, tx: Transaction, *changes: bytes) -> None:
    """Commits a transaction that changed these."""
    coordinator.can_commit(tx, changes)
    coordinator.commit(tx)


def remote(coordinator: Coordinator) -> RemoteCoordinator:
    """A coordinator behind requests and answers, without a network between them."""
    routes = CoordinatorRoutes(coordinator)

    def send(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        answer = routes.answer(method, path, body)
        return answer.status, answer.body

    return RemoteCoordinator(send)


@contextmanager
def served(coordinator: Coordinator) -> Iterator[Coordinator]:
    """A coordinator behind a real server, and over the real client."""
    with (
        txaware.connect("memory:", coordinator=coordinator) as messaging,
        messaging.serve() as server,
        txaware.connect("memory:", coordinator=server.url) as other,
    ):
        yield other.coordinator


@pytest.fixture(params=KINDS)
def coordinator(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Coordinator]:
    """Every implementation in turn; what is invalid there may be truncated at once."""
    kind: str = request.param
    where, _, name = kind.rpartition("-")
    inner: Any
    if name == "memory":
        inner = EmbeddedCoordinator(settle_grace_s=0)
    elif name == "durable":
        inner = EmbeddedCoordinator.open(tmp_path, settle_grace_s=0)
    else:
        inner = request.getfixturevalue(name)
    if where == "http":
        with served(inner) as by_http:
            yield by_http
    else:
        yield remote(inner) if where == "remote" else inner
    if name in ("memory", "durable"):
        inner.close()
