"""Commits that carry rows of several shards: one request, and all or nothing."""

import signal
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, cycle
from pathlib import Path

import pytest

import txaware
from tests.support.cluster_faults import FAULTY, STEPS
from tests.support.clusters import PATIENCE_S, Cluster, clustered
from tests.support.concurrency import until
from tests.support.messagings import payloads
from txaware.errors import TransactionRefused, TxAwareError
from txaware.messaging import Messaging


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with clustered(tmp_path / "data", 2) as found:
        with txaware.connect(found.url) as messaging:
            messaging.create_topic("here", shards=[0])
            messaging.create_topic("there", shards=[1])
            messaging.create_topic("both", partitions=2, shards=[0, 1])
        yield found


def committed(messaging: Messaging, topic: str) -> list[bytes]:
    return payloads(messaging.poll(topic, isolation="committed"))


def publish_to_both(messaging: Messaging, payload: bytes) -> None:
    with messaging.transaction():
        for topic in ("here", "there"):
            messaging.publisher(topic).publish(payload)


def parts(cluster: Cluster) -> float:
    """How many parts of commits, and publishes, all servers have answered."""
    lines = cluster.ask(cluster.url, "GET", "/metrics").body.decode().splitlines()
    name = "txaware_http_requests_total{route="
    routes = ('/publish"', '/parts"')
    found = [
        one
        for one in lines
        if one.startswith(name) and any(route in one for route in routes)
    ]
    return sum(float(one.rpartition(" ")[2]) for one in found)


def test_a_commit_carries_the_rows_of_all_shards(cluster: Cluster) -> None:
    with txaware.connect(cluster.owner_of(0)) as messaging:
        with messaging.transaction():
            for topic in ("here", "there"):
                messaging.publisher(topic).publish(b"all")
            messaging.publisher("both.0").publish(b"0")
            messaging.publisher("both.1").publish(b"1")
        assert until(lambda: parts(cluster) == 2)  # to the other shard
        assert committed(messaging, "here") == committed(messaging, "there") == [b"all"]
        assert sorted(committed(messaging, "both")) == [b"0", b"1"]


def test_a_shard_that_is_away_refuses_the_whole_commit(cluster: Cluster) -> None:
    with txaware.connect(cluster.owner_of(0)) as messaging:
        other = cluster.owner_of(1)
        cluster.kill(other, signal.SIGSTOP)
        with pytest.raises(TransactionRefused):
            publish_to_both(messaging, b"never")
        cluster.kill(other, signal.SIGCONT)
        publish_to_both(messaging, b"all")
        assert committed(messaging, "here") == committed(messaging, "there") == [b"all"]


@pytest.mark.parametrize("step", STEPS)
def test_a_server_that_is_killed_within_a_commit_leaves_all_or_nothing(
    tmp_path: Path, step: str
) -> None:
    """The transactions are tried anew until one comes to that step, and then goes on.

    Each is driven by the server that has the other shard, or by home, in turn.
    """
    mark, program = tmp_path / step, [*FAULTY, "steps"]
    with clustered(tmp_path / "data", 2, program=program) as cluster:
        with txaware.connect(cluster.url) as messaging:
            messaging.create_topic("here", shards=[0])
            messaging.create_topic("there", shards=[1])
        servers = cycle([cluster.owner_of(0), cluster.owner_of(1)])
        numbers, done = count(), list[bytes]()
        mark.touch()

        def is_killed() -> bool:
            payload = b"%d" % next(numbers)
            with suppress(TxAwareError), txaware.connect(next(servers)) as messaging:
                publish_to_both(messaging, payload)
                done.append(payload)
            return not mark.exists()

        assert until(is_killed, timeout_s=PATIENCE_S)
        assert until(lambda: cluster.is_whole, timeout_s=PATIENCE_S)
        with txaware.connect(cluster.url) as messaging:
            publish_to_both(messaging, b"after")
            here, there = committed(messaging, "here"), committed(messaging, "there")
            assert here == there
            assert {*done, b"after"} <= {*here}
            assert len({*here}) == len(here)


def test_a_repeat_does_not_write_the_rows_twice(cluster: Cluster) -> None:
    """Rows of the first request may be in the other shard: it ends without a commit."""
    home = cluster.owner_of(0)
    begun = cluster.ask(home, "POST", "/v1/transactions", {}, headers=JSON).json()
    path = f"/v1/transactions/{begun['transactionId']}/commit"
    sent = [{"topic": topic, "messages": ["a"]} for topic in ("here", "there")]
    body = {"check": True, "publishes": sent, "repeat": True}
    assert cluster.ask(home, "POST", path, body).status == 200
    assert cluster.ask(home, "POST", path, body).status == 200
    with txaware.connect(home) as messaging:
        assert committed(messaging, "there") == [b"a"]


JSON = {"Accept": "application/json"}
