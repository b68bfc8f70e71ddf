"""All figures of two processes of one store, each beside one process.

Two cores have the servers and their clients. Each figure therefore tells the processor
time of both for a message, which carries over to machines that share less.

`python -m tests.benchmarks.cluster URL TOPIC SECONDS` is one client of figure d.
"""

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from statistics import median
from typing import NamedTuple

import attrs

from coordinator.errors import Unavailable
from tests.support.clusters import PATIENCE_S, Cluster, clustered
from tests.support.concurrency import until
from txaware.bench.load import Answered, Load
from txaware.bench.measure import Figure, took_ms
from txaware.bench.server import BenchServer, serving
from txaware.bench.trial import PAYLOAD, Measured, Trial, measured
from txaware.client.aio.async_messaging import connect_async
from txaware.messaging import Messaging, connect
from txaware.protocol.formats import PublishRequest, encode_publish

# Enough connections that each process has as large batches as one alone.
PROCESSES, CONNECTIONS, TASKS = 2, 64, 8
OWNER, RANDOM, TRANSACTIONS = 1.6, 1.1, 1.3
MORE_S, TAKEN_OVER_S = 0.0015, 2.0
PATH = "/v1/namespaces/default/topics/%s/publish"
BODY = encode_publish(PublishRequest(None, [PAYLOAD]))

# Where a sender sends, and the topic.
Sent = tuple[str, str]


@attrs.frozen
class Served:
    """The servers of a store: the address of each alone, and their processes."""

    urls: list[str]
    processes: list[BenchServer]

    def cpu_s(self) -> float:
        """Returns the processor time that all of them have taken."""
        return sum(one.cpu_s() for one in self.processes)


@attrs.define
class Costs:
    """The processor time of servers and clients for a message, one for each round."""

    servers_us: list[float] = attrs.field(factory=list)
    clients_us: list[float] = attrs.field(factory=list)

    def __str__(self) -> str:
        return (
            f"{median(self.servers_us):.0f} us of servers and "
            f"{median(self.clients_us):.0f} of clients"
        )


@attrs.frozen
class Pair:
    """One process, and two of another store, which both have a topic `t`.

    It has one partition in each shard of the two.
    """

    one: Served
    cluster: Cluster

    @property
    def two(self) -> Served:
        """The two processes; one that was started anew is another one."""
        own = [self.cluster.owner_of(shard) for shard in range(PROCESSES)]
        return Served(own, [BenchServer(url, self.cluster.pid_of(url)) for url in own])


@contextmanager
def _both(trial: Trial) -> Iterator[Pair]:
    with (
        serving(trial.directory / "one", trial.settings) as one,
        clustered(trial.directory / "two", PROCESSES) as cluster,
    ):
        for url in (one.url, cluster.url):
            with connect(url) as messaging:
                messaging.create_topic("t", partitions=PROCESSES)
        yield Pair(Served([one.url] * PROCESSES, [one]), cluster)


class Done(NamedTuple):
    """How much all clients did, also in a second, and their processor time."""

    messages: float
    rate: float
    used_s: float


def by_wrk(
    sent: Sequence[Sent], for_s: float, *, connections: int = CONNECTIONS
) -> Done:
    """Sends publishes of one."""
    each = connections // len(sent)

    def send(one: Sent) -> Answered:
        url, topic = one
        return Load(PATH % topic, [BODY], each).answered(url, for_s=for_s)

    began_s = _waited_for_s()
    with ThreadPoolExecutor(len(sent)) as pool:
        found = [*pool.map(send, sent)]
    count, rate = (
        sum(one.count for one in found),
        sum(one.per_second for one in found),
    )
    return Done(count, rate, _waited_for_s() - began_s)


