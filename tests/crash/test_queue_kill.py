"""Kills workers, pushers and their server: jobs are done once in transactions."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import txaware
from tests.support.cluster_run import ClusterServer
from tests.support.concurrency import until
from tests.support.killed_server import ROOT, Server, check
from tests.support.python_process import PythonProcess
from tests.support.queue_child import (
    BEGAN,
    DONE,
    ENDED,
    LEASE_S,
    MANY,
    MAX_PUSHES,
    OFTEN,
    ONCE,
)
from txaware.errors import TxAwareError
from txaware.messaging import Messaging

CHILD = [sys.executable, "-m", "tests.support.queue_child"]
STARTS_S, DRAINS_S = 60, 120


class Crew:
    """Three pushers and five workers; those that are killed are replaced."""

    def __init__(self, url: str, place: Path) -> None:
        self._url = url
        self._place = place
        self._count = 0
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        for kind in ["pushes"] * 3 + ["works"] * 5:
            self.begin(kind)

    def begin(self, kind: str) -> None:
        self._count += 1
        name = f"{kind}-{self._count}"
        command = [*CHILD, kind, self._url, str(self._place / f"{name}.log"), name]
        quiet = subprocess.DEVNULL
        self.children[name] = PythonProcess(command, cwd=ROOT, stderr=quiet)

    def blow(self) -> None:
        """Kills one, or has it stand still until its leases have ended."""
        name = random.choice(list(self.children))
        child = self.children[name]
        if random.random() < 0.3:
            child.send_signal(signal.SIGSTOP)
            time.sleep(LEASE_S * 1.5)
            child.send_signal(signal.SIGCONT)
            return
        self._end(name)
        self.begin(name.partition("-")[0])

    def _end(self, name: str) -> None:
        child = self.children.pop(name)
        child.kill()
        child.wait(STARTS_S)

    def end(self, kind: str) -> None:
        for name in [one for one in self.children if one.startswith(kind)]:
            self._end(name)

    def noted(self, kind: str, what: str, queue: str) -> list[str]:
        """The items that were noted, in whole lines."""
        lines = [
            line.split(" ")
            for log in self._place.glob(f"{kind}-*.log")
            for line in log.read_text().split("\n")[:-1]
        ]
        return [item for is_what, of, item in lines if (is_what, of) == (what, queue)]


def prepared(messaging: Messaging) -> None:
    messaging.create_topic(DONE, exist_ok=True)
    for queue in (ONCE, OFTEN):
        messaging.create_queue(
            queue, lease_s=LEASE_S, max_pushes_per_pipe=MAX_PUSHES, exist_ok=True
        )


def wait_until_empty(messaging: Messaging) -> None:
    until_s = time.monotonic() + DRAINS_S
    while time.monotonic() < until_s:
        with suppress(TxAwareError):
            found = [messaging.queue(queue).stats() for queue in (ONCE, OFTEN)]
            if not any(one.depth + one.in_work for one in found):
                return
        time.sleep(0.2)
    pytest.fail(f"it is not emptied: {found}")


def one_server(place: Path) -> Server:
    return Server(place / "data")


def run_with_kills(
    place: Path,
    *,
    for_s: float,
    serve: Callable[[Path], Server | ClusterServer] = one_server,
) -> None:
    logs, data = place / "logs", place / "data"
    logs.mkdir()
    server = serve(place)
    crew: Crew | None = None
    try:
        with txaware.connect(server.url) as messaging:
            prepared(messaging)
            crew = Crew(server.url, logs)
            pushed = partial(crew.noted, "pushes", ENDED, ONCE)
            # Also many at once, which comes later.
            assert until(
                lambda: any("." in one for one in pushed()), timeout_s=STARTS_S
            )
            until_s, blows = time.monotonic() + for_s, 0
            while time.monotonic() < until_s:
                time.sleep(random.random())
                blows += 1
                if blows % 5:
                    crew.blow()
                else:
                    server.strike("server")
            crew.end("pushes")
            wait_until_empty(messaging)
            crew.end("works")
    finally:
        if crew is not None:
            crew.end("")
        server.kill()
    with txaware.connect(f"leveldb:{data}") as messaging:
        compare(messaging, crew)
        check(messaging)


def compare(messaging: Messaging, crew: Crew) -> None:
    """What was surely pushed was done; in transactions exactly once."""
    done = Counter[str]()
    reader = messaging.consumer(DONE)
    while page := reader.poll(limit=5000):
        done.update(message.payload.decode() for message in page)
    twice = {item: count for item, count in done.items() if count > 1}
    assert not twice, f"done more than once: {twice}"
    began, pushed = (set(crew.noted("pushes", what, ONCE)) for what in (BEGAN, ENDED))
    assert pushed, "nothing was pushed"
    assert pushed <= done.keys() <= began
    pieces = Counter(item.partition(".")[0] for item in done if "." in item)
    assert set(pieces.values()) == {MANY}, "a push was torn"
    often = Counter(crew.noted("works", ENDED, OFTEN))
    began, pushed = (set(crew.noted("pushes", what, OFTEN)) for what in (BEGAN, ENDED))
    assert pushed <= often.keys() <= began
    for queue in (ONCE, OFTEN):
        now = messaging.queue(queue).stats()
        assert (now.depth, now.in_work) == (0, 0)
        assert now.pushed == now.committed
        assert now.popped == now.committed + now.rolled_back + now.expired_leases
    committed = messaging.queue(ONCE).stats().committed
    assert committed == len(done)
    print(f"{committed:,} once, {sum(often.values()):,} deliveries of {len(often):,}")


def test_jobs_are_done_while_workers_and_the_server_are_killed(tmp_path: Path) -> None:
    run_with_kills(tmp_path, for_s=8)


@pytest.mark.long
def test_jobs_are_done_while_any_of_several_servers_is_killed(tmp_path: Path) -> None:
    """Pushes and pops come to any of them, and home has the queues."""
    run_with_kills(tmp_path, for_s=4, serve=ClusterServer)


@pytest.mark.soak
def test_jobs_are_done_through_ten_minutes_of_kills_of_several_servers(
    tmp_path: Path,
) -> None:
    run_with_kills(tmp_path, for_s=600, serve=ClusterServer)


@pytest.mark.soak
def test_jobs_are_done_through_ten_minutes_of_kills(tmp_path: Path) -> None:
    run_with_kills(tmp_path, for_s=600)
