"""What a user is told while a shard is at no server, and what goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import txaware
from tests.support.clusters import PATIENCE_S, Cluster, asked, clustered
from tests.support.concurrency import until
from txaware.errors import BadRequest, TransactionNotInProgress

TOPICS = "/v1/namespaces/default/topics"
ONE = {"messages": [{"utf8": "one"}]}


@pytest.fixture
def without_one(tmp_path: Path) -> Iterator[Cluster]:
    """Three servers; that of shard 1 cannot open it, as its directory is gone."""
    before = ("--set", "forward_wait_s=0.2")
    with clustered(tmp_path / "data", 3, before=before) as cluster:
        with txaware.connect(cluster.url) as messaging:
            messaging.create_topic("wide", partitions=3, shards=[0, 1, 2])
            messaging.create_topic("there", shards=[1])
        home, owner = cluster.owner_of(0), cluster.owner_of(1)
        (cluster.data / "shards" / "1").rename(tmp_path / "aside")
        cluster.kill(owner)

        def is_away() -> bool:
            shards = cluster.servers(home)["shards"]
            return any(one["server"] is None for one in shards)

        assert until(is_away, timeout_s=PATIENCE_S)
        yield cluster


def test_who_is_refused_is_told_of_the_shard(without_one: Cluster) -> None:
    home = without_one.owner_of(0)
    for method, path, body in (
        ("POST", f"{TOPICS}/there/publish", ONE),
        ("POST", f"{TOPICS}/there/poll", {}),
        ("POST", f"{TOPICS}/wide/poll", {}),
        ("GET", f"{TOPICS}/wide/offsets", None),
    ):
        told = asked(home, method, path, body)
        assert told.status == 503
        assert told.json()["message"].startswith("shard 1 is at no server just now")
    with txaware.connect(home) as messaging:
        no = pytest.raises(TransactionNotInProgress, match="shard 1 is at no")
        with no, messaging.transaction():
            messaging.publisher("there").publish(b"never")
        with pytest.raises(BadRequest, match="stay where they are"):
            messaging.give_shard(1, "1")
        messaging.publish("wide.2", [b"beside it"])


def test_a_topic_that_is_deleted_is_gone_from_the_shards_that_are_there(
    without_one: Cluster, tmp_path: Path
) -> None:
    """The other hears so when it comes back; nobody publishes to what is gone."""
    home, owner = without_one.owner_of(0), without_one.owner_of(2)
    publish = f"{TOPICS}/wide.2/publish"
    assert asked(owner, "POST", publish, ONE).status == 200
    assert asked(home, "DELETE", f"{TOPICS}/wide").status == 200
    assert asked(owner, "POST", publish, ONE).status == 404
    (tmp_path / "aside").rename(without_one.data / "shards" / "1")
    assert until(lambda: without_one.is_whole, timeout_s=PATIENCE_S)
    back = f"{TOPICS}/wide.1/publish"

    def is_gone() -> bool:
        return asked(without_one.owner_of(1), "POST", back, ONE).status == 404

    assert until(is_gone, timeout_s=PATIENCE_S)
    with txaware.connect(home) as messaging:
        assert messaging.check().is_clean
