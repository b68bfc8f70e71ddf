"""Three servers of one store in HBase, beside one server of another store there.

HBase, the servers and their clients share the machine. So the figure tells what each of
them takes for a message: which of them a machine with more cores would wait for.
"""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import attrs

from tests.benchmarks.cluster import Done, Served, by_wrk
from tests.support.clusters import children_of
from tests.support.shard_servers import shard_servers
from txaware.bench.measure import Figure
from txaware.bench.server import BenchServer
from txaware.bench.trial import Trial
from txaware.messaging import connect
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.schema import create_tables

SERVERS, AT_LEAST = 3, 1.5
# For each server: publishes wait for each other there, and are one batch.
CONNECTIONS = 48
# Java compiles what it runs often: before that HBase takes five times as much.
WARM_TRIALS = 20


@attrs.define
class _Costs:
    """The processor time for a message by who took it, one for each round."""

    servers_us: list[float] = attrs.field(factory=list)
    hbase_us: list[float] = attrs.field(factory=list)
    clients_us: list[float] = attrs.field(factory=list)

    def __str__(self) -> str:
        return (
            f"{median(self.servers_us):.0f} us of servers, {median(self.hbase_us):.0f} "
            f"of HBase and {median(self.clients_us):.0f} of clients"
        )


@contextmanager
def _served(trial: Trial, servers: int) -> Iterator[Served]:
    """Servers of a new store, which has as many shards, and a partition in each."""
    data = f"{trial.hbase}_{secrets.token_hex(4)}"
    with (
        closing(HBaseConnections(HBaseAddress.parse(data))) as connections,
        ExitStack() as left,
    ):
        create_tables(connections)
        left.callback(_remove, connections)
        found = left.enter_context(shard_servers(data, servers, shards=servers))
        url = found.servers[0].url
        with connect(url) as messaging:
            messaging.create_topic("t", partitions=SERVERS)
            shards = messaging.topic("t").shards or [0] * SERVERS
        owners = found.owners(found.servers[0])
        yield Served(
            [owners.get(shard, url) for shard in shards],
            [BenchServer(one.url, one.process.pid) for one in found.servers],
        )


def _remove(connections: HBaseConnections) -> None:
    """Removes the tables of a store and of its shards."""
    begin = connections.address.prefix.encode()
    for name in connections.repeat(lambda client: client.getTableNames()):
        if name.startswith(begin):
            connections.repeat(partial(_drop, name))


def _drop(name: bytes, client: Any) -> None:
    if client.isTableEnabled(name):
        client.disableTable(name)
    client.deleteTable(name)


def _hbase() -> Sequence[BenchServer]:
    """The processes of an HBase that this process has begun; none of another's."""
    return [
        BenchServer("", pid)
        for pid in children_of(os.getpid())
        if Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    ]


def _published(served: Served, for_s: float) -> Done:
    """Sends publishes of one, each to the owner of its partition."""
    sent = [(url, f"t.{number}") for number, url in enumerate(served.urls)]
    return by_wrk(sent, for_s, connections=CONNECTIONS * len(served.processes))


def beside_one(trial: Trial) -> list[Figure]:
    """Figure g."""
    hbase = Served([], [*_hbase()])
    with _served(trial, 1) as one, _served(trial, SERVERS) as three:
        for served in (one, three):
            _published(served, WARM_TRIALS * trial.for_s)
        rates: list[list[float]] = [[], []]
        costs = [_Costs(), _Costs()]
        for _ in range(trial.rounds):
            for found, cost, served in zip(rates, costs, (one, three), strict=True):
                servers_s, hbase_s = served.cpu_s(), hbase.cpu_s()
                done = _published(served, trial.for_s)
                millions = done.messages / 1e6
                found.append(done.rate)
                cost.servers_us.append((served.cpu_s() - servers_s) / millions)
                cost.hbase_us.append((hbase.cpu_s() - hbase_s) / millions)
                cost.clients_us.append(done.used_s / millions)
    return [
        Figure(
            f"g) publish of one to a partition, at its owner of three servers; each "
            f"takes {costs[1]}, of one server {costs[0]}",
            "times/s",
            rates[1],
            rates[0],
            "one server",
            at_least=AT_LEAST,
        )
    ]
