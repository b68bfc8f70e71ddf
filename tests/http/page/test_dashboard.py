"""The page for operators, in a real Chromium and by its files."""

import re
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.browser import Browser
from tests.support.doubles import Watched, failing
from tests.support.messagings import payloads, publish, table_of
from tests.support.pages import Clock, focused, row_of, row_reads
from txaware.auth import digest_text, new_token
from txaware.errors import TRACEBACK, OutOfOrderSequence, Unavailable
from txaware.messaging import Messaging
from txaware.server.dashboard import FILES, HEADERS
from txaware.server.server import HttpServer
from txaware.service.monitor.topic_bounds import KEPT_MS

LONG_NAME = "a_rather_long_name-" * 6
NAUGHTY = b"<script>document.title = 'stolen'</script><b>bold</b>"
PHONE: Any = {"width": 360, "height": 740}


def held(messaging: Messaging, clock: Clock, *, for_s: int = 40) -> int:
    """Has a transaction block `orders`, since a while ago."""
    tx = messaging.coordinator.start_short(timeout_s=3600)
    publish(messaging, b"held", transaction=tx, topic="orders")
    clock.ahead_ms += for_s * 1000
    return tx.transaction_id


def busy(messaging: Messaging, clock: Clock) -> None:
    """A bit of everything, blocked readers and long names too."""
    messaging.create_topic(f"shop:{LONG_NAME}")
    messaging.publish(f"shop:{LONG_NAME}", [b"x" * 5000, b"\x00\x01", NAUGHTY])
    messaging.publish("orders", [b'{"order": %d}' % n for n in range(40)])
    with messaging.transaction():
        messaging.consumer("orders", group="billing").poll(limit=100)
        messaging.consumer(f"shop:{LONG_NAME}", group="g" * 60).poll(limit=1)
    held(messaging, clock)
    prepared(messaging, LONG_NAME, "order-7")
    messaging.producer(LONG_NAME).begin()
    messaging.table(f"shop:{LONG_NAME}").put(b"apples", b'{"left": 3}' * 20)
    messaging.create_queue(LONG_NAME, max_deliveries=3)
    queue = messaging.queue(LONG_NAME)
    queue.push(b"poison" * 40)
    for _ in range(3):
        job = queue.pop()
        assert job is not None
        job.rollback(error="no stamp" + TRACEBACK + f"  {LONG_NAME}")
    queue.push_all([b"m"] * 3)
    for _ in range(2):
        job = queue.pop()
        assert job is not None
        job.rollback(error="not yet")
    queue.popper(name=LONG_NAME).pop()


def test_a_publish_arrives(page: Browser, messaging: Messaging) -> None:
    row_reads(page, "orders", "0 in all")
    messaging.publish("orders", [b"a", b"b", b"c"])
    row_reads(page, "orders", "3 in all")
    page.reads("#tile-in .beside", "3 in all, 3 bytes")
    page.wait(lambda: float(page.text("#tile-in .figure")) > 0, "a rate above 0")
    messaging.poll("orders")
    page.reads("#tile-out .beside", "3 in all")
    messaging.create_topic("shop:baskets")
    row_reads(page, "shop:baskets", "0 in all")
    drawn = "return document.querySelector('#tile-in .line').getAttribute('d')"
    page.wait(lambda: "L" in page.run(drawn), "a chart of more than one point")


def test_a_blocked_topic_is_shown_and_aborted(
    page: Browser, messaging: Messaging, clock: Clock
) -> None:
    with messaging.transaction():
        messaging.publish("orders", [b"before"])
        messaging.consumer("orders", group="billing").poll(limit=10)
    assert page.text("#attention") == ""
    pointer = held(messaging, clock, for_s=600)
    messaging.publish("orders", [b"behind it"])
    page.reads(
        "#attention", "orders has been blocked for 10 min", f"by transaction {pointer}"
    )
    page.reads("#attention", "billing waits", "times out in 49 min")
    row_reads(page, "orders", "blocked for 10 min")
    row_reads(page, "billing", f"waits for {pointer}", table="groups")
    row_reads(page, str(pointer), "short", "orders", table="transactions")
    announced = page.run("return document.getElementById('announce').textContent")
    assert announced == f"Readers of orders wait for transaction {pointer}."
    page.click("#topics button.abort")
    page.reads("#ending", f"Transaction {pointer}", "Readers of orders")
    assert focused(page) == "Leave it open"  # Enter alone ends nothing
    page.press(Keys.ESCAPE)
    page.wait(lambda: not page.all("#ending"), "the dialog closed")
    assert pointer in messaging.coordinator.snapshot().in_progress
    page.click("#attention button.abort")
    page.click("#ending-now")
    page.wait(lambda: not page.all("#attention"), "no reader waiting")
    assert pointer in messaging.coordinator.snapshot().invalids
    row_reads(page, "billing", "2", "behind", table="groups")
    page.reads("#transactions", "No transaction is open.")