def _waited_for_s() -> float:
    """The processor time of the programs that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _by_frames(sent: Sequence[Sent], for_s: float) -> Done:
    """Commits transactions, in clients that begin once all of them are there."""
    command = [sys.executable, "-m", "tests.benchmarks.cluster"]
    with ExitStack() as ends:
        clients = [
            ends.enter_context(
                subprocess.Popen(
                    [*command, *one, str(for_s)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            for one in sent
        ]
        for one in clients:
            assert one.stdout is not None
            one.stdout.readline()
        told = []
        for one in clients:
            assert one.stdin is not None
            one.stdin.close()
        for one in clients:
            assert one.stdout is not None
            told.append(json.loads(one.stdout.readline()))
    return Done(*map(sum, zip(*told, strict=True)))


def _to_each(served: Served) -> list[Sent]:
    return [(url, "t") for url in served.urls]


def _to_owners(served: Served) -> list[Sent]:
    return [(url, f"t.{shard}") for shard, url in enumerate(served.urls)]


def _to_any_server(served: Served) -> list[Sent]:
    return [(url, f"t.{shard}") for shard in range(PROCESSES) for url in served.urls]


def beside_one(
    trial: Trial,
    pair: Pair,
    *,
    name: str,
    targets: Callable[[Served], Sequence[Sent]],
    send: Callable[[Sequence[Sent], float], Done] = by_wrk,
    at_least: float,
) -> list[Figure]:
    """Measures two processes beside one, in turns: figures a to d."""
    rates: list[list[float]] = [[], []]
    costs = [Costs(), Costs()]
    for _ in range(trial.rounds):
        for found, cost, served in zip(rates, costs, (pair.one, pair.two), strict=True):
            began_s = served.cpu_s()
            done = send(targets(served), trial.for_s)
            found.append(done.rate)
            cost.servers_us.append((served.cpu_s() - began_s) / done.messages * 1e6)
            cost.clients_us.append(done.used_s / done.messages * 1e6)
    return [
        Figure(
            f"{name}; each takes {costs[1]}, of one process {costs[0]}",
            "times/s",
            rates[1],
            rates[0],
            "one process",
            at_least=at_least,
        )
    ]


async def _committed(url: str, topic: str, for_s: float) -> Done:
    """Has some tasks commit transactions, once standard input has ended."""
    async with connect_async(url) as messaging:
        await messaging.publish(topic, [PAYLOAD])
        print("ready", flush=True)
        sys.stdin.read()
        began_s, used_s, count = time.perf_counter(), time.process_time(), 0

        async def work() -> None:
            nonlocal count
            while not count or time.perf_counter() < began_s + for_s:
                async with messaging.transaction():
                    await messaging.publisher(topic).publish(PAYLOAD)
                count += 1

        await asyncio.gather(*(work() for _ in range(TASKS)))
        rate = count / (time.perf_counter() - began_s)
        return Done(count, rate, time.process_time() - used_s)


def over_shards(trial: Trial, pair: Pair) -> list[Figure]:
    """Figure e."""
    count = trial.count(500_000) // 1000
    kinds = {"home": ["t.0", "t.0"], "another": ["t.1", "t.1"], "both": ["t.0", "t.1"]}
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    servers_us: dict[str, list[float]] = {kind: [] for kind in kinds}
    two = pair.two
    with connect(two.urls[0]) as messaging:
        for _ in range(trial.rounds):
            for kind, topics in kinds.items():
                work = partial(_publish_in_transaction, messaging, topics)
                began_s = two.cpu_s()
                took = [took_ms(work) / 1000 for _ in range(count)]
                found[kind].append(median(took))
                servers_us[kind].append((two.cpu_s() - began_s) / count * 1e6)
    home, another, both = (median(servers_us[kind]) for kind in kinds)
    return [
        Figure(
            "e) a transaction of two messages in two shards, p50, with "
            f"{both:.0f} us of servers; in home's alone {home:.0f}, in the other one "
            f"alone {another:.0f} and {1000 * median(found['another']):.2f} ms",
            "s",
            found["both"],
            [one + MORE_S for one in found["home"]],
            "in home's alone and 1.5 ms",
            at_most=1,
        )
    ]


def _publish_in_transaction(messaging: Messaging, topics: Sequence[str]) -> None:
    with messaging.transaction():
        for topic in topics:
            messaging.publisher(topic).publish(PAYLOAD)


def taken_over(trial: Trial, pair: Pair) -> list[Figure]:
    """Figure f."""
    found, cluster = [], pair.cluster
    home, owner = pair.two.urls
    for _ in range(trial.rounds):
        cluster.kill(owner)
        began_s = time.perf_counter()
        assert until(partial(_is_published, home), timeout_s=PATIENCE_S)
        found.append(time.perf_counter() - began_s)
        assert until(lambda: cluster.is_whole, timeout_s=PATIENCE_S)
    return [
        Figure(
            "f) until a publish is answered after kill -9 of its partition's owner",
            "s",
            found,
            [TAKEN_OVER_S] * len(found),
            "2 s",
            at_most=1,
        )
    ]


def _is_published(url: str) -> bool:
    """Asks the other server, which waits until the owner is there again."""
    with connect(url) as messaging, suppress(Unavailable):
        messaging.publish("t.1", [PAYLOAD])
        return True
    return False


@attrs.frozen
class Paired:
    """A figure of a pair, which is there once for all of them."""

    letter: str
    method: str
    run: Callable[[Trial, Pair], list[Figure]]

    def beside(
        self, paired: Callable[[Trial], AbstractContextManager[Pair]]
    ) -> Measured:
        """Returns how it is measured, with the pair that is there or begun for it."""

        def run(trial: Trial) -> list[Figure]:
            with paired(trial) as pair:
                return self.run(trial, pair)

        return Measured(self.letter, self.method, run)


PAIRED = [
    Paired(
        "a",
        "Plain publishes of one message of 100 bytes without a key to a topic with a "
        "partition in each shard, over 64 connections. Floor 1.6.",
        partial(
            beside_one,
            name="a) publish of one without a key",
            targets=_to_each,
            at_least=OWNER,
        ),
    ),
    Paired(
        "b",
        "The same to partitions, each at its owner. Floor 1.6.",
        partial(
            beside_one,
            name="b) publish of one to a partition, at its owner",
            targets=_to_owners,
            at_least=OWNER,
        ),
    ),
    Paired(
        "c",
        "The same at a random server, which passes half of them on. Floor 1.1.",
        partial(
            beside_one,
            name="c) publish of one to a partition, half of them at another server",
            targets=_to_any_server,
            at_least=RANDOM,
        ),
    ),
    Paired(
        "d",
        "Transactions of one message in frames, by two clients of 8 tasks each. "
        "Floor 1.3.",
        partial(
            beside_one,
            name="d) begin, publish of one and commit in frames",
            targets=_to_each,
            send=_by_frames,
            at_least=TRANSACTIONS,
        ),
    ),
    Paired(
        "e",
        "A transaction of two messages, one in each shard, by one thread: p50. At most "
        "1.5 ms more than with both of them in home's.",
        over_shards,
    ),
    Paired(
        "f",
        "Take-over of a killed owner. At most 2 s.",
        taken_over,
    ),
]
FIGURES = [one.beside(_both) for one in PAIRED]
LETTERS = "".join(figure.letter for figure in FIGURES)


def figures(trial: Trial, letters: Collection[str] = LETTERS) -> Iterator[Figure]:
    """Measures one figure after the other, all of them with one pair."""
    with _both(trial) as pair:
        listed = [one.beside(lambda _: nullcontext(pair)) for one in PAIRED]
        yield from measured(listed, trial, letters)


if __name__ == "__main__":
    [url, topic, for_s] = sys.argv[1:]
    print(json.dumps(asyncio.run(_committed(url, topic, float(for_s)))))
