"""Figures a to e: groups that share a topic, beside what is wanted of them.

`python -m tests.benchmarks groups` measures them, and so does this module by itself;
`--join URL S` is a member that handles each message for so long.
"""

import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import txaware
from tests.benchmarks.started import busy_s, served
from tests.support.concurrency import until
from tests.support.member_child import GROUP, HANDLED, TOPIC
from txaware.bench.measure import Figure, in_turns, medians_in_turns, took_ms
from txaware.bench.trial import Measured, Trial, measured
from txaware.cli.bench import end_with, show_all
from txaware.consume.member import Member
from txaware.errors import TxAwareError
from txaware.messaging import Messaging
from txaware.model.groups import NamedPartition
from txaware.model.messages import Message

PARTITIONS, MEMBERS, ROUNDS = 12, 3, 3
ENDS_S = 120
IDLE, IDLE_S = 1_000, 20
# A poll moves so many messages, so many times in each round.
POLLED, TIMES = 10, 60
SETTLING, SHARED = 20, 100
SETTLES_S, SESSION_S = 1.0, 1.0
PATIENCE_S, LOOK_AGAIN_S = 60.0, 0.005


# ---- what members handle beside one
def handle(url: str, pause_s: float) -> None:
    """Handles messages of the topic until standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()

    def pause(_: Message) -> None:
        if pause_s:
            time.sleep(pause_s)

    with txaware.connect(url) as messaging:
        messaging.subscribe("orders", pause, group="g").run(ended)


@contextmanager
def members(url: str, count: int, pause_s: float) -> Iterator[None]:
    """Has so many processes handle the topic."""
    command = [sys.executable, "-m", "tests.benchmarks.groups", "--join"]
    with ExitStack() as ends:
        for _ in range(count):
            child = subprocess.Popen(
                [*command, url, str(pause_s)], stdin=subprocess.PIPE
            )
            ends.callback(child.wait, ENDS_S)
            assert child.stdin is not None
            ends.callback(child.stdin.close)
        yield


def shares(messaging: Messaging) -> dict[str, int]:
    """Returns how many partitions each member has, of the only group."""
    return {
        one.member: len(one.partitions)
        for each in messaging.groups()
        for one in each.members
    }


def handled_per_s(
    messaging: Messaging, url: str, count: int, each: int, pause_s: float
) -> float:
    """Returns how many messages a second so many members handle."""
    with members(url, count, pause_s):
        wanted = [PARTITIONS // count] * count
        assert until(lambda: [*shares(messaging).values()] == wanted, timeout_s=ENDS_S)
        time.sleep(1)  # until all of them wait
        for number in range(PARTITIONS):
            messaging.publish(f"orders.{number}", [b"x" * 100] * each)
        began_s = time.monotonic()
        lasts = {
            f"orders.{number}": messaging.bounds(f"orders.{number}").last
            for number in range(PARTITIONS)
        }

        def is_handled() -> bool:
            for topic in [*lasts]:
                if messaging.position("g", topic) != lasts[topic]:
                    return False
                del lasts[topic]
            return True

        assert until(is_handled, timeout_s=ENDS_S)
        return each * PARTITIONS / (time.monotonic() - began_s)


def shared_work(trial: Trial, letter: str, pause_s: float, wanted: float) -> Figure:
    """Measures members and one in turns."""
    each = trial.count(5_000) if not pause_s else 250
    with (
        served(trial.directory / f"groups-{letter}") as (url, _),
        txaware.connect(url) as messaging,
    ):
        messaging.create_topic("orders", partitions=PARTITIONS)
        of = partial(handled_per_s, messaging, url, each=each, pause_s=pause_s)
        found = in_turns(
            trial.rounds, one=lambda: of(count=1), many=lambda: of(count=MEMBERS)
        )
    return Figure(
        f"{letter}) {MEMBERS} members, handling of {1000 * pause_s:g} ms",
        "/s",
        found["many"],
        found["one"],
        "one member",
        at_least=wanted,
    )


def slow_handling(trial: Trial) -> list[Figure]:
    """Figure a."""
    return [shared_work(trial, "a", 0.001, 2.2)]


def free_handling(trial: Trial) -> list[Figure]:
    """Figure b."""
    return [shared_work(trial, "b", 0.0, 1.0)]


# ---- heartbeats
def idle_members(trial: Trial) -> list[Figure]:
    """Figure c: what the heartbeats of many idle members cost the server."""
    with (
        served(trial.directory / "groups-c") as (url, server),
        txaware.connect(url) as messaging,
    ):
        messaging.create_topic("idle", partitions=PARTITIONS)
        trial.tell(f"{IDLE:,} members join")
        with beating(messaging) as counts:
            time.sleep(10)
            before_s, beats = busy_s(server), sum(counts)
            time.sleep(IDLE_S)
            used_s, beats = busy_s(server) - before_s, sum(counts) - beats
    return [
        Figure(
            f"c) {IDLE:,} idle members, {beats / IDLE_S:.0f} heartbeats/s",
            "% of a core",
            [100 * used_s / IDLE_S],
            [5.0],
            "limit",
            at_most=1,
        ),
        Figure(
            "c) a heartbeat, of the server's processor",
            "us",
            [1e6 * used_s / max(1, beats)],
            [100.0],
            "limit",
            at_most=1,
        ),
    ]


@contextmanager
def beating(messaging: Messaging) -> Iterator[list[int]]:
    """Has many members that do nothing but heartbeats; yields how many each had."""
    counts, ended = [0] * IDLE, threading.Event()
    groups = messaging._parts.groups
    joined = [
        groups.join_group("many", topics=["idle"], session_s=600) for _ in range(IDLE)
    ]

    def beat(number: int) -> None:
        me = joined[number]
        owned = [NamedPartition(*one.pair) for one in me.partitions]
        generation = me.generation
        while not ended.is_set():
            try:
                found = groups.heartbeat(
                    "many",
                    me.member,
                    incarnation=me.incarnation,
                    generation=generation,
                    owned=owned,
                    wait_s=3.3,
                )
            except TxAwareError:
                continue
            generation, counts[number] = found.generation, counts[number] + 1
            left = {one.pair for one in found.revoke}
            got = [NamedPartition(*one.pair) for one in found.assign]
            owned = [one for one in (*owned, *got) if one.pair not in left]

    threads = [threading.Thread(target=beat, args=(n,)) for n in range(IDLE)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        ended.set()
        for thread in threads:
            thread.join()


# ---- a poll
def polls(trial: Trial) -> list[Figure]:
    """Figure d."""
    with trial.connect("groups-d", janitor_interval_s=0) as messaging:
        messaging.create_topic("orders")
        count = POLLED * (trial.rounds * TIMES + 1)
        messaging.publish("orders", [b"x" * 100] * count)
        consumer = messaging.consumer("orders", group="alone")

        def polled(poll: Callable[[], Any]) -> None:
            with messaging.transaction():
                assert len(poll()) == POLLED

        with messaging.member("shared", topics=["orders"]) as member:
            of_consumer = partial(polled, partial(consumer.poll, limit=POLLED))
            of_member = partial(polled, partial(member.poll, limit=POLLED))
            found = medians_in_turns(
                trial.rounds,
                TIMES,
                alone=partial(took_ms, of_consumer),
                member=partial(took_ms, of_member),
            )
    return [
        Figure(
            "d) a member's poll in a transaction",
            "ms",
            found["member"],
            found["alone"],
            "consumer's",
            at_most=1.1,
        )
    ]


# ---- moves
class Settling:
    """Members of one group, which poll in turns until each partition is read from."""

    def __init__(self, messaging: Messaging) -> None:
        self._messaging = messaging
        self._rounds = 0
        self.read: Counter[bytes] = Counter()

    def has(self, members: Sequence[Member], count: int) -> None:
        """Polls until so many members have all partitions, in shares that are equal."""

        def is_level() -> bool:
            owned = [*shares(self._messaging).values()]
            is_whole = len(owned) == count and sum(owned) == SHARED
            return is_whole and max(owned) - min(owned) <= 1

        self._poll(members, is_level)

    def read_from(self, members: Sequence[Member]) -> None:
        """Publishes to each partition, and polls until that is read, once."""
        self._rounds += 1
        number = b"%d" % self._rounds
        with self._messaging.transaction():
            for partition in range(SHARED):
                self._messaging.publish(f"{TOPIC}.{partition}", [number])
        self._poll(members, lambda: self.read[number] >= SHARED)

    def _poll(self, members: Sequence[Member], until: Callable[[], bool]) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not until():
            assert time.monotonic() < until_s, shares(self._messaging)
            for one in members:
                self.read.update(found.payload for found in one.poll())
            time.sleep(LOOK_AGAIN_S)

    def settle_s(self, members: Sequence[Member], began_s: float) -> float:
        """Returns how long it takes until all is owned and read from."""
        self.has(members, len(members))
        self.read_from(members)
        return max(0.0, time.perf_counter() - began_s)


def moves(trial: Trial) -> list[Figure]:
    """Figure e."""
    took: dict[str, list[float]] = {}
    for number in range(trial.rounds):
        with (
            trial.connect(f"groups-e{number}", janitor_interval_s=0) as messaging,
            messaging.serve() as server,
        ):
            messaging.create_topic(TOPIC, partitions=SHARED)
            messaging.create_topic(HANDLED)
            for name, took_s in moves_once(messaging, server.url).items():
                took.setdefault(name, []).append(took_s)
    return [
        Figure(
            f"e) {SETTLING} members over {SHARED} partitions, {name}",
            "s",
            values,
            [SETTLES_S] * len(values),
            "limit",
            at_most=1,
        )
        for name, values in took.items()
    ]


def moves_once(messaging: Messaging, url: str) -> dict[str, float]:
    """Returns how long joins, a leave and a kill take, by what befell the group."""
    settling, took = Settling(messaging), dict[str, float]()

    def member() -> Member:
        return messaging.member(
            GROUP, topics=[TOPIC], session_s=SESSION_S, autocommit=True
        )

    with ExitStack() as stack:
        members = [member() for _ in range(SETTLING)]
        joins = [threading.Thread(target=one.__enter__) for one in members]
        began_s = time.perf_counter()
        for join in joins:
            join.start()
        for join, one in zip(joins, members, strict=True):
            join.join()
            stack.callback(one.__exit__, None, None, None)
        took[f"{SETTLING} joins at once"] = settling.settle_s(members, began_s)
        began_s = time.perf_counter()
        with member() as late:
            took["a join"] = settling.settle_s([*members, late], began_s)
            began_s = time.perf_counter()
        took["a leave"] = settling.settle_s(members, began_s)
        with killed_later(url) as child:
            settling.has(members, SETTLING + 1)
            child.kill()
            ends_s = time.perf_counter() + SESSION_S
            took["a kill, after its session"] = settling.settle_s(members, ends_s)
    assert set(settling.read.values()) == {SHARED}, settling.read
    return took


@contextmanager
def killed_later(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a member in a process of its own."""
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.support.member_child", url),
            *("child", str(SESSION_S), "0", "-", ""),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as child:
        yield child