def prepared(messaging: Messaging, *names: str) -> dict[str, int]:
    """Has transactions prepared, each with a message in `orders`; their pointers."""
    pointers = {}
    for name in names:
        with messaging.transaction() as tx:
            messaging.publisher("orders").publish(name.encode())
            tx.prepare(name)
        pointers[name] = tx.transaction.transaction_id
    return pointers


def test_a_prepared_transaction_is_shown_by_its_name_and_ended_by_it(
    page: Browser, messaging: Messaging, clock: Clock
) -> None:
    pointers = prepared(messaging, "order-7", "order-8")
    clock.ahead_ms += 60_000
    first, second = str(pointers["order-7"]), str(pointers["order-8"])
    page.reads("#attention", f"by order-7, prepared as transaction {first}")
    for name, pointer in ("order-7", first), ("order-8", second):
        row_reads(page, pointer, name, "short, prepared", table="transactions")
    for place in ("#attention", "#topics", "#transactions"):
        page.reads(f"{place} button.commit", "Commit…")
        page.reads(f"{place} button.roll-back", "Roll back…")
        assert not page.all(f"{place} button.abort")
    page.click("#attention button.commit")
    page.reads("#ending", "Commit this prepared transaction?", "order-7 is prepared")
    assert focused(page) == "Leave it prepared"  # Enter alone ends nothing
    page.press(Keys.ENTER)
    page.wait(lambda: not page.all("#ending"), "the dialog closed")
    assert len(messaging.prepared()) == 2
    page.click("#topics button.commit")
    page.click("#ending-now")
    page.reads("#attention", f"by order-8, prepared as transaction {second}")
    assert payloads(messaging.poll("orders", isolation="committed")) == [b"order-7"]
    page.click("#transactions button.roll-back")
    page.reads("#ending", "Roll back this prepared transaction?", "order-8 is prepared")
    messaging.rollback_prepared("order-8")
    prepared(messaging, "order-8")  # another one of that name stays
    page.click("#ending-now")
    page.wait(lambda: not page.all("#ending"), "the dialog closed")
    assert [one.name for one in messaging.prepared()] == ["order-8"]
    page.wait(lambda: not row_of(page, second, table="transactions"), "the other one")
    page.click("#transactions button.commit")
    messaging.rollback_prepared("order-8")
    page.click("#ending-now")
    page.reads("#ending-problem", "rolled back")
    page.press(Keys.ESCAPE)
    page.reads("#transactions", "No transaction is open.")
    held(messaging, clock)
    page.reads("#topics button.abort", "Abort…")
    assert not page.all("#topics button.commit")
    assert len(page.complaints()) == 1  # the refusal


def test_a_group_that_nobody_reads_for_needs_attention(
    page: Browser, messaging: Messaging, clock: Clock
) -> None:
    messaging.publish("orders", [b"1", b"2", b"3"])
    with messaging.transaction():
        messaging.consumer("orders", group="billing").poll(limit=1)
    clock.ahead_ms += 14 * 60_000
    row_reads(page, "billing", "14 min", "behind", table="groups")
    assert page.text("#attention") == ""
    clock.ahead_ms += 60_000
    page.reads(
        "#attention",
        "Nobody has read orders for group billing in 15 min",
        "2 rows behind, the oldest unread for 15 min",
    )
    announced = page.run("return document.getElementById('announce').textContent")
    assert announced == "Nobody reads orders for group billing."
    with messaging.transaction():
        messaging.consumer("orders", group="billing").poll(limit=1)
    page.wait(lambda: not page.all("#attention"), "a reader was seen")
    row_reads(page, "billing", "15 min", "behind", table="groups")


DRAWN = """
return ["#tile-in", "#tile-open", "#topics td.lately"].map(
  (at) => document.querySelector(`${at} .line`).getAttribute("d").split("L").length);
"""


