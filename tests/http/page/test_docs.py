"""The reference of the HTTP interface, as people read it, made from /openapi.json."""

import json
import urllib.request
from collections.abc import Iterator

import pytest
from selenium.webdriver.common.by import By

from tests.support.browser import Browser
from tests.support.pages import focused
from txaware.server.server import HttpServer

REDRIVE = "post_v1_namespaces_namespace_queues_queue_redrive"


@pytest.fixture
def reference(browser: Browser, server: HttpServer) -> Iterator[Browser]:
    """The reference, open; in the end nothing was said in the console."""
    browser.open(server.url + "/docs")
    browser.reads("#count", "operations")
    yield browser
    assert browser.complaints() == []
    browser.close_page()


def test_each_operation_is_there_and_says_what_it_takes(
    reference: Browser, server: HttpServer
) -> None:
    with urllib.request.urlopen(server.url + "/openapi.json") as answer:
        described = json.load(answer)
    count = sum(map(len, described["paths"].values()))
    assert reference.text("#count").startswith(f"{count} operations")
    reference.run("for (const d of document.querySelectorAll('details')) d.open = true")
    reference.reads(f"#{REDRIVE}", "Moves dead letters back", "limit", "moved", "503")
    page = reference.text("#operations")
    for name in described["components"]["schemas"]:
        assert name in page
    broken = reference.run(
        "return [...document.querySelectorAll('#operations a')].map((a) => a.hash)"
        ".filter((hash) => !document.getElementById(hash.slice(1)))"
    )
    assert broken == []


def test_an_operation_has_an_address_and_is_found_by_words(
    reference: Browser, server: HttpServer
) -> None:
    reference.press("/")
    assert focused(reference) == "search"
    reference.driver.find_element(By.ID, "search").send_keys("dead letters back")
    reference.reads("#count", "1 operation,")
    reference.driver.get("about:blank")
    reference.driver.get(f"{server.url}/docs#{REDRIVE}")
    reference.reads(f"#{REDRIVE}", "Answers", "Idempotency-Key")


@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_and_comes_from_this_server_alone(
    reference: Browser, server: HttpServer, width: int
) -> None:
    reference.show(width=width, height=800, dark=True)
    reference.run("for (const d of document.querySelectorAll('details')) d.open = true")
    beyond = reference.run(
        "return document.documentElement.scrollWidth - arguments[0]", width
    )
    assert beyond <= 0
    asked = reference.run(
        "return performance.getEntriesByType('resource').map(e => e.name)"
    )
    assert all(url.startswith(server.url + "/") for url in asked)
    reference.click("h1 a")
    reference.reads("#connection", "Live")
