"""The page of the example's scheduler, in a real Chromium and by its requests."""

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.keys import Keys

from examples.workflow_scheduler.page import PageServer
from examples.workflow_scheduler.place import Place
from tests.support.browser import Browser
from tests.support.messagings import Site
from tests.support.pages import focused
from tests.support.workflow_office import TRUE, Office

NAUGHTY = "<script>document.title = 'stolen'</script><b>bold</b>"
STEPS = {
    "load": {"command": ["sh", "-c", f'echo "{NAUGHTY}"; echo 42 > $TXAWARE_RESULT']},
    "check": {"command": ["true"]},
    "report": {"command": ["true"], "after": ["load", "check"]},
}
LONG = {
    name: {"command": ["true"], "after": after}
    for name, after in {
        "load": [],
        "check": ["load"],
        "clean": ["check"],
        "report": ["load", "clean"],
        "mail": ["load", "report"],
    }.items()
}


# The states in tables that are out of the panel, and times that stand on each other.
HIDDEN = """
const boxes = (what) => [...document.querySelectorAll(what)]
  .map((one) => one.getBoundingClientRect());
const meet = (a, b) =>
  a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
const texts = boxes("svg:not([role]) text");
return [
  ...boxes("td .state").filter(({ left, width }) => width && left > innerWidth - 20),
  ...texts.filter((one, at) => texts.slice(at + 1).some((other) => meet(one, other))),
]
"""
# How many edges are within a box somewhere on their way.
HIDDEN_EDGES = """
const all = (what) => [...document.querySelectorAll(`svg ${what}`)];
const boxes = all("rect.box").map((one) => one.getBBox());
const isWithin = ({ x, y }) => boxes.some((box) =>
  x > box.x + 1 && x < box.x + box.width - 1 && y > box.y && y < box.y + box.height);
return all("path.edge").filter((edge) => {
  for (let at = 0; at < edge.getTotalLength(); at++)
    if (isWithin(edge.getPointAtLength(at))) return true;
  return false;
}).length
"""


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    site = Site("http", tmp_path)
    office = Office(site)
    workflows: dict[str, dict[str, Any]] = {
        "nightly": {"on": {"event": "arrived"}, "steps": STEPS},
        "hourly": {"on": {"cron": "0 * * * *"}, **TRUE},
        "broken": {"steps": {"only": {"command": ["false"]}}},
        "long": {"on": {"event": "arrived"}, "steps": LONG},
    }
    office.deploy(workflows)
    yield office
    site.close()


@pytest.fixture
def server(office: Office) -> Iterator[PageServer]:
    url = office.site.messaging.reach().url
    with PageServer(Place(url), 0) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


@pytest.fixture
def browser(one_browser: Browser, server: PageServer) -> Iterator[Browser]:
    """In the end nothing was said in the console."""
    yield one_browser
    assert one_browser.complaints() == []
    one_browser.close_page()


def show_running(
    browser: Browser, server: PageServer, office: Office, workflow: str
) -> None:
    """Begins the first run of a workflow, and opens it."""
    office.event(workflow, "arrived")
    office.scheduler().run_until_idle()
    browser.open(f"{server.url}runs/{workflow}-1")
    browser.reads("main", "running")


def test_the_workflows_are_links_and_are_searched(
    browser: Browser, server: PageServer
) -> None:
    browser.open(server.url)
    browser.reads("main", "4 workflows", "nightly", "hourly", "broken", "never ran")
    browser.click("#search")
    browser.press("h", "t")
    browser.reads("main", "1 workflow", "nightly")
    assert "hourly" not in browser.text("main")
    browser.click("td a")
    browser.reads("h1", "nightly")


def test_a_run_is_triggered_and_seen_without_a_reload(
    browser: Browser, server: PageServer, office: Office
) -> None:
    browser.open(f"{server.url}workflows/nightly")
    browser.reads("main", "It never ran.")
    browser.click(".buttons button")

    def is_begun() -> bool:
        office.scheduler().run_until_idle()
        return office.states("nightly") == ["running"]

    browser.wait(is_begun, "a run")
    browser.reads("tbody", "nightly-1", "running", "by hand")
    office.work()
    browser.reads("tbody", "nightly-1", "succeeded")
    assert len(browser.all("svg rect.succeeded")) == 1
    browser.click("svg a")
    browser.reads("main", "A run of nightly by hand, created")


