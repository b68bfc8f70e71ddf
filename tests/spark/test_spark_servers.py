"""Spark over several servers: partitions are read at their owners, and saved to all."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import txaware
from tests.support.clusters import Cluster, clustered
from tests.support.spark_fixtures import Shared, Stream

pytestmark = pytest.mark.spark

SERVERS, MESSAGES, PAGES = 3, 500, 10
LARGE = b"x" * 4_000
# So that a partition has so many pages.
SMALL_PAGES = {"TXAWARE_POLL_LIMIT_BYTES": str(MESSAGES * len(LARGE) // PAGES)}
POLLED = 'txaware_http_requests_total{route="/v1/namespaces/{namespace}/topics/{topic}/'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("servers") / "data"
    with clustered(data, SERVERS, env=SMALL_PAGES) as found:
        yield found


@pytest.fixture
def served(cluster: Cluster, spark: SparkSession) -> Iterator[Shared]:
    home = cluster.owner_of(0)  # which all other shards are elsewhere than at
    with txaware.connect(home) as messaging:
        for name in ("t", "in"):
            messaging.create_topic(name, partitions=SERVERS, exist_ok=True)
        yield Shared(messaging, home, spark)
        for name in ("t", "in"):
            messaging.delete_topic(name)


def polls(cluster: Cluster) -> float:
    """How many polls all servers have answered; one that was passed on counts twice."""
    lines = cluster.ask(cluster.url, "GET", "/metrics").body.decode().splitlines()
    found = [one for one in lines if one.startswith(POLLED) and "/poll" in one]
    return sum(float(one.rpartition(" ")[2]) for one in found)


def test_each_partition_is_read_at_its_owner(cluster: Cluster, served: Shared) -> None:
    """A reader asks one server first, and goes on at the owner that this one names.

    If it did not, two of three pages would be passed on, and be polled twice.
    """
    messages = [b"%d %s" % (one, LARGE) for one in range(MESSAGES)]
    for number in range(SERVERS):
        served.messaging.publish(f"t.{number}", messages)
    before = polls(cluster)
    read = served.reader(topic="t").load().select("topic", "payload").collect()
    asked = polls(cluster) - before
    print("ASKED", asked)
    found = Counter(row["topic"] for row in read)
    assert found == {f"t.{number}": MESSAGES for number in range(SERVERS)}
    assert len({(row["topic"], bytes(row["payload"])) for row in read}) == len(read)
    assert SERVERS * PAGES <= asked < 1.3 * SERVERS * PAGES


def test_what_is_saved_is_in_all_shards_once(cluster: Cluster, served: Shared) -> None:
    frame = served.numbers(60).withColumn("key", f.expr("cast(payload % 20 as string)"))
    for _ in range(2):  # the second save is done already
        served.save(frame, topic="t", save_id="once")
    page = served.messaging.poll("t", limit=1000, isolation="committed")
    assert sorted(int(one.payload) for one in page) == [*range(60)]
    assert {one.partition for one in page} == {*range(SERVERS)}
    assert served.messaging.check().is_clean


@pytest.mark.long
def test_a_stream_goes_from_servers_to_servers(
    cluster: Cluster, served: Shared, tmp_path: Path
) -> None:
    stream, sent = Stream(served, tmp_path / "checkpoint"), list[bytes]()
    for number in (1, 2):
        sent.append(b"%d" % number)
        served.messaging.publish(f"in.{number}", [sent[-1]])
        stream.run()
        page = served.messaging.poll("t", limit=1000, isolation="committed")
        assert sorted(one.payload for one in page) == sent
        cluster.kill(cluster.owner_of(2))  # between two batches