def test_producers_are_shown_with_their_epochs(
    page: Browser, messaging: Messaging
) -> None:
    page.reads("#producers", "No program has opened a producer.")
    messaging.producer("loader-7")
    loader = messaging.producer("loader-7")
    row_reads(page, "loader-7", "1", "all who may use it", "idle", table="producers")
    loader.begin()
    row_reads(page, "loader-7", "in transaction", table="producers")
    loader.abort()
    row_reads(page, "loader-7", "idle", table="producers")
    lost = messaging.producer()
    with pytest.raises(OutOfOrderSequence):
        lost.publish("orders", [b"gap"], sequence=5)
    name = str(lost.producer_id)
    row_reads(page, name, "this server", "ended", table="producers")
    page.reads("#producers .note", "2")


def test_a_queue_in_trouble_is_shown(
    page: Browser, messaging: Messaging, clock: Clock
) -> None:
    page.reads("#queues", "There is no queue.")
    messaging.create_queue("mail", max_deliveries=1)
    messaging.create_queue("shop:calm")
    mail = messaging.queue("mail")
    mail.push_all([b"a"] * 5)
    row_reads(page, "mail", "waits", table="queues")
    job = mail.popper(name="host-7").pop()
    row_reads(page, "mail", "1", "host-7 for", "in work", table="queues")
    assert job is not None
    job.rollback()
    row_reads(page, "mail", "1 dead letter", table="queues")
    row_reads(page, "mail-dead", "has dead letters", table="queues")
    clock.ahead_ms += 20 * 60_000
    page.reads("#attention", "Nobody works on queue mail")
    assert "mail-dead" not in page.text("#attention")
    row_reads(page, "mail", "nobody works on it", "20 min", table="queues")
    mail.pause()
    page.reads("#attention", "it is paused")
    row_reads(page, "mail", "paused", table="queues")
    page.driver.find_element("id", "search").send_keys("calm")
    row_reads(page, "shop:calm", "empty", table="queues")
    page.wait(lambda: row_of(page, "mail", table="queues") == "", "no other queue")


def test_a_reload_shows_what_was_before(
    page: Browser, messaging: Messaging, clock: Clock
) -> None:
    messaging.coordinator.start_short(timeout_s=3600)
    for number in range(1, 5):
        messaging.publish("orders", [b"m"])
        row_reads(page, "orders", f"{number} in all")
        clock.ahead_ms += 10_000
    page.wait(lambda: min(page.run(DRAWN)) >= 15, "40 s of history")
    page.driver.refresh()
    page.reads("#connection", "Live")
    row_reads(page, "orders", "4 in all")
    assert min(page.run(DRAWN)) >= 10  # in a look or two


LONGEST = "a_very_long_name-" * 17 + "of_300_char"
LAYOUT = """
const box = (at) => document.querySelector(at).getBoundingClientRect();
return [box("#topics td.lately .chart").width, box("#topics th.topic .name").height,
  parseFloat(getComputedStyle(document.querySelector("#topics .name")).lineHeight)];
"""


@pytest.mark.parametrize("width", [1600, 1280, 1100, 900, 360])
def test_a_name_of_300_characters_is_cut_and_moves_no_chart(
    page: Browser, messaging: Messaging, width: int
) -> None:
    page.show(width=width, height=900)
    row_reads(page, "orders", "0 in all")
    chart_px = page.run(LAYOUT)[0]
    assert len(LONGEST) == 300
    messaging.delete_topic("orders")
    messaging.create_topic(LONGEST)
    messaging.publish(LONGEST, [b"1", b"2"])
    with messaging.transaction():
        messaging.consumer(LONGEST, group=LONGEST).poll(limit=1)
    row_reads(page, "a_very_long", "2 in all")
    row_reads(page, "a_very_long", "1", table="groups")
    wide_px, name_px, line_px = page.run(LAYOUT)
    assert wide_px == pytest.approx(chart_px, abs=1)
    assert name_px < 2.5 * max(line_px, 20)
    for selector in ("#topics .name", "#groups th .name", "#groups td .name"):
        title = f"return document.querySelector('{selector}').title"
        assert page.run(title) == LONGEST
    if width == 1280:
        page.reads("#tile-behind .beside", "by a_very_long_name-a_very_long_", "…")
    beyond, wide = page.run(OVERFLOW, width)
    assert (wide, max(0, beyond)) == ([], 0)


