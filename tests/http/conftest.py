"""The servers that most tests of clients and routes have."""

from collections.abc import Iterator

import pytest

from tests.support.http_served import ServedStore, served
from tests.support.scripted_server import ScriptedServer


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A server that answers as it is told to."""
    with ScriptedServer() as opened:
        yield opened


@pytest.fixture
def store() -> Iterator[ServedStore]:
    """A store in memory with a topic `t`, and its server."""
    with served() as opened:
        opened.messaging.create_topic("t")
        yield opened
