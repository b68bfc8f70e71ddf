"""Where commands are run, and the store that they are run on in each way."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from txaware.messaging import Messaging

SAID = ("URL", "COORDINATOR", "TOKEN", "TOKEN_FILE")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to run commands in, with nothing said by the environment."""
    monkeypatch.chdir(tmp_path)
    for name in SAID:
        monkeypatch.delenv(f"TXAWARE_{name}", raising=False)
    return tmp_path


@pytest.fixture
def embedded() -> Iterator[Messaging]:
    """A store in memory, with a topic `t`."""
    with txaware.connect("memory:") as opened:
        opened.create_topic("t")
        yield opened


@pytest.fixture(params=["embedded", "http"])
def messaging(
    request: pytest.FixtureRequest, embedded: Messaging
) -> Iterator[Messaging]:
    """The store itself, and a client of its server."""
    if request.param == "embedded":
        yield embedded
        return
    with embedded.serve() as server, txaware.connect(server.url) as client:
        yield client
