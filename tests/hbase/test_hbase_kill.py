"""Kills and pauses a server over HBase, HBase and its Thrift server, under load."""

import random
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import txaware
from coordinator.tephra import TephraCoordinator
from tests.support.checker import anomalies
from tests.support.hbase_cluster import Cluster, hbase_url, shuffled
from tests.support.killed_server import (
    History,
    Tally,
    check,
    client,
    end_what_is_open,
    look,
    wait_for_load,
)
from txaware.local_hbase import LocalHBase

pytestmark = [pytest.mark.hbase, pytest.mark.tephra]

CLIENTS = 2
SOAK_S = 20 * 60
# About so long there is nothing but load.
CALM_S, SOAK_CALM_S = 1.0, 5.0


def live_through(
    hbase: LocalHBase, place: Path, tally: Tally, *, calm_s: float = CALM_S
) -> None:
    """A cluster with new tables, under load through all blows, and a look in the end.

    The second look is of a process that finds the server killed, and takes the store.
    """
    place.mkdir()
    logs = [place / f"client {number}" for number in range(CLIENTS)]
    with closing(Cluster.start(hbase, place, place.name)) as cluster:
        with ExitStack() as clients:
            children = [
                clients.enter_context(client(cluster.server.url, log, str(number)))
                for number, log in enumerate(logs)
            ]
            for child, log in zip(children, logs, strict=True):
                wait_for_load(child, log)
            for blow in shuffled():
                time.sleep(random.uniform(0.5, 1.5) * calm_s)
                cluster.suffer(blow)
        logs.append(place / "look")
        end_what_is_open(cluster.messaging)
        look(cluster.messaging, logs[-1], "over http")
        check(cluster.messaging)
        cluster.server.kill()
        logs.append(place / "look of the next owner")
        with (
            TephraCoordinator(place / "tephra") as tephra,
            txaware.connect(
                hbase_url(hbase, place.name), coordinator=tephra
            ) as messaging,
        ):
            look(messaging, logs[-1], "the next owner")
            check(messaging)
        history = History.read(logs)
        assert not anomalies(history.publishes, history.polls)
        tally.add(history, cluster.server.killed_ns)
        print(tally, flush=True)


@pytest.mark.long
def test_blows_on_every_part_lose_tear_and_double_nothing(
    hbase: LocalHBase, java: str, tmp_path: Path
) -> None:
    tally = Tally()
    live_through(hbase, tmp_path / "killed", tally)
    assert tally.is_enough


@pytest.mark.soak
def test_twenty_minutes_of_blows(hbase_java: str, java: str, tmp_path: Path) -> None:
    tally, began_s, lives = Tally(), time.monotonic(), 0
    with LocalHBase(tmp_path / "hbase", start_timeout_s=300) as hbase:
        while time.monotonic() - began_s < SOAK_S:
            place = tmp_path / f"life{lives}"
            live_through(hbase, place, tally, calm_s=SOAK_CALM_S)
            lives += 1
    assert tally.struck > 5
