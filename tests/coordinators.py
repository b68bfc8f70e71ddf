"""One fixture over every implementation of `Coordinator`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.embedded import EmbeddedCoordinator
from coordinator.interfaces import Coordinator
from coordinator.remote import CoordinatorRoutes, RemoteCoordinator

TEPHRA = pytest.mark.tephra
KINDS = [
    "memory",
    "durable",
    "remote-memory",
    "remote-durable",
    pytest.param("tephra", marks=TEPHRA),
    pytest.param("tephra_thrift", marks=TEPHRA),
    pytest.param("remote-tephra", marks=TEPHRA),
]


def remote(coordinator: Coordinator) -> RemoteCoordinator:
    """A coordinator behind requests and answers, without a network between them."""
    routes = CoordinatorRoutes(coordinator)

    def send(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        answer = routes.answer(method, path, body)
        return answer.status, answer.body

    return RemoteCoordinator(send)


@pytest.fixture(params=KINDS)
def coordinator(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Coordinator]:
    """Every implementation in turn; what is invalid there may be truncated at once."""
    kind: str = request.param
    name = kind.removeprefix("remote-")
    inner: Any
    if name == "memory":
        inner = EmbeddedCoordinator(settle_grace_s=0)
    elif name == "durable":
        inner = EmbeddedCoordinator.open(tmp_path, settle_grace_s=0)
    else:
        inner = request.getfixturevalue(name)
    yield remote(inner) if kind.startswith("remote-") else inner
    if name in ("memory", "durable"):
        inner.close()