def test_a_run_has_a_graph_with_what_its_steps_said_and_returned(
    browser: Browser, server: PageServer, office: Office
) -> None:
    office.event("nightly", "arrived")
    office.work()
    browser.open(f"{server.url}runs/nightly-1")
    browser.reads("main", "succeeded", NAUGHTY, '"load": 42', "event arrived")
    assert browser.driver.title == "nightly-1"
    assert len(browser.all("svg rect.box")) == 3
    assert len(browser.all("svg path.edge")) == 2
    places = [box.get_attribute("x") for box in browser.all("svg rect.box")]
    assert places[0] == places[1] != places[2]


def test_no_edge_of_the_graph_is_behind_a_step(
    browser: Browser, server: PageServer, office: Office
) -> None:
    """Of a step that waits for one from further ahead, too."""
    show_running(browser, server, office, "long")
    assert len(browser.all("svg path.edge")) == 6
    hidden = browser.run(HIDDEN_EDGES)
    assert hidden == 0


def await_cancelled(browser: Browser, office: Office) -> None:
    """Waits until the run is cancelled, and the page says so."""

    def has_ended() -> bool:
        office.scheduler().run_until_idle()
        return office.states("nightly") == ["cancelled"]

    browser.wait(has_ended, "a run that is cancelled")
    browser.reads("main", "cancelled by hand")


def test_a_run_is_cancelled_once_that_was_asked(
    browser: Browser, server: PageServer, office: Office
) -> None:
    show_running(browser, server, office, "nightly")
    browser.click(".buttons button")
    browser.reads("dialog", "Cancel nightly-1?")
    browser.click("#no")
    browser.wait(lambda: not browser.all("dialog"), "a closed dialog")
    office.scheduler().run_until_idle()
    assert office.states("nightly") == ["running"]
    browser.click(".buttons button")
    browser.click("#yes")

    await_cancelled(browser, office)


def test_a_workflow_is_paused_and_goes_on(
    browser: Browser, server: PageServer, office: Office
) -> None:
    browser.open(f"{server.url}workflows/hourly")
    browser.wait(lambda: len(browser.all(".buttons button")) >= 2, "buttons")
    browser.all(".buttons button")[1].click()
    browser.reads("dialog", "Begin no more runs of hourly?")
    browser.click("#yes")

    def is_paused() -> bool:
        office.scheduler().run_until_idle()
        return office.state("hourly").is_paused

    browser.wait(is_paused, "a paused workflow")
    browser.reads("main", "paused", "Resume")
    browser.all(".buttons button")[1].click()
    browser.wait(lambda: not is_paused(), "a workflow that goes on")


def test_a_run_is_cancelled_by_keyboard_and_the_focus_is_always_seen(
    browser: Browser, server: PageServer, office: Office
) -> None:
    show_running(browser, server, office, "nightly")
    browser.run("document.activeElement.blur()")
    walk: list[str] = []
    for _ in range(4):
        browser.press(Keys.TAB)
        walk.append(focused(browser))
        style = "return getComputedStyle(document.activeElement).outlineStyle"
        assert browser.run(style) != "none", f"the focus on {walk[-1]} is unseen"
    assert walk == ["To the content", "Workflows", "nightly", "Cancel run"]
    browser.press(Keys.ENTER)
    browser.reads("dialog", "Cancel nightly-1?")
    assert focused(browser) == "no"  # Enter alone changes nothing
    browser.press(Keys.ENTER)
    browser.wait(lambda: focused(browser) == "Cancel run", "the focus where it was")
    browser.press(Keys.ENTER)
    browser.reads("dialog", "Cancel nightly-1?")
    browser.press(Keys.ESCAPE)
    browser.wait(lambda: focused(browser) == "Cancel run", "the focus where it was")
    office.scheduler().run_until_idle()
    assert office.states("nightly") == ["running"]
    browser.press(Keys.ENTER)
    browser.reads("dialog", "Cancel nightly-1?")
    browser.press(Keys.TAB)
    assert focused(browser) == "yes"
    browser.press(Keys.ENTER)

    await_cancelled(browser, office)
    assert focused(browser) == "nightly-1"  # and not on another button in its place
    browser.press(Keys.TAB, Keys.TAB)
    assert focused(browser) == "Run again"


def test_a_row_that_comes_above_leaves_the_focus_where_it_is(
    browser: Browser, server: PageServer, office: Office
) -> None:
    office.event("nightly", "arrived")
    office.work()
    browser.open(f"{server.url}workflows/nightly")
    browser.reads("tbody", "nightly-1")
    browser.run("document.querySelector('tbody a').focus()")
    office.event("nightly", "arrived")
    office.work()
    browser.reads("tbody", "nightly-2")
    assert focused(browser) == "nightly-1"