def test_what_cannot_be_looked_at_is_named(
    page: Browser, messaging: Messaging, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(table_of(messaging), "scan", away)
    clock.ahead_ms += KEPT_MS  # ages are read again
    page.reads("#attention", "The store is not well", "the disk is full")
    page.reads("#state", "Cannot be looked at", "topic ages")
    assert row_of(page, "orders")


def test_it_says_that_the_coordinator_is_away(
    browser: Browser, messaging: Messaging
) -> None:
    coordinator = Watched(EmbeddedCoordinator())
    with (
        txaware.connect("memory:", coordinator=coordinator) as other,
        other.serve() as server,
    ):
        other.create_topic("orders")
        other.publish("orders", [b"m"])
        browser.open(server.url)
        row_reads(browser, "orders", "1 in all")
        assert browser.text("#attention") == ""
        coordinator.instead["snapshot"] = failing(Unavailable("it is not to be had"))
        browser.reads(
            "#attention", "The coordinator is not well", "it is not to be had"
        )
        other.publish("orders", [b"m"])
        row_reads(browser, "orders", "2 in all")
        del coordinator.instead["snapshot"]
        browser.wait(lambda: not browser.all("#attention"), "all well")
        browser.close_page()


def test_whose_transaction_blocks_is_shown(
    page: Browser, messaging: Messaging, clock: Clock, server: HttpServer
) -> None:
    own = held(messaging, clock)
    row_reads(page, str(own), "the coordinator's own process", table="transactions")
    page.reads("#attention", f"by transaction {own} (the coordinator's own process)")
    with txaware.connect(server.url) as client:
        theirs = client.coordinator.start_short(timeout_s=900).transaction_id
        row_reads(page, str(theirs), "anybody at 127.0.0.1:", table="transactions")
    page.click("#topics button.abort")
    page.reads("#ending-text", f"{own}", "Begun by: the coordinator's own process.")


def test_messages_are_looked_at_without_being_consumed(
    page: Browser, messaging: Messaging
) -> None:
    messaging.publish("orders", [b"number %03d" % n for n in range(60)])
    tx = messaging.coordinator.start_short(timeout_s=3600)
    publish(messaging, NAUGHTY, transaction=tx, topic="orders")
    messaging.publish("orders", [b"\x00\xff", "Grüße 🧺".encode()])
    page.click("#topics a.name")
    page.reads("#messages", "Messages of orders", "Grüße 🧺")
    page.click("#oldest")
    page.reads("#rows", "number 000", "number 024")
    assert "number 025" not in page.text("#rows")
    assert page.all("#earlier")[0].get_attribute("disabled")
    page.click("#later")
    page.reads("#rows", "number 025", "number 049")
    page.click("#later")
    page.reads("#rows", "number 050", NAUGHTY.decode(), "00 ff", "in progress")
    page.reads("#rows", f"transaction {tx.transaction_id}")
    page.reads("#messages-place", "13 rows", "the last ones")
    assert page.all("#later")[0].get_attribute("disabled")
    page.click("#earlier")
    page.reads("#rows", "number 025", "number 049")
    page.run("document.getElementById('shown-as').value = 'hex'")
    page.run("document.getElementById('shown-as').dispatchEvent(new Event('change'))")
    page.reads("#rows", b"number 025".hex(" "))
    assert page.run("return document.title") == "orders - txaware"
    assert page.run("return document.querySelectorAll('#rows b').length") == 0
    assert messaging.metrics().topics["orders"].messages_out == 0


def test_the_newest_page_is_at_least_half_full_whatever_their_pace(
    page: Browser, messaging: Messaging, clock: Clock
) -> None:
    for apart_ms in (7, 60_000):
        for number in range(60):
            messaging.publish("orders", [b"%d" % number])
            clock.ahead_ms += apart_ms
        page.run("location.hash = '#/'")
        page.run("location.hash = '#/topics/orders'")
        page.reads("#rows", "59")
        page.wait(
            lambda: 13 <= len(page.all("#rows > li")) <= 25, "at least half a page"
        )
        assert page.texts("#rows > li")[-1].endswith("59")


def test_the_newest_messages_come_first_and_earlier_ones_can_be_reached(
    page: Browser, messaging: Messaging, clock: Clock
) -> None:
    for number in range(30):
        messaging.publish("orders", [b"number %03d" % number])
        clock.ahead_ms += 60_000
    messaging.publish("orders", [b"last"])
    page.click("#topics a.name")
    page.reads("#rows", "last")
    seen = [page.text("#rows")]

    def is_first() -> bool:
        return page.all("#earlier")[0].get_attribute("disabled") is not None

    while not is_first():
        page.click("#earlier")
        page.wait(lambda: is_first() or page.text("#rows") != seen[-1], "another page")
        if page.text("#rows") != seen[-1]:
            seen.append(page.text("#rows"))
    numbers = [int(n) for text in seen[::-1] for n in re.findall(r"number (\d+)", text)]
    assert numbers == list(range(30))
    assert len(seen) < 25
    page.run("document.getElementById('from').value = '2020-01-01T00:00:00'")
    page.run("document.getElementById('from').dispatchEvent(new Event('change'))")
    page.reads("#rows", "number 000", "number 024")


def test_the_end_of_a_large_batch_is_found(page: Browser, messaging: Messaging) -> None:
    """All of it has one time, to the millisecond."""
    messaging.publish("orders", [b"number %03d" % n for n in range(500)])
    messaging.publish("orders", [b"last"])
    page.click("#topics a.name")
    page.reads("#rows", "last")
    seen = [page.text("#rows")]
    for _ in range(3):
        page.click("#earlier")
        page.wait(lambda: page.text("#rows") != seen[-1], "an earlier page")
        seen.append(page.text("#rows"))
    numbers = [int(n) for text in seen[::-1] for n in re.findall(r"number (\d+)", text)]
    assert numbers == list(range(numbers[0], 500))
    assert len(numbers) > 25


def test_a_long_payload_is_shown_when_it_is_asked_for(
    page: Browser, messaging: Messaging
) -> None:
    messaging.publish("orders", [b"x" * 5000 + b"end"])
    page.click("#topics a.name")
    page.reads("#rows", "Show all 4.9 KiB")
    assert "end" not in page.text("#rows .payload")
    page.click("#rows li > button")
    page.reads("#rows .payload", "xend")


@pytest.fixture
def guarded(messaging: Messaging, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A server that asks for a token, and a token that may monitor and consume."""
    token, path = new_token(), tmp_path / "tokens.toml"
    path.touch(mode=0o600)
    path.write_text(
        f'[principals.ops]\ntokens = ["{digest_text(token)}"]\n'
        f"[[principals.ops.rules]]\nmonitor = true\n"
        f'[[principals.ops.rules]]\ntopics = ["orders"]\nverbs = ["consume"]\n'
    )
    with messaging.serve(tokens=path) as serving:
        yield serving.url, token


def test_a_token_is_asked_for_and_kept_in_the_tab(
    browser: Browser, messaging: Messaging, clock: Clock, guarded: tuple[str, str]
) -> None:
    url, token = guarded
    messaging.create_topic("secret")
    pointer = held(messaging, clock)
    browser.open(url)
    browser.reads("#token", "A token is needed", "The server says:")
    browser.reads("#token", "This page shows topics", "txaware token new NAME")
    assert not browser.all("#change-token")
    assert focused(browser) == "token-value"
    browser.press("wrong", Keys.ENTER)
    browser.reads("#token-text", "This token does not do.")
    assert not browser.all("#token-greeting")
    browser.press(token, Keys.ENTER)
    browser.reads("#connection", "Live")
    row_reads(browser, "orders", "blocked for")
    assert row_of(browser, "secret") == ""
    kept = browser.run("return [Object.values(sessionStorage), localStorage.length]")
    assert kept == [[token], 0]
    assert browser.run("return document.cookie") == ""
    browser.driver.refresh()
    browser.reads("#connection", "Live")
    browser.click("#attention button.abort")
    browser.click("#ending-now")
    browser.reads("#ending-problem", "ops may not use transactions")
    assert pointer in messaging.coordinator.snapshot().in_progress
    assert browser.complaints(but="Failed to load resource") == []
    browser.close_page()


def test_a_token_can_be_changed(
    browser: Browser, messaging: Messaging, guarded: tuple[str, str], tmp_path: Path
) -> None:
    _, token = guarded
    messaging.create_topic("secret")
    other, path = new_token(), tmp_path / "tokens.toml"
    path.write_text(
        path.read_text() + f'[principals.eve]\ntokens = ["{digest_text(other)}"]\n'
        f"[[principals.eve.rules]]\nmonitor = true\n"
        f'[[principals.eve.rules]]\ntopics = ["*"]\nverbs = ["consume"]\n'
    )
    with messaging.serve(tokens=path) as server:
        browser.open(server.url)
        browser.reads("#token", "A token is needed")
        browser.press(token, Keys.ENTER)
        row_reads(browser, "orders")
        assert row_of(browser, "secret") == ""
        browser.click("#change-token")
        browser.reads("#token", "Use another token")
        browser.click("#token-cancel")
        browser.wait(lambda: not browser.all("#token"), "the dialog closed")
        browser.click("#change-token")
        browser.press(other, Keys.ENTER)
        row_reads(browser, "secret")
        kept = browser.run("return Object.values(sessionStorage)")
        assert kept == [other]
        assert browser.complaints(but="Failed to load resource") == []
        browser.close_page()


def test_a_lost_connection_is_shown_and_comes_back(
    browser: Browser, messaging: Messaging
) -> None:
    with messaging.serve() as server:
        browser.open(server.url)
        browser.reads("#connection", "Live")
        port = int(server.url.rpartition(":")[2])
    browser.reads("#connection", "Not connected")
    browser.reads("#lost", "No connection", "What you see is as of")
    assert row_of(browser, "orders")
    assert browser.all("#again")
    with messaging.serve(port=port):  # it may have come back by itself
        browser.run("document.getElementById('again').click()")
        browser.reads("#connection", "Live")
        assert not browser.all("#lost")
        messaging.publish("orders", [b"m"])
        row_reads(browser, "orders", "1 in all")
        browser.close_page()


def test_everything_can_be_reached_with_a_keyboard(
    page: Browser, messaging: Messaging, clock: Clock
) -> None:
    with messaging.transaction():
        messaging.publish("orders", [b"m"])
        messaging.consumer("orders", group="billing").poll()
    held(messaging, clock)
    page.reads("#attention", "orders")
    page.reads("#groups", "billing")
    page.run("window.scrollTo(0, 0); document.activeElement.blur()")
    walk = []
    for _ in range(40):
        page.press(Keys.TAB)
        walk.append(focused(page))
        outline = page.run(
            "const s = getComputedStyle(document.activeElement);"
            "return document.activeElement === document.body || s.outlineStyle"
        )
        assert outline is True or outline != "none", (
            f"the focus on {walk[-1]} is unseen"
        )
        if page.run("return !!document.activeElement.closest('#transactions td')"):
            break
    assert walk[:4] == ["Skip to the topics", "txaware", "search", "namespace"]
    assert walk[4:6] == ["Overview", "Topics"]
    assert walk[12:14] == ["HTTP", "Abort…"]
    for name in ("Topic", "orders", "Group", "Oldest unread", "Transaction"):
        assert name in walk
    assert walk[-1] == "Abort…"
    page.press(Keys.ENTER)
    page.reads("#ending", "Abort this transaction?")
    page.press(Keys.ESCAPE)
    page.wait(lambda: focused(page) == "Abort…", "the focus where it was")
    page.run("document.activeElement.blur()")
    page.press("/", "nothing like it")
    page.reads("#topics", "Nothing fits the search.")


def test_the_skip_link_leads_to_the_topics(page: Browser) -> None:
    page.press(Keys.TAB, Keys.ENTER, Keys.TAB)
    assert focused(page) == "Topic"


def test_a_table_is_sorted_by_a_click_on_its_header(
    page: Browser, messaging: Messaging
) -> None:
    for name, count in (("first", 1), ("second", 9)):
        messaging.create_topic(name)
        messaging.publish(name, [b"m"] * count)
    row_reads(page, "second", "9 in all")

    def names() -> list[str]:
        return [link.text for link in page.all("#topics a.name")]

    assert names() == ["first", "orders", "second"]
    page.click("#topics thead th:first-child button")
    page.wait(lambda: names() == ["second", "orders", "first"], "names from z to a")
    header = page.all("#topics thead th:first-child")[0]
    assert header.get_attribute("aria-sort") == "descending"


def test_search_and_namespace_choose_what_is_shown(
    page: Browser, messaging: Messaging
) -> None:
    messaging.create_topic("shop:baskets")
    messaging.create_topic("shop:orders")
    row_reads(page, "shop:baskets", "0 in all")
    page.all("#search")[0].send_keys("BASK")
    page.wait(lambda: not row_of(page, "orders"), "nothing but baskets")
    assert row_of(page, "shop:baskets")
    page.all("#search")[0].clear()
    page.all("#search")[0].send_keys("orders")
    row_reads(page, "shop:orders")
    page.wait(lambda: row_of(page, "orders"), "both")
    page.run(
        "const s = document.getElementById('namespace'); s.value = 'shop';"
        "s.dispatchEvent(new Event('change'))"
    )
    page.wait(lambda: not row_of(page, "orders"), "only the namespace")
    assert row_of(page, "shop:orders")


def test_of_very_many_topics_some_are_listed_and_all_are_found(
    browser: Browser, messaging: Messaging, server: HttpServer
) -> None:
    for number in range(300):
        messaging.create_topic(f"many{number}")
    browser.open(server.url)
    browser.reads("#topics .note", "200, the most active of 301")
    browser.all("#search")[0].send_keys("many29")
    row_reads(browser, "many299", "0 in all")
    browser.reads("#topics .note", "11")
    assert browser.complaints() == []
    browser.close_page()


VIEWS: Any = {
    "desk": {"width": 1280, "height": 900},
    "desk-dark": {"width": 1280, "height": 900, "dark": True},
    "phone": PHONE,
    "phone-dark": {**PHONE, "dark": True},
}

# Every text that can be seen, with its colours; from the topmost background that is
# not transparent.
CONTRASTS = """
const luminance = (rgb) => {
  const [r, g, b] = rgb.map((c) => {
    c /= 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const found = parts(getComputedStyle(at).backgroundColor);
    if (found.length === 3 || found[3] === 1) return found.slice(0, 3);
  }
  return [255, 255, 255];
};
const top = document.querySelector("dialog[open]") ?? document.body;
return [...top.querySelectorAll("*")]
  .filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.disabled)
  .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
  .map((e) => {
    const style = getComputedStyle(e);
    const pair = [luminance(parts(style.color)), luminance(behind(e))];
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    return [e.textContent.trim().slice(0, 60), ratio, large ? 3 : 4.5];
  })
  .filter(([, ratio, least]) => ratio < least);
"""
OVERFLOW = """
const width = document.documentElement.clientWidth;
return [document.documentElement.scrollWidth - arguments[0],
  [...document.querySelectorAll("body *")]
    .filter((e) => e.checkVisibility() && !e.closest(".unseen, .skip"))
    .filter((e) => e.getBoundingClientRect().right > width + 1)
    .map((e) => e.tagName + "." + (e.className.baseVal ?? e.className))];
"""


@pytest.mark.parametrize("view", VIEWS)
def test_it_is_readable_and_fits_on_every_screen(
    page: Browser,
    messaging: Messaging,
    clock: Clock,
    server: HttpServer,
    tmp_path: Path,
    view: str,
) -> None:
    busy(messaging, clock)
    page.show(**VIEWS[view])
    page.reads("#attention", "orders has been blocked")
    page.reads("#groups", "billing")
    topic = f"shop:{LONG_NAME}"
    states: dict[str, tuple[str, tuple[str, ...]]] = {
        "": ("#topics", ("orders",)),
        f"topics/{topic}": ("#rows", (NAUGHTY.decode(), "00 01")),
        f"topics/{topic}?text=x&from=oldest": ("#messages-place", ("1 row of 3",)),
        f"groups/{'g' * 60}/{topic}": ("#group-facts", ("It stands",)),
        f"queues/{LONG_NAME}": ("#items", ("2 deliveries",)),
        f"queues/{LONG_NAME}?state=dead": ("#items", ("no stamp", "Traceback")),
        f"tables/{topic}": ("#table-rows", ("apples",)),
        "outboxes": ("#outboxes", ("No relay",)),
    }
    for address, (place, parts) in states.items():
        page.run(f"location.hash = '#/{address}'")
        page.reads(place, *parts)
        name = address.partition("/")[0] or "page"
        look(page, tmp_path / f"{view}-{name}.png", VIEWS[view]["width"])
    page.run("location.hash = '#/'")
    page.click("#attention button.abort")
    look(page, tmp_path / f"{view}-abort.png", VIEWS[view]["width"])


def look(page: Browser, path: Path, width: int) -> None:
    """Takes a picture, in which all can be read, and nothing is beyond the edge."""
    page.screenshot(path)
    assert page.run(CONTRASTS) == [], path.name
    beyond, wide = page.run(OVERFLOW, width)
    assert beyond <= 0, f"{path.name}: {wide}"
    assert wide == [], path.name


def test_on_a_phone_a_row_says_what_its_values_are(
    page: Browser, messaging: Messaging
) -> None:
    page.show(**PHONE)
    row_reads(page, "orders", "0 in all")
    label = page.run(
        "return getComputedStyle(document.querySelector('#topics td.in'), '::before')"
        ".content"
    )
    assert label == '"In a second"'
    height = page.run(
        "return Math.min(...[...document.querySelectorAll('button, select, input')]"
        ".filter((e) => e.checkVisibility()).map((e) => e.offsetHeight))"
    )
    assert height >= 36  # for a thumb


def test_nothing_moves_where_that_is_not_wanted(page: Browser) -> None:
    page.show(width=1280, height=900, still=False)
    assert page.run("return document.getAnimations().length") > 0
    page.show(width=1280, height=900)
    page.wait(
        lambda: page.run("return document.getAnimations().length") == 0, "no motion"
    )


def test_all_that_can_be_used_has_a_name(
    page: Browser, messaging: Messaging, clock: Clock
) -> None:
    """As a screen reader hears it."""
    busy(messaging, clock)
    page.reads("#attention", "orders has been blocked")
    page.reads("#groups", "billing")
    driver: Any = page.driver
    tree = driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})
    seen: dict[str, list[str]] = {}
    for node in tree["nodes"]:
        if not node["ignored"]:
            name = node.get("name", {}).get("value", "")
            seen.setdefault(node["role"]["value"], []).append(name)
    for role in ("button", "searchbox", "combobox", "image", "table", "columnheader"):
        assert seen[role], role
        assert all(seen[role]), f"a {role} has no name: {seen[role]}"
    assert seen["table"] == [
        *("Topics", "Consumer groups", "Queues", "Tables"),
        *("Open transactions", "Producers"),
    ]
    assert "Abort what blocks orders" in seen["button"]
    assert {"banner", "main", "navigation", "search", "status"} <= seen.keys()


def test_all_comes_from_this_server(page: Browser, server: HttpServer) -> None:
    asked = page.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert asked
    assert all(url.startswith(server.url + "/") for url in asked), asked


def test_the_policy_forbids_what_is_not_from_this_server(
    browser: Browser, server: HttpServer
) -> None:
    browser.open(server.url)
    browser.reads("#connection", "Live")
    browser.run(
        "const s = document.createElement('style'); s.textContent = 'h1 {color: red}';"
        "document.head.append(s);"
        "try { document.body.innerHTML = '<b>x</b>' } catch { window.caught = true }"
    )
    assert browser.run("return window.caught") is True
    said = " ".join(browser.complaints())
    assert "Content Security Policy" in said
    browser.close_page()


@pytest.mark.parametrize("path", FILES)
def test_the_files_are_served_with_their_headers(server: HttpServer, path: str) -> None:
    connection = HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    connection.request("GET", path)
    response = connection.getresponse()
    content_type, data = FILES[path]
    assert (response.status, response.read()) == (200, data)
    assert response.headers["Content-Type"] == content_type
    assert (
        HEADERS.items() <= dict(response.headers.items()).items()
        or {name.lower(): value for name, value in HEADERS.items()}.items()
        <= {name.lower(): v for name, v in response.headers.items()}.items()
    )
    connection.close()


@pytest.mark.parametrize("path", FILES)
def test_the_files_name_nothing_outside_and_write_no_markup(path: str) -> None:
    text = FILES[path][1].decode().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//cdn|@import|url\(", text)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text
    )
    assert not re.search(r"\beval\(|new Function|localStorage|document\.cookie", text)
    if path == "/":
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)


@pytest.mark.parametrize("path", FILES)
def test_to_abort_has_one_word(path: str) -> None:
    """That of `txaware transaction abort`."""
    text = FILES[path][1].decode()
    assert not re.search(r"\b(Releas|Invalidat)(e|es|ed)\b", text)


def test_the_page_names_files_that_are_there() -> None:
    names = re.findall(r'(?:href|src)="(dashboard/[^"]+)"', FILES["/"][1].decode())
    imports = re.findall(
        r'from "\./([^"]+)"',
        "".join(data.decode() for _, data in FILES.values()),
    )
    assert {f"/{name}" for name in names} <= FILES.keys()
    assert {f"/dashboard/{name}" for name in imports} <= FILES.keys()
