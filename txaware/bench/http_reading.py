"""Figure c over HTTP: polls of 1,000 messages, warm and cold, beside a scan."""

import shutil

import attrs

from txaware.bench.load import Load, by
from txaware.bench.measure import Figure, in_turns
from txaware.bench.reading import (
    PAGE,
    POLLED,
    WARM_CACHE_BYTES,
    fill,
    scanned_per_second,
)
from txaware.bench.server import serving
from txaware.bench.trial import Measured, Trial
from txaware.model.messages import MessageId
from txaware.protocol.formats import PollRequest, encode_poll

POLL = "/v1/namespaces/default/topics/t/poll"
NAME, COLD, CONNECTIONS = "http-polled", "http-polled-cold", 4
JAVA_POLLED = 2_260_000


def poll_thousands(trial: Trial) -> list[Figure]:
    """Figure c."""
    messages = trial.count(POLLED)
    fill(trial, NAME, messages)
    pages = Load(POLL, _pages(trial, messages), CONNECTIONS)
    shutil.copytree(trial.directory / NAME, trial.directory / COLD)
    settings = attrs.evolve(trial.settings, cache_bytes=WARM_CACHE_BYTES)

    def cold() -> float:
        with serving(trial.directory / COLD, settings) as fresh:
            return PAGE * pages.each_once(fresh.url)

    # In their order: read from several places at once, a cache keeps one of them.
    in_order = attrs.evolve(pages, connections=1)
    with serving(trial.directory / NAME, settings) as server:
        in_order.each_once(server.url)
        found = in_turns(
            trial.rounds,
            raw=lambda: scanned_per_second(trial, NAME, messages),
            warm=lambda: PAGE * pages.per_second(server.url, for_s=trial.for_s),
            cold=cold,
        )
    name = f"c) poll of {PAGE:,} messages a request, {CONNECTIONS} connections"
    return [
        Figure(
            f"{name}, warm, {by(trial.for_s)}",
            "messages/s",
            found["warm"],
            found["raw"],
            "plyvel scan, rows/s",
            at_least=0.5,
            goal=JAVA_POLLED,
        ),
        Figure(
            f"{name}, cold, {by(0)}",
            "messages/s",
            found["cold"],
            found["raw"],
            "plyvel scan, rows/s",
            at_least=0.15,
        ),
    ]


def _pages(trial: Trial, messages: int) -> list[bytes]:
    """Returns the requests for each page of the topic; every page is full."""
    bodies: list[bytes] = []
    at: MessageId | None = None
    with trial.connect(NAME) as messaging:
        for _ in range(messages // PAGE):
            start, inclusive = at, at is None
            poll_request = PollRequest(start=start, inclusive=inclusive, limit=PAGE)
            bodies.append(encode_poll(poll_request))
            page = messaging.poll("t", start=start, inclusive=inclusive, limit=PAGE)
            if len(page) != PAGE:
                raise RuntimeError(f"a page has {len(page)} messages, not {PAGE}")
            at = page.next
    return bodies


READING = [
    Measured(
        "c",
        "500,000 messages of 100 bytes polled 1,000 a request over 4 connections, by a "
        "reader that does not look at what it gets; against plyvel's iterator over "
        "equal rows. Warm: the server has them in its cache of 1 GiB. Cold: a server "
        "that was just started answers each page once. Floors 0.5 and 0.15; goal "
        "2,260,000 messages/s.",
        poll_thousands,
    ),
]