FIGURES = [
    Measured(
        "a",
        f"Messages a second of a topic of {PARTITIONS} partitions that {MEMBERS} "
        f"processes handle in 1 ms each, beside one. At least 2.2 x.",
        slow_handling,
    ),
    Measured(
        "b", "The same, where handling costs nothing. At least 1 x.", free_handling
    ),
    Measured(
        "c",
        f"What {IDLE:,} idle members cost the server's process: at most 5 % of a core, "
        f"and at most 100 us a heartbeat.",
        idle_members,
    ),
    Measured(
        "d",
        f"A transaction in which a member polls {POLLED} messages, beside that of a "
        f"consumer. At most 1.1 x.",
        polls,
    ),
    Measured(
        "e",
        f"{SETTLING} members over {SHARED} partitions: how long it takes after joins "
        f"and a leave, and after the session of one that is killed, until members have "
        f"equal shares of all partitions, and a message that is published to each is "
        f"read, once. At most 1 s.",
        moves,
    ),
]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other."""
    return measured(FIGURES, trial, letters)


def main() -> None:
    """Measures all of them, or is a member."""
    if "--join" in sys.argv:
        handle(sys.argv[2], float(sys.argv[3]))
        return
    with tempfile.TemporaryDirectory() as directory:
        trial = Trial(directory=Path(directory), rounds=ROUNDS)
        end_with(show_all(figures(trial), only_json=False), quick=False)


if __name__ == "__main__":
    main()
