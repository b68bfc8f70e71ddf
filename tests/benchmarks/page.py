"""Figures a and b: the server's page, with thousands of names in it."""

import time
from collections.abc import Collection, Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import txaware
from tests.benchmarks.first_view import first_view_s, watch
from tests.benchmarks.started import busy_s, served
from tests.support.browser import chromium
from txaware.bench.measure import Figure, in_turns
from txaware.bench.trial import Measured, Trial, measured

NAMES = 1_000
VIEW_S, REFRESH_S = 1.0, 0.1
REFRESHES, EVERY_S = 10, 2.0


def fill(url: str, count: int) -> None:
    """Makes so many topics, each with a message and a group, and as many queues."""
    with txaware.connect(url) as messaging:
        for number in range(count):
            topic = f"topic-{number}"
            messaging.create_topic(topic)
            messaging.create_queue(f"queue-{number}")
            messaging.publish(topic, [b"{}"])
            with messaging.transaction():
                messaging.consumer(topic, group=f"group-{number}").poll(1)


def views(trial: Trial) -> list[Figure]:
    """Figure a, beside the page of a server with nothing in it."""
    with (
        served(trial.directory / "page-full") as (full, _),
        served(trial.directory / "page-empty") as (empty, _),
        chromium() as browser,
    ):
        trial.tell(f"making {NAMES:,} topics, groups and queues")
        fill(full, NAMES)
        watch(browser, "#topics tbody tr, #topics p:not(:empty)")
        found = in_turns(
            trial.rounds,
            full=lambda: first_view_s(browser, f"{full}/"),
            empty=lambda: first_view_s(browser, f"{empty}/"),
        )
    name = f"a) first view of {NAMES:,} queues, groups and topics"
    limits = [VIEW_S] * len(found["full"])
    return [
        Figure(name, "s", found["full"], limits, "limit", at_most=1),
        Figure(name, "s", found["full"], found["empty"], "of an empty server"),
    ]


def refresh(trial: Trial) -> list[Figure]:
    """Figure b."""
    with served(trial.directory / "page-refresh") as (url, server):
        trial.tell(f"making {NAMES:,} topics, groups and queues")
        fill(url, NAMES)
        client = HTTPConnection(urlsplit(url).netloc)

        def spent_s() -> float:
            began_s = busy_s(server)
            for _ in range(REFRESHES):
                client.request("GET", "/v1/overview")
                answer = client.getresponse()
                if len(answer.read()) < NAMES:
                    raise RuntimeError("the page is not what was to be measured")
                time.sleep(EVERY_S)  # as the page does
            return (busy_s(server) - began_s) / REFRESHES

        values = in_turns(trial.rounds, refresh=spent_s)["refresh"]
        client.close()
    name = f"b) a refresh of {NAMES:,} queues, groups and topics"
    limits = [REFRESH_S] * len(values)
    return [Figure(name, "s of the server", values, limits, "limit", at_most=1)]


FIGURES = [
    Measured(
        "a",
        "The first page of a server with 1,000 queues, groups and topics in Chromium: "
        "from its address until the topics are there. At most 1 s; and beside that of "
        "a server with nothing in it.",
        views,
    ),
    Measured(
        "b",
        "The processor time of that server for each refresh of the page, one every two "
        "seconds. At most 100 ms.",
        refresh,
    ),
]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other."""
    return measured(FIGURES, trial, letters)
