"""Groups that share a topic, beside what is wanted of them; in processes, at a server.

`python -m tests.benchmarks.groups` tells what three members handle of a topic of twelve
partitions beside one, and what heartbeats cost the server. `--join URL MS` is a member.
"""

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import txaware
from tests.benchmarks.started import busy_s, served
from tests.support.concurrency import until
from txaware.errors import TxAwareError
from txaware.messaging import Messaging
from txaware.model.groups import NamedPartition
from txaware.model.messages import Message

PARTITIONS, MEMBERS, ROUNDS = 12, 3, 3
ENDS_S = 120
IDLE, IDLE_S = 1_000, 20


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
    command = [sys.executable, "-m", __spec__.name, "--join", url, str(pause_s)]
    with ExitStack() as ends:
        for _ in range(count):
            child = subprocess.Popen(command, stdin=subprocess.PIPE)
            ends.callback(child.wait, ENDS_S)
            assert child.stdin is not None
            ends.callback(child.stdin.close)
        yield


def shares(messaging: Messaging) -> list[int]:
    """How many partitions each member has."""
    found = messaging.groups()
    return sorted(len(one.partitions) for each in found for one in each.members)


def handled_per_s(messaging: Messaging, url: str, count: int, pause_s: float) -> float:
    """Returns how many messages a second so many members handle."""
    each = 250 if pause_s else 5_000
    with members(url, count, pause_s):
        wanted = [PARTITIONS // count] * count
        assert until(lambda: shares(messaging) == wanted, timeout_s=ENDS_S)
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


def share_work(url: str) -> None:
    """Tells what three members handle beside one."""
    with txaware.connect(url) as messaging:
        messaging.create_topic("orders", partitions=PARTITIONS)
        for pause_s, wanted in ((0.001, 2.2), (0.0, 1.0)):
            ratios = []
            for _ in range(ROUNDS):
                one, many = (
                    handled_per_s(messaging, url, count, pause_s)
                    for count in (1, MEMBERS)
                )
                ratios.append(many / one)
                print(
                    f"  {1000 * pause_s:g} ms: one {one:,.0f}/s, "
                    f"{MEMBERS} members {many:,.0f}/s, {many / one:.2f} x"
                )
            print(
                f"{MEMBERS} members beside one, handling of {1000 * pause_s:g} ms: "
                f"{median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f}), "
                f"{wanted} wanted"
            )


def idle_members(url: str, server: subprocess.Popen[bytes]) -> None:
    """Tells what the heartbeats of many idle members cost the server."""
    counts, ended = [0] * IDLE, threading.Event()
    with txaware.connect(url) as messaging:
        groups = messaging._parts.groups
        messaging.create_topic("idle", partitions=PARTITIONS)
        began_s = time.monotonic()
        joined = [
            groups.join_group("many", topics=["idle"], session_s=600)
            for _ in range(IDLE)
        ]
        print(f"{IDLE:,} members join in {time.monotonic() - began_s:.1f} s")

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
        time.sleep(10)
        before_s, beats = busy_s(server), sum(counts)
        time.sleep(IDLE_S)
        used_s, beats = busy_s(server) - before_s, sum(counts) - beats
        ended.set()
        for thread in threads:
            thread.join()
    print(
        f"{IDLE:,} idle members: {100 * used_s / IDLE_S:.1f} % of a core, 5 wanted; "
        f"{1e6 * used_s / max(1, beats):.0f} us a heartbeat, 100 wanted "
        f"({beats / IDLE_S:.0f}/s)"
    )


def main() -> None:
    """Measures all of it at a server of its own, or is a member."""
    if "--join" in sys.argv:
        handle(sys.argv[2], float(sys.argv[3]))
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        served(Path(directory)) as (url, server),
    ):
        share_work(url)
        idle_members(url, server)


if __name__ == "__main__":
    main()
