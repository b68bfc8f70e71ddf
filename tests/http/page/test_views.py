"""The views of the page: each has an address, and shows one thing whole."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.support.browser import Browser
from tests.support.messagings import payloads
from tests.support.pages import Clock, dead, focused, row_reads
from txaware.auth import digest_text, new_token
from txaware.messaging import Messaging
from txaware.model.messages import Outgoing
from txaware.model.reports import OutboxReport, SetAsideFor
from txaware.server.server import HttpServer


def go(page: Browser, address: str) -> None:
    """Opens an address in this tab, as a link that somebody sent."""
    page.run(f"location.hash = {json.dumps('#/' + address)}")


def follow(page: Browser, selector: str, name: str) -> None:
    """Clicks the link of that name."""

    def link() -> bool:
        found = [one for one in page.all(f"{selector} a") if one.text == name]
        if found:
            found[0].click()
        return bool(found)

    page.wait(link, f"a link {name} in {selector}")


def test_names_are_links_and_a_link_can_be_sent(
    page: Browser, messaging: Messaging, server: HttpServer
) -> None:
    messaging.publish("orders", [b"first"])
    with messaging.transaction():
        messaging.consumer("orders", group="billing").poll()
        messaging.table("stock").put(b"apples", b"12")
    messaging.create_queue("shop:mail")
    links = {
        ("#topics", "orders"): ("#messages", "Messages of orders"),
        ("#groups", "billing"): ("#group", "Group billing in orders"),
        ("#queues", "shop:mail"): ("#queue", "Queue shop:mail"),
        ("#tables", "stock"): ("#rows-view", "Table stock"),
    }
    for (table, name), (view, heading) in links.items():
        follow(page, table, name)
        page.reads(view, heading)
        page.wait(lambda: focused(page).endswith("heading"), "the heading in focus")
        url = page.driver.current_url
        page.driver.back()
        page.reads("#topics", "orders")
        page.driver.get("about:blank")
        page.driver.get(url)
        page.reads(view, heading)
        assert page.run("return document.title").endswith("- txaware")
        page.driver.get(server.url)
        page.reads("#topics", "orders")


def test_a_part_has_an_address_and_so_has_a_search(
    page: Browser, messaging: Messaging
) -> None:
    messaging.create_queue("mail")
    page.click("#parts a[href='#/queues']")
    page.reads("#queues", "mail")
    assert page.text("#topics") == ""
    page.driver.find_element(By.ID, "search").send_keys("mai")
    page.wait(lambda: "search=mai" in page.driver.current_url, "it in the address")
    page.driver.refresh()
    page.reads("#queues", "mail")
    assert page.run("return document.getElementById('search').value") == "mai"
    go(page, "groups/billing")  # the rest was cut off where it was pasted
    page.reads("body", "No group has a position")
    assert page.text("#lost") == ""
    go(page, "nothing/like/it")
    page.reads("#topics", "orders")


def test_a_queue_shows_its_items_by_state(page: Browser, messaging: Messaging) -> None:
    dead(messaging, b'{"to": "ann", "number": 12345678901234567890}')
    queue = messaging.queue("mail")
    queue.push(b"first")
    queue.push(b"second", key=b"k", headers={"h": b"1"})
    queue.push(b"later", delay_s=3600)
    assert queue.popper(name="host-7").pop() is not None
    go(page, "queues/mail")
    page.reads("#items", "second", "key k", "h: 1", "pushed")
    assert "first" not in page.text("#items")
    follow(page, "#states", "In work 1")
    page.reads("#items", "first", "host-7 has it for", "until", "1 delivery")
    follow(page, "#states", "Delayed 1")
    page.reads("#items", "later", "waits until")
    follow(page, "#states", "Dead 1")
    page.reads("#items", "LookupError: no address for", "Traceback")
    page.reads("#items", '{\n  "to": "ann",\n  "number": 12345678901234567890\n}')
    page.click("#items summary")
    page.reads("#items", "Traceback (most recent call last):", "in handler")
    assert "state=dead" in page.driver.current_url
    follow(page, "#queue-facts", "mail-dead")
    page.reads("#queue", "Queue mail-dead", "Waiting 1")


def test_redrive_is_asked_once_more_and_the_counts_follow(
    page: Browser, messaging: Messaging
) -> None:
    dead(messaging, b"a", b"b")
    go(page, "queues/mail?state=dead")
    page.reads("#states", "Waiting 0", "Dead 2")
    page.click("#redrive")
    page.reads("dialog[open]", "Send the dead letters back?", "2 letters in mail-dead")
    assert focused(page) == "Leave them dead"  # Enter alone changes nothing
    page.press(Keys.ENTER)
    page.wait(lambda: not page.all("dialog[open]"), "the dialog closed")
    assert messaging.queue("mail").peek() == []
    page.click("#redrive")
    follow_button(page, "Redrive")
    page.reads("#states", "Waiting 2", "Dead 0")
    page.reads("#items-none", "No dead letter waits.")
    assert len(messaging.queue("mail").peek()) == 2
    assert page.run("return document.getElementById('announce').textContent") == (
        "2 dead letters went back to mail."
    )


def test_a_queue_is_paused_and_goes_on_by_keyboard(
    page: Browser, messaging: Messaging
) -> None:
    messaging.create_queue("mail")
    go(page, "queues/mail")
    page.reads("#queue", "Queue mail", "Pause")
    page.wait(lambda: focused(page) == "queue-heading", "the heading in focus")
    while focused(page) != "pause":
        page.press(Keys.TAB)
        assert focused(page), "there is no way to the button"
    page.press(Keys.ENTER)
    page.reads("dialog[open]", "Pause")
    page.press(Keys.ESCAPE)
    page.wait(lambda: focused(page) == "pause", "the focus where it was")
    page.press(Keys.ENTER)
    page.wait(lambda: page.all("dialog[open]"), "the dialog")
    page.press(Keys.TAB)
    assert focused(page) == "ending-now"
    page.press(Keys.ENTER)
    page.reads("#queue-state", "paused")
    assert messaging.queue("mail").stats().is_paused
    page.wait(lambda: focused(page) == "resume", "the focus on what took its place")
    messaging.delete_queue("mail")
    page.press(Keys.ENTER)
    page.wait(lambda: page.all("dialog[open]"), "the dialog")
    page.press(Keys.TAB, Keys.ENTER)
    page.reads("#ending-problem", "does not exist")
    page.wait(
        lambda: focused(page) not in ("", "ending-now"), "the focus on the way out"
    )
    page.press(Keys.ENTER)
    page.wait(lambda: not page.all("dialog[open]"), "the dialog closed")
    go(page, "")
    page.reads("#topics", "orders")
    page.complaints(but="404")


def follow_button(page: Browser, name: str) -> None:
    """Clicks the button of that name in the dialog."""
    [button] = [one for one in page.all("dialog[open] button") if one.text == name]
    button.click()


def test_a_queue_is_paused_resumed_and_emptied(
    page: Browser, messaging: Messaging
) -> None:
    messaging.create_queue("mail")
    queue = messaging.queue("mail")
    queue.push_all([b"a", b"b"])
    go(page, "queues/mail")
    for button, said, state in (
        ("Pause", "Pause this queue?", "paused"),
        ("Resume", "Resume this queue?", ""),
    ):
        page.click(f"#{button.lower()}")
        page.reads("dialog[open]", said)
        follow_button(page, button)
        page.wait(lambda: page.text("#queue-state").startswith(state), state)  # noqa: B023
        page.wait(lambda: not page.all("dialog[open]"), "the dialog closed")
        assert queue.descriptor.is_paused is (button == "Pause")
    page.click("#truncate")
    page.reads("dialog[open]", "Remove all items?", "2 items waiting", "taken back")
    follow_button(page, "Truncate")
    page.reads("#states", "Waiting 0")
    assert queue.peek() == []


def test_a_group_is_moved_and_moved_back(
    page: Browser, messaging: Messaging, clock: Clock
) -> None:
    messaging.publish("orders", [b"1"])
    clock.ahead_ms += 3_600_000
    messaging.publish("orders", [b"2"])

    def read() -> list[bytes]:
        with messaging.transaction():
            return payloads(messaging.consumer("orders", group="billing").poll())

    assert read() == [b"1", b"2"]
    go(page, "groups/billing/orders")
    page.reads("#group-facts", "It stands after", "messages from there")
    page.click("#rewind")
    page.reads("dialog[open]", "Move group billing?", "Its next message in orders")
    follow_button(page, "Rewind")
    page.wait(lambda: page.text("#group-rows .figure") == "1", "1 rows behind")
    assert read() == [b"2"]
    page.click("#group-reset button")
    page.reads("dialog[open]", "is the oldest message")
    follow_button(page, "Reset")
    page.wait(lambda: page.text("#group-rows .figure") == "2", "2 rows behind")
    assert page.run("return document.getElementById('announce').textContent") == (
        "Group billing reads the oldest message next."
    )
    page.run("document.getElementById('reset-to').value = 'next'")
    page.click("#group-reset button")
    page.reads("dialog[open]", "published from now on")
    follow_button(page, "Reset")
    page.wait(lambda: page.text("#group-rows .figure") == "0", "0 rows behind")
    assert read() == []
    assert not [*messaging.coordinator.snapshot().in_progress]


def test_the_members_of_a_group_are_shown_live(
    page: Browser, messaging: Messaging
) -> None:
    messaging.create_topic("parts", partitions=2)
    messaging.publish("parts.0", [b"0"])
    options: dict[str, Any] = {"topics": ["parts"]}
    with messaging.member("billing", static="ann", **options) as ann:
        assert payloads(ann.poll(timeout_s=20)) == [b"0"]
        go(page, "groups/billing/parts.0")
        page.reads("#group-generation", "Generation 1", "ann joined")
        page.reads("#group-facts", "It stands at the beginning")
        row_reads(page, "ann", "parts.0, parts.1", "1", table="members")
        ann.commit()
        row_reads(page, "ann", "parts.0, parts.1", "0", table="members")
        with messaging.member("billing", static="ben", **options) as ben:
            page.reads("#group-generation", "ben joined")
            while not ben.assignment:
                ben.poll(timeout_s=0.05)
                ann.poll()
            row_reads(page, "ann", table="members")
            row_reads(page, "ben", "parts.", table="members")
    messaging._parts.groups.leave_group("billing", "ann")
    messaging._parts.groups.leave_group("billing", "ben")
    page.reads("#group", "Nobody is a member at the moment.")
    go(page, "groups/other/parts.0")
    page.reads("#group", "No members share it")


def test_the_members_of_a_group_that_is_moved_go_on_from_there(
    page: Browser, messaging: Messaging
) -> None:
    messaging.create_topic("parts", partitions=2)
    messaging.publish("parts.0", [b"0"])
    messaging.publish("parts.1", [b"1"])
    with messaging.member("billing", topics=["parts"]) as member:
        assert payloads(member.poll(timeout_s=20)) == [b"0", b"1"]
        member.commit()
        go(page, "groups/billing/parts.1")
        page.wait(lambda: page.text("#group-rows .figure") == "0", "0 rows behind")
        page.click("#group-reset button")
        page.reads("dialog[open]", "is the oldest message")
        follow_button(page, "Reset")
        assert payloads(member.poll(timeout_s=20)) == [b"1"]
        member.commit()


LINES = """
return ["#group-unread", "#group-rows"].map(
  (at) => document.querySelector(`${at} .line`).getAttribute("d").split("L").length);
