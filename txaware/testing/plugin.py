"""The pytest plugin: fixtures for programs that use txaware."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # pytest loads this module in every run, also where nobody needs it
    from txaware.messaging import Messaging
    from txaware.server.server import HttpServer
    from txaware.testing.failing_coordinator import FailingCoordinator
    from txaware.testing.manual_clock import ManualClock


@pytest.fixture
def messaging_clock() -> "ManualClock":
    """Returns the clock of `messaging`, which moves only as the test says."""
    from txaware.testing.manual_clock import ManualClock

    return ManualClock()


@pytest.fixture
def messaging(tmp_path: Path, messaging_clock: "ManualClock") -> "Iterator[Messaging]":
    """Opens an empty store in a directory of its own; nothing is cleaned up by itself.

    It keeps time by `messaging_clock`.
    """
    from txaware.messaging import connect
    from txaware.model.settings import Settings

    url, settings = f"leveldb:{tmp_path / 'messaging'}", Settings(janitor_interval_s=0)
    with connect(url, settings=settings, clock_ms=messaging_clock) as opened:
        yield opened


@pytest.fixture
def messaging_server(messaging: "Messaging") -> "Iterator[HttpServer]":
    """Serves `messaging`; its `url` is for `connect`."""
    with messaging.serve() as server:
        yield server


@pytest.fixture
def failing_coordinator(
    messaging_clock: "ManualClock",
) -> "Iterator[FailingCoordinator]":
    """Lends a coordinator in memory that fails, and loses answers, as the test says.

    `connect("memory:", coordinator=failing_coordinator)` uses it.
    """
    from coordinator import EmbeddedCoordinator
    from txaware.testing.failing_coordinator import FailingCoordinator

    with EmbeddedCoordinator(clock_ms=messaging_clock) as inner:
        yield FailingCoordinator(inner)
