"""A browser, a server and the page, open and live."""

from collections.abc import Iterator

import pytest

import txaware
from tests.support.browser import Browser, chromium
from tests.support.pages import Clock
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.server.server import HttpServer


@pytest.fixture(scope="package")
def one_browser() -> Iterator[Browser]:
    """One for all files here, which are in one process (tests/support/workers.py)."""
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    yield one_browser
    one_browser.close_page()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def messaging(clock: Clock) -> Iterator[Messaging]:
    settings = Settings(janitor_interval_s=0)
    with txaware.connect("memory:", settings=settings, clock_ms=clock) as opened:
        opened.create_topic("orders")
        yield opened


@pytest.fixture
def server(messaging: Messaging) -> Iterator[HttpServer]:
    with messaging.serve() as serving:
        yield serving


@pytest.fixture
def page(browser: Browser, server: HttpServer) -> Iterator[Browser]:
    """The page, open and live; in the end nothing was said in the console."""
    browser.open(server.url)
    browser.reads("#connection", "Live")
    yield browser
    assert browser.complaints() == []
    browser.close_page()  # before its server