def test_names_and_texts_of_others_are_shown_and_run_nowhere(
    browser: Browser, server: PageServer, office: Office
) -> None:
    long = "w" * 100
    script = 'yes "$0" | head -c 200000; printf %s "$1" > $TXAWARE_RESULT'
    result = json.dumps({NAUGHTY: NAUGHTY})
    steps = {
        long: {"command": ["sh", "-c", script, NAUGHTY, result]},
        "bad": {"command": [NAUGHTY], "after": [long]},
    }
    on = {"event": NAUGHTY}
    naughty = {"on": on, "parameters": {NAUGHTY: NAUGHTY}, "steps": steps}
    office.deploy({long: naughty})
    office.event(long, NAUGHTY, mark=NAUGHTY)
    office.work()
    for path, parts in {
        "": (long, "failed"),
        f"workflows/{long}": (f"{long}-1", f"event {NAUGHTY}", "cannot be run"),
        f"runs/{long}-1": (
            f"event {NAUGHTY}",
            f"{NAUGHTY}\n{NAUGHTY}",
            "cannot be run",
        ),
    }.items():
        browser.open(server.url + path)
        browser.reads("main", *parts)
        browser.show(width=360, height=740)
        assert browser.driver.title != "stolen"
        assert not browser.all("main script, main b")
        assert browser.run(HIDDEN) == []
        assert browser.run("return document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("path", ["", "workflows/nightly", "runs/nightly-1"])
def test_a_phone_shows_all_of_it_without_scrolling_aside(
    browser: Browser, server: PageServer, office: Office, path: str
) -> None:
    office.event("nightly", "arrived")
    office.work()
    browser.open(f"{server.url}{path}")
    browser.show(width=360, height=740)
    browser.driver.refresh()
    browser.reads("main", "succeeded")
    assert browser.run("return document.documentElement.scrollWidth") <= 360
    small = browser.run(
        "return [...document.querySelectorAll('button, input')]"
        ".filter(one => one.offsetParent && one.offsetHeight < 40).length"
    )
    assert small == 0


def test_what_is_not_there_and_what_is_away_is_said(
    browser: Browser, server: PageServer, office: Office
) -> None:
    browser.open(f"{server.url}runs/nightly-7")
    browser.reads("#connection", "No answer: no run is called nightly-7")
    browser.open(f"{server.url}runs/nightly-7%E0%A4")
    browser.reads("#connection", "No answer: no run is called nightly-7%E0%A4")
    browser.driver.get("about:blank")
    assert browser.complaints(but="409") == []


def request(
    server: PageServer, method: str, path: str, **headers: str
) -> tuple[int, bytes, str]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=named)
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.headers["Content-Security-Policy"]
    connection.close()
    return found


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Host": "evil.example:80"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
def test_pages_of_others_trigger_nothing(
    server: PageServer, office: Office, headers: dict[str, str]
) -> None:
    path = "/api/workflows/nightly/trigger"
    assert request(server, "POST", path, **headers)[0] == 403
    office.scheduler().run_until_idle()
    assert office.runs("nightly") == []
    assert request(server, "POST", path)[0] == 200
    office.scheduler().run_until_idle()
    assert len(office.runs("nightly")) == 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/page/page.js", 200),
        ("/page/../__init__.py", 404),
        ("/page/%2e%2e%2fweb.py", 404),
        ("/api/nothing", 404),
        ("/api/workflows/nothing", 409),
        ("/api/runs/nothing", 409),
    ],
)
def test_each_answer_has_the_policy_of_the_page(
    server: PageServer, path: str, status: int
) -> None:
    found, _, policy = request(server, "GET", path)
    assert found == status
    assert policy.startswith("default-src 'none'; script-src 'self'")


def test_runs_that_are_over_are_read_once(server: PageServer, office: Office) -> None:
    for _ in range(3):
        office.event("nightly", "arrived")
    office.work()
    office.event("nightly", "arrived")
    office.scheduler().run_until_idle()
    for _ in range(2):
        body = request(server, "GET", "/api/workflows/nightly")[1]
        states = [run["state"] for run in json.loads(body)["runs"]]
        assert states == ["succeeded"] * 3 + ["running"]
    office.work()
    body = request(server, "GET", "/api/workflows/nightly")[1]
    assert [run["number"] for run in json.loads(body)["runs"]] == [1, 2, 3, 4]


@pytest.mark.parametrize("width", [1280, 360, 320])
def test_axe_finds_nothing_in_any_view(
    browser: Browser, server: PageServer, office: Office, width: int
) -> None:
    office.event("nightly", "arrived")
    office.work()
    for view, text in {
        "": "4 workflows",
        "workflows/nightly": "nightly-1",
        "runs/nightly-1": "succeeded",
    }.items():
        browser.open(server.url + view)
        browser.show(width=width, height=800, dark=width < 600)
        browser.reads("main", text)
        assert browser.violations() == [], view
