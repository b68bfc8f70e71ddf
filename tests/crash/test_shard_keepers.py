"""What rows of a shard need at another server's coordinator, while servers run."""

from pathlib import Path

import pytest

import txaware
from tests.support.cluster_faults import FAULTY
from tests.support.clusters import PATIENCE_S, asked, clustered
from tests.support.concurrency import until
from tests.support.told import Told
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


def is_away(home: str, shard: int) -> bool:
    shards = asked(home, "GET", "/v1/servers").json()["shards"]
    return any(one["number"] == shard and not one["server"] for one in shards)


def is_forgotten(messaging: Messaging) -> bool:
    messaging.prune()
    return not messaging.coordinator.invalid_size()


@pytest.mark.parametrize("mistake", [None, "unmarked", "hasty"])
def test_what_is_forgotten_as_a_shard_was_away_shows_nothing_of_it(
    tmp_path: Path, mistake: str | None
) -> None:
    """Home forgets what was invalidated meanwhile once the shard has marked its rows.

    A mistake there, on purpose, shows readers what was rolled back.
    """
    faults = ",".join(filter(None, ("at once", mistake)))
    data, told = tmp_path / "data", Told()
    shard, aside = data / "shards" / "1", tmp_path / "aside"
    with (
        clustered(data, 2, env=SOON, program=[*FAULTY, faults]) as cluster,
        txaware.connect(home := cluster.owner_of(0)) as messaging,
    ):
        messaging.create_topic("there", shards=[1])
        tx = messaging.coordinator.start_short()
        messaging.publish("there", [b"rolled back"], transaction=tx)
        shard.rename(aside)
        cluster.kill(cluster.owner_of(1))
        assert until(lambda: is_away(home, 1), timeout_s=PATIENCE_S)
        messaging.coordinator.invalidate(tx)
        told.was_refused("there", "rolled back")
        if mistake == "hasty":
            assert until(lambda: is_forgotten(messaging))
        else:
            messaging.clean_up()  # forgets by itself what nobody needs
            with pytest.raises(KeeperMissing, match="shard 1 is at no server"):
                messaging.prune()
            assert messaging.coordinator.invalid_size() == 1
        aside.rename(shard)
        assert until(lambda: cluster.is_whole, timeout_s=PATIENCE_S)
        assert until(lambda: is_forgotten(messaging))
        told.poll(messaging, "there", "reader")
    assert told.wrong() == ({"aborted read"} if mistake else set())
    assert (tmp_path / "forgotten").read_bytes() == b"."
