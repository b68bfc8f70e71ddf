"""Members of a group come, go, hang and die: each message is handled once, in order.

`MEMBER_MINUTES` makes it longer. What was handled is told by rows that conflict with
nothing, so that a fence that is missing shows.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import pytest

import txaware
from tests.support.concurrency import until
from tests.support.killed_server import Server
from tests.support.member_child import (
    APART,
    GROUP,
    HANDLED,
    HTTP,
    LOOP,
    LOOP_BY_HTTP,
    NO_KEY,
    STATIC,
    TOPIC,
)
from txaware.errors import TxAwareError
from txaware.messaging import Messaging

ROOT = Path(__file__).parents[2]
PARTITIONS, MOST_PARTITIONS = 4, 8
WAYS = ("", HTTP, LOOP, LOOP_BY_HTTP, STATIC)
SESSION_S = 1.0
RUN_S = 60 * float(os.environ.get("MEMBER_MINUTES", "0")) or 6.0
ENDS_S = 60


class Child:
    """A member in a process of its own."""

    def __init__(
        self,
        url: str,
        name: str,
        *,
        pause_s: float = 0.0,
        fault: str = "",
        session_s: float = SESSION_S,
    ) -> None:
        self.name, self.way = name, fault
        self._lines: list[str] = []
        self._child = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.support.member_child", url, name),
                *(str(session_s), str(pause_s), fault),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.append(line.strip())

    def says(self, text: str) -> None:
        """Waits until it has said that."""
        assert until(
            lambda: any(text in line for line in self._lines), timeout_s=ENDS_S
        )

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._child.send_signal(number)

    def leave(self) -> None:
        """Has it leave the group, and waits for that."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._end()

    def kill(self) -> None:
        """Kills it; it may be stopped, or have left."""
        self._child.kill()
        self._end()

    def _end(self) -> None:
        self._child.wait(ENDS_S)
        self._reader.join()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


@attrs.frozen
class Findings:
    """What a checker found: what was handled more than once, never, or too early."""

    doubles: list[bytes]
    missing: list[tuple[int, int]]
    unordered: list[tuple[int, int, int]]


def check(handled: list[bytes], published: dict[int, int]) -> Findings:
    """Judges what was told of each message, in the order in which it was committed."""
    seen: dict[int, list[int]] = defaultdict(list)
    for line in handled:
        partition, number, _ = line.split()
        seen[int(partition)].append(int(number))
    counts = Counter(tuple(line.split()[:2]) for line in handled)
    return Findings(
        [b" ".join(one) for one, count in counts.items() if count > 1],
        [
            (partition, number)
            for partition, count in published.items()
            for number in range(count)
            if number not in seen[partition]
        ],
        [
            (partition, first, second)
            for partition, numbers in seen.items()
            for first, second in pairwise(numbers)
            if second <= first
        ],
    )


def read(messaging: Messaging) -> list[bytes]:
    """Everything that was told, as committed readers get it."""
    reader = messaging.consumer(HANDLED)
    found: list[bytes] = []
    while page := reader.poll(limit=10_000):
        found += [one.payload for one in page]
    return found


class Publishing:
    """Publishes numbers to each partition; a number counts once it is known."""

    def __init__(self, url: str) -> None:
        self.published = dict.fromkeys(range(PARTITIONS), 0)
        self._url = url
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with txaware.connect(self._url) as messaging:
            producer = messaging.producer()
            while not self._ended.is_set():
                for partition, number in [*self.published.items()]:
                    topic = f"{TOPIC}.{partition}"
                    try:
                        producer.publish(topic, [b"%d" % number], sequence=number)
                    except TxAwareError:
                        time.sleep(0.05)
                        break
                    self.published[partition] += 1
                time.sleep(0.01)

    def add_partition(self) -> None:
        """Publishes to one more partition from now on."""
        number = len(self.published)
        with txaware.connect(self._url) as messaging:
            messaging.update_topic(TOPIC, partitions=number + 1)
        self.published[number] = 0

    def end(self) -> dict[int, int]:
        """Ends it, and returns how many numbers each partition has."""
        self._ended.set()
        self._thread.join()
        return self.published


@contextmanager
def served(directory: Path) -> Iterator[Server]:
    server = Server(directory)
    try:
        with txaware.connect(server.url) as messaging:
            messaging.create_topic(TOPIC, partitions=PARTITIONS, exist_ok=True)
            messaging.create_topic(HANDLED, exist_ok=True)
        yield server
    finally:
        server.kill()


