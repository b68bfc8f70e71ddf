"""What rows of a shard need at another server's coordinator, while servers run."""

from pathlib import Path

import pytest

import txaware
from tests.support.clusters import clustered
from tests.support.concurrency import until
from txaware.errors import KeeperMissing
from txaware.messaging import Messaging
from txaware.server.cluster.cluster_part import ClusterPart
from txaware.server.cluster.server_map import ServerEntry, ServerMap, ShardEntry

SOON = {"TXAWARE_JANITOR_INTERVAL_S": "0.5"}


def needs(messaging: Messaging) -> dict[str, int]:
    return {one.name: one.smallest_pointer for one in messaging.keepers()}


def test_shards_say_what_their_rows_need_and_none_is_left_alone(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with clustered(data, 2, env=SOON) as cluster:
        with txaware.connect(cluster.owner_of(0)) as messaging:
            messaging.create_topic("t", shards=[1])
            tx = messaging.coordinator.start_short()
            messaging.publish("t", [b"never"], transaction=tx)
            messaging.coordinator.invalidate(tx)
            assert [*needs(messaging)] == ["(shard 1)"]
            later = messaging.coordinator.start_short().transaction_id
            assert until(lambda: needs(messaging)["(shard 1)"] > tx.transaction_id)
            assert needs(messaging)["(shard 1)"] <= later
        cluster.end()
    with txaware.connect(f"leveldb:{data}") as messaging:
        assert not needs(messaging)


def test_nothing_is_forgotten_while_a_shard_is_at_no_server() -> None:
    server = ServerEntry("1", "http://here", "http://here:1")
    shards = (ShardEntry(0, "1"), ShardEntry(1, "1"))
    membership = ClusterPart(
        "1", b"s" * 32, ServerMap(1, "i", (server,), shards), token="t"
    )
    membership.require_all()
    away = (ShardEntry(0, "1"), ShardEntry(1, None))
    membership.change(ServerMap(2, "i", (server,), away))
    with pytest.raises(KeeperMissing, match="shard 1 is at no server"):
        membership.require_all()
