"""Every view can be used by everybody, as far as axe can tell: wide, narrow, dark."""

import json
from typing import Any

import pytest

from tests.support.browser import Browser
from tests.support.pages import Clock, dead
from txaware.messaging import Messaging
from txaware.model.messages import Outgoing
from txaware.model.reports import OutboxReport, SetAsideFor
from txaware.server.server import HttpServer

# What is in the address, and what is to be read once the view is there.
VIEWS = {
    "": ("#topics", "orders"),
    "topics": ("#topics", "orders"),
    "groups": ("#groups", "billing"),
    "queues": ("#queues", "mail"),
    "tables": ("#tables", "stock"),
    "outboxes": ("#outboxes", "2 for topic gone"),
    "transactions": ("#transactions", "held"),
    "producers": ("#producers", "copier"),
    "topics/orders": ("#messages", "first"),
    "topics/orders?key=nobody": ("#messages", "Messages of orders"),
    "groups/billing/orders": ("#group", "Group billing in orders"),
    "queues/mail": ("#queue", "Queue mail"),
    "queues/mail?state=dead": ("#queue", "no address"),
    "tables/stock": ("#rows-view", "apples"),
}
LOOKS: dict[str, dict[str, Any]] = {
    "wide": {"width": 1280, "height": 900},
    "narrow and dark": {"width": 360, "height": 740, "dark": True},
}


def fill(messaging: Messaging, clock: Clock) -> None:
    """Leaves something to be seen in each view, of each kind."""
    messaging.publish("orders", [Outgoing(b'{"first": 1}', b"ann", {"till": b"3"})])
    report = OutboxReport(
        "o-1",
        "shop.db",
        *(12, 2, clock()),
        [SetAsideFor("topic gone", 2, "there is no topic gone", clock())],
    )
    with messaging.transaction():
        messaging.consumer("orders", group="billing").poll()
        messaging.table("stock").put(b"apples", b"12")
        messaging.table(OutboxReport.TABLE).put(report.key, report.to_bytes())
    dead(messaging, b"ann", b"bob")
    messaging.queue("mail").push(b"carol", delay_s=60)
    messaging.producer("copier").close()
    with messaging.transaction() as tx:
        messaging.publisher("orders").publish(b"held")
        tx.prepare("held")


@pytest.fixture
def filled(messaging: Messaging, clock: Clock, page: Browser) -> Browser:
    fill(messaging, clock)
    page.driver.refresh()
    page.reads("#connection", "Live")
    return page


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_in_any_view(filled: Browser, look: str) -> None:
    found = {}
    for address, (selector, text) in VIEWS.items():
        filled.show(**LOOKS[look])
        filled.run(f"location.hash = {json.dumps('#/' + address)}")
        filled.reads(selector, text)
        found[address] = filled.violations()
    assert {address: told for address, told in found.items() if told} == {}


def test_axe_finds_nothing_in_the_dialog_that_asks_once_more(filled: Browser) -> None:
    filled.run("location.hash = '#/queues/mail?state=dead'")
    filled.click("#redrive")
    filled.reads("dialog", "Redrive")
    assert filled.violations() == []
    filled.press("\ue00c")  # Escape


def test_axe_finds_nothing_in_the_reference(
    browser: Browser, server: HttpServer
) -> None:
    browser.open(server.url + "/docs")
    browser.reads("#count", "operations")
    assert browser.violations() == []


def test_what_axe_finds_is_told(page: Browser) -> None:
    page.run("document.body.append(document.createElement('button'))")
    [told] = page.violations()
    assert told.startswith("button-name: ")