def test_members_that_come_go_and_die_handle_each_message_once(tmp_path: Path) -> None:
    chance = random.Random(7)
    with served(tmp_path) as server, ExitStack() as ends:
        publishing = Publishing(server.url)
        members: list[Child] = []
        names = iter(range(10_000))

        def begin(way: str = "", name: str | None = None) -> None:
            name = name or f"m{next(names)}"
            members.append(Child(server.url, name, pause_s=0.01, fault=way))
            ends.callback(members[-1].kill)

        for way in ("", LOOP, STATIC):
            begin(way)
        members[0].says("in a block")
        until_s = time.monotonic() + RUN_S
        while time.monotonic() < until_s:
            blow = chance.choice(
                ["begin", "leave", "kill", "stop", "server", "again", "add"]
            )
            one = chance.choice(members)
            if blow == "server":
                server.kill()
                server.start()
            elif blow == "begin" and len(members) < 5:
                begin(chance.choice(WAYS))
            elif blow == "again":  # also while the one before it hangs
                one.signal(signal.SIGSTOP)
                begin(one.way, one.name)
                time.sleep(chance.uniform(0, 1))
                one.signal(signal.SIGCONT)
                members.remove(one)
                one.kill()
            elif blow == "add":
                if len(publishing.published) < MOST_PARTITIONS:
                    with suppress(TxAwareError):
                        publishing.add_partition()
            elif blow == "stop":
                one.signal(signal.SIGSTOP)
                time.sleep(SESSION_S + 0.3)
                one.signal(signal.SIGCONT)
            elif len(members) > 1:
                members.remove(one)
                one.kill() if blow == "kill" else one.leave()
            time.sleep(chance.uniform(0, 0.3))
        published = publishing.end()
        begin()
        with txaware.connect(server.url) as messaging:
            all_of_it = sum(published.values())
            while (handled := len(read(messaging))) < all_of_it:
                # However much there is left, some of it is handled in that time.
                assert until(
                    lambda: len(read(messaging)) > handled,
                    timeout_s=ENDS_S,
                )
            for one in members:
                one.leave()
            for static in messaging.group(GROUP).members:
                messaging._parts.groups.leave_group(GROUP, static.member)
            found = check(read(messaging), published)
            assert found == Findings([], [], [])
            assert min(published.values()) > 0
            assert not messaging.check().problems
            assert messaging.group(GROUP).members == []


@pytest.mark.parametrize("frames", [True, False])
def test_a_member_that_is_killed_is_missed_before_its_session_ends(
    tmp_path: Path, *, frames: bool
) -> None:
    """Its connection ends, and nothing is heard of it any more."""
    options: dict[str, Any] = {"session_s": 300, "fault": "" if frames else HTTP}
    with served(tmp_path) as server, ExitStack() as ends:
        lives = Child(server.url, "lives", **options)
        ends.callback(lives.kill)
        lives.says("joined")
        with txaware.connect(server.url) as messaging:

            def dies_and_is_missed() -> bool:
                before = messaging.group(GROUP).members
                dies = Child(server.url, "dies", **options)
                dies.says("joined")
                time.sleep(0.5)  # mostly it waits in a heartbeat by then
                dies.kill()
                return until(
                    lambda: len(messaging.group(GROUP).members) == len(before),
                    timeout_s=ENDS_S / 4,
                )

            assert any(dies_and_is_missed() for _ in range(4))


def hang_in_a_block(server: Server, fault: str) -> Findings:
    """A member hangs in its block for longer than its session, and goes on."""
    with txaware.connect(server.url) as messaging, ExitStack() as ends:
        messaging.publish(f"{TOPIC}.0", [b"%d" % number for number in range(5)])
        first = Child(server.url, "first", pause_s=0.5, fault=fault)
        ends.callback(first.kill)
        first.says("in a block")
        first.signal(signal.SIGSTOP)
        second = Child(server.url, "second", fault=fault)
        ends.callback(second.kill)
        assert until(lambda: len(read(messaging)) == 5, timeout_s=ENDS_S)
        first.signal(signal.SIGCONT)
        if fault:
            assert until(lambda: len(read(messaging)) > 5, timeout_s=ENDS_S)
        else:
            first.says("refused")
        first.leave()
        second.leave()
        return check(read(messaging), {0: 5})


def test_a_member_that_wakes_up_in_its_block_commits_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        assert hang_in_a_block(server, "") == Findings([], [], [])


@pytest.mark.parametrize("fault", [NO_KEY, APART])
def test_a_planted_fault_is_found(tmp_path: Path, fault: str) -> None:
    with served(tmp_path) as server:
        found = hang_in_a_block(server, fault)
    assert len(found.doubles) == 5
    assert found.unordered


def share(messaging: Messaging, members: list[Any], within_s: float) -> bool:
    """Tells whether two members each get half of the partitions in time."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        for one in members:
            one.poll()
            one.rollback()
        if [len(one._held) for one in members] == [PARTITIONS // 2] * 2:
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def messaging() -> Iterator[Messaging]:
    with txaware.connect("memory:") as found:
        found.create_topic(TOPIC, partitions=PARTITIONS)
        yield found


@pytest.mark.parametrize("is_planted", [False, True])
def test_a_member_that_never_lets_go_is_found(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch, *, is_planted: bool
) -> None:
    with messaging.member(GROUP, topics=[TOPIC]) as first:
        first.poll()
        if is_planted:
            monkeypatch.setattr(type(first), "_take", lambda *_: None)
        with messaging.member(GROUP, topics=[TOPIC]) as second:
            within_s = 0.5 if is_planted else ENDS_S
            assert share(messaging, [first, second], within_s) is not is_planted


@pytest.mark.parametrize("is_planted", [False, True])
def test_sessions_that_never_end_are_found(
    messaging: Messaging, monkeypatch: pytest.MonkeyPatch, *, is_planted: bool
) -> None:
    never: Callable[[object, float], list[str]] = lambda _, __: []  # noqa: E731
    if is_planted:
        monkeypatch.setattr(
            "txaware.service.groups.membership.Membership.expired", never
        )
    groups = messaging._parts.groups
    groups.join_group(GROUP, "dead", topics=[TOPIC], session_s=0.3)
    with messaging.member(GROUP, topics=[TOPIC]) as second:
        within_s = 1.0 if is_planted else float(ENDS_S)
        until_s = time.monotonic() + within_s
        while not second.assignment and time.monotonic() < until_s:
            second.poll(timeout_s=0.05)
        assert bool(second.assignment) is not is_planted
