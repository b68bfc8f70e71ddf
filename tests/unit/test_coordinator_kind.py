"""Data says which coordinator decides: in refusals, in reports, and when that moves."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from coordinator import EmbeddedCoordinator
from tests.support.cli_runs import error_of, run
from tests.support.messagings import table_of
from txaware.errors import BadRequest
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.server.server import HttpServer
from txaware.store.keys import COORDINATOR_ADDRESS

QUIET = Settings(janitor_interval_s=0)


@pytest.fixture
def decider() -> Iterator[HttpServer]:
    """A server whose coordinator decides for others."""
    with txaware.connect("memory:") as messaging, messaging.serve() as server:
        yield server


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"leveldb:{tmp_path / 'data'}"


def opened(url: str, coordinator: str | EmbeddedCoordinator | None = None) -> Messaging:
    return txaware.connect(url, coordinator=coordinator, settings=QUIET)


def test_a_refusal_names_the_coordinator_and_what_to_type(
    url: str, decider: HttpServer
) -> None:
    with opened(url, decider.url):
        pass
    told = error_of("topic", "list", "--url", url, code=2)
    assert f"written with the coordinator '{decider.url}'" in told
    assert f"name it (--coordinator {decider.url})" in told
    run("--coordinator", decider.url, "topic", "list", "--url", url)


def test_a_refusal_of_data_with_an_embedded_one_says_to_name_none(
    url: str, decider: HttpServer
) -> None:
    with opened(url):
        pass
    told = error_of("--coordinator", decider.url, "topic", "list", "--url", url, code=2)
    assert "the coordinator 'embedded'" in told
    assert "leave --coordinator out" in told


def test_data_that_does_not_say_which_is_opened_and_says_it_from_then_on(
    url: str, decider: HttpServer
) -> None:
    """As that of the version before, and of whoever brings a coordinator of his own."""
    with opened(url, EmbeddedCoordinator()):
        pass
    told = error_of("topic", "list", "--url", url, code=2)
    assert "whose address was not kept: name it (--coordinator tephra:DIR, " in told
    with opened(url, decider.url):
        pass
    with pytest.raises(BadRequest, match=f"--coordinator {decider.url}"):
        opened(url)


def test_a_directory_of_tephra_is_kept_whole(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "txaware.messaging.named_coordinator.open_coordinator",
        lambda *_, **__: EmbeddedCoordinator(),
    )
    with opened(url, "tephra:here") as messaging:
        kept = table_of(messaging).get(COORDINATOR_ADDRESS)
    assert kept == f"tephra:{tmp_path}/here".encode()


def test_a_coordinator_that_has_moved_is_kept_and_told(
    url: str, decider: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    other = decider.url.replace("127.0.0.1", "localhost")
    with opened(url, decider.url):
        pass
    with caplog.at_level(logging.WARNING), opened(url, decider.url):
        assert not caplog.messages
    with caplog.at_level(logging.WARNING), opened(url, other):
        (said,) = caplog.messages
    assert f"was at {decider.url} and is at {other} now" in said
    with pytest.raises(BadRequest, match=other):
        opened(url)


def test_the_overview_and_a_check_say_who_decides(
    url: str, decider: HttpServer
) -> None:
    with opened(url, decider.url) as messaging:
        assert messaging._parts.served is not None
        report = messaging._parts.served.overview.snapshot()
        assert (report.coordinator, report.decided_by) == ("OK", decider.url)
        assert messaging.check().coordinator == decider.url
        assert messaging.check().is_clean
        with messaging.serve() as server, txaware.connect(server.url) as remote:
            assert remote.check().coordinator == decider.url


def test_a_copy_to_data_of_another_coordinator_names_that(
    url: str, decider: HttpServer, tmp_path: Path
) -> None:
    with opened(url) as messaging:
        messaging.create_topic("t")
    target = f"leveldb:{tmp_path / 'copy'}"
    with opened(target, decider.url):
        pass
    with pytest.raises(BadRequest, match=f"copy was written .* '{decider.url}'"):
        txaware.copy(url, target)