"""


def test_the_lag_of_a_group_over_time_is_there_at_once(
    page: Browser, messaging: Messaging, clock: Clock
) -> None:
    messaging.publish("orders", [b"1", b"2"])
    with messaging.transaction():
        messaging.consumer("orders", group="billing").poll(limit=1)
    for behind in (1, 2, 3):
        row_reads(page, "billing", str(behind), "behind", table="groups")
        clock.ahead_ms += 10_000
        messaging.publish("orders", [b"m"])
    go(page, "groups/billing/orders")
    page.wait(lambda: page.text("#group-rows .figure") == "4", "4 rows behind")
    page.reads("#group-unread", "2 min ago", "now")
    page.wait(lambda: min(page.run(LINES)) >= 10, "20 s of history")


def test_a_table_is_read_page_by_page_and_by_a_prefix(
    page: Browser, messaging: Messaging
) -> None:
    with messaging.transaction():
        table = messaging.table("stock")
        for number in range(120):
            table.put(b"apples-%03d" % number, b'{"left": %d}' % number)
        table.put(b"pears", b"\x00\xff")
    go(page, "tables/stock")
    page.reads("#table-rows", "apples-000", '"left": 49')
    assert "apples-050" not in page.text("#table-rows")
    page.click("#rows-later")
    page.reads("#table-rows", "apples-050")
    page.click("#rows-later")
    page.reads("#table-rows", "apples-100", "pears", "00 ff")
    page.reads("#rows-place", "21 rows, the last ones")
    page.driver.refresh()
    page.reads("#table-rows", "apples-100")
    page.click("#rows-earlier")
    page.reads("#table-rows", "apples-000")
    page.driver.find_element(By.ID, "prefix").send_keys("pea", Keys.TAB)
    page.reads("#rows-place", "1 row, the last ones")
    assert "prefix=pea" in page.driver.current_url


def test_outboxes_show_their_backlog_and_what_is_set_aside(
    page: Browser, messaging: Messaging, clock: Clock
) -> None:
    page.reads("#outboxes", "No relay has told of an outbox.")
    aside = [
        SetAsideFor("topic gone", 2, "there is no topic gone", clock() - 60_000),
        SetAsideFor("queue mail", 1, "there is no queue mail", clock()),
    ]
    report = OutboxReport("o-1", "shop.db", 12, 3, clock(), aside)
    with messaging.transaction():
        messaging.table(OutboxReport.TABLE).put(report.key, report.to_bytes())
    row_reads(page, "shop.db", "12", "3 messages cannot be carried", table="outboxes")
    page.reads("#outboxes .set-aside", "2 for topic gone", "there is no topic gone")
    page.reads("#outboxes .set-aside", "1 for queue mail", "there is no queue mail")
    go(page, "outboxes")
    page.reads("#outboxes", "shop.db")
    assert page.text("#topics") == ""


def test_messages_are_found_by_key_header_text_and_time(
    page: Browser, messaging: Messaging, clock: Clock
) -> None:
    messaging.publish("orders", [Outgoing(b"Apples for ann", b"ann", {"till": b"3"})])
    clock.ahead_ms += 60_000
    messaging.publish("orders", [Outgoing(b"pears for ann", b"ann")])
    messaging.publish("orders", [Outgoing(b"apples for bob", b"bob", {"till": b"4"})])
    with messaging.transaction():
        publisher = messaging.publisher("orders", buffer_limit_bytes=1)
        publisher.publish(b"apples ahead")
    found = {
        "key=ann": ["Apples for ann", "pears for ann"],
        "header=till": ["Apples for ann", "apples for bob"],
        "header=till%3D4": ["apples for bob"],
        "text=APPLES": ["Apples for ann", "apples for bob", "apples ahead"],
        "text=apples&key=ann": ["Apples for ann"],
        f"text=apples&until={clock() - 30_000}": ["Apples for ann"],
        f"text=apples&from={clock() - 30_000}": ["apples for bob", "apples ahead"],
        "key=nobody": [],
    }
    for query, wanted in found.items():
        go(page, f"topics/orders?{query}")
        page.wait(
            lambda: [one.text for one in page.all("#rows pre")] == wanted,  # noqa: B023
            f"{wanted} for {query}",
        )
    page.reads("#messages-place", "None of 4 rows fits.")
    page.click("#newest")
    page.reads("#rows", "apples for bob")
    page.driver.find_element(By.ID, "by-key").send_keys("bob", Keys.ENTER)
    page.wait(lambda: len(page.all("#rows pre")) == 1, "one message")
    assert "key=bob" in page.driver.current_url


def test_newer_messages_are_told_of_and_move_nobodys_page(
    page: Browser, messaging: Messaging
) -> None:
    messaging.publish("orders", [b"first"])
    go(page, "topics/orders")
    page.reads("#rows", "first")
    messaging.publish("orders", [b"second"])
    page.reads("#newer", "There are newer ones.")
    assert "second" not in page.text("#rows")
    page.click("#newest")
    page.reads("#rows", "second")


def test_what_is_shown_can_be_kept_as_a_file(
    page: Browser, messaging: Messaging, tmp_path: Path
) -> None:
    messaging.publish("orders", [Outgoing(b"\x00\xff", b"k", {"h": b"1"}), b"text"])
    page.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior",
        {"behavior": "allow", "downloadPath": str(tmp_path)},
    )
    go(page, "topics/orders")
    page.reads("#rows", "00 ff", "text")
    page.click("#download-messages")
    page.wait(lambda: [*tmp_path.glob("*.jsonl")], "a file")
    lines = (tmp_path / "orders.jsonl").read_text().splitlines()
    first, second = map(json.loads, lines)
    assert (first["payload"], first["key"]) == ({"base64": "AP8="}, "k")
    assert (first["headers"], second["payload"]) == ({"h": "1"}, "text")
    page.click("#rows button.small")
    page.wait(lambda: len([*tmp_path.glob("orders-*")]) == 1, "the payload")
    [kept] = tmp_path.glob("orders-*")
    page.wait(lambda: kept.read_bytes() == b"\x00\xff", "its bytes")


RULES = """
[principals.ops]
tokens = ["{}"]
[[principals.ops.rules]]
monitor = true
topics = ["*"]
queues = ["*"]
[[principals.ops.rules]]
tables = ["stock"]
topics = ["*"]
verbs = ["publish"]
"""


@pytest.fixture
def watching(
    browser: Browser, messaging: Messaging, tmp_path: Path
) -> Iterator[Browser]:
    """The page of somebody who may look at queues, and change nothing."""
    token, path = new_token(), tmp_path / "tokens.toml"
    path.touch(mode=0o600)
    path.write_text(RULES.format(digest_text(token)))
    with messaging.serve(tokens=path) as serving:
        browser.open(serving.url)
        browser.reads("#token", "A token is needed")
        browser.press(token, Keys.ENTER)
        browser.reads("#connection", "Live")
        yield browser
        browser.close_page()


def test_what_a_token_may_not_do_is_not_offered_and_says_why(
    watching: Browser, messaging: Messaging
) -> None:
    dead(messaging, b"a")
    with messaging.transaction():
        messaging.publish("orders", [b"m"])
        messaging.consumer("orders", group="billing").poll()
        messaging.table("stock").put(b"apples", b"12")
    go(watching, "queues/mail")
    watching.reads("#queue-refused", "Nothing can be changed", "ops may not manage")
    watching.reads("#queue-problem", "Items are not shown: ops may not pop from queue")
    watching.reads("#states", "Dead 1")
    for button in ("redrive", "pause", "resume", "truncate"):
        assert not watching.all(f"#{button}")
    go(watching, "groups/billing/orders")
    watching.reads("#group-refused", "cannot be moved here", "ops may not use group")
    assert not watching.all("#group-reset button")
    go(watching, "tables/stock")
    watching.reads("#rows-problem", "Rows are not shown: ops may not read table stock")
    go(watching, "topics/orders")
    watching.reads("#messages-problem", "ops may not consume from topic orders")
