"""Frames behind nginx: one that passes the upgrade on, and one that does not."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import txaware
from tests.support.http_raw import serving
from tests.support.nginx import PASSES_IT_ON, nginx
from txaware.client import ClientSettings, HttpService, Link, Transport
from txaware.errors import Unavailable
from txaware.messaging import Messaging

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def use(messaging: Messaging) -> None:
    """Makes small and large calls at once, transactions, and one that waits."""

    def work(number: int) -> int:
        with messaging.transaction():
            messaging.publisher("t").publish(bytes(300_000))
        return len(messaging.poll("t", isolation="committed"))

    with ThreadPoolExecutor(9) as threads:
        end = messaging.poll("t").next
        waiting = threads.submit(
            messaging.poll, "t", start=end, inclusive=False, wait_s=30
        )
        assert all(threads.map(work, range(16)))
        assert waiting.result()


@pytest.mark.parametrize(("passes", "way"), [(True, "frames"), (False, "http")])
def test_a_proxy_decides_the_way(tmp_path: Path, passes: bool, way: str) -> None:
    with (
        serving() as here,
        nginx(tmp_path, here.server.url, passes_upgrades=passes) as url,
    ):
        with txaware.connect(url) as messaging:
            use(messaging)
            assert messaging.status().transport == way
        assert len(here.messaging.poll("t", limit=1000)) == 16
        asyncio.run(publish(url, way))


async def publish(url: str, way: str) -> None:
    async with txaware.connect_async(url) as messaging:
        async with messaging.transaction():
            await messaging.publisher("t").publish(b"from a task")
        assert (await messaging.status()).transport == way


@pytest.mark.parametrize("passes", [True, False])
def test_a_proxy_without_its_server_says_that_it_is_away(
    tmp_path: Path, passes: bool
) -> None:
    with serving() as here:
        url = here.server.url
    settings = ClientSettings(retry_for_s=0)
    with nginx(tmp_path, url, passes_upgrades=passes) as proxy:
        transport = Transport(Link(proxy, settings=settings))
        with pytest.raises(Unavailable, match="the upgrade was answered 502"):
            HttpService(transport).topics()
        transport.close()


def test_the_lines_of_nginx_are_those_of_the_page() -> None:
    page = OPERATIONS.read_text()
    for line in PASSES_IT_ON.split("\n"):
        assert line.strip() in page
