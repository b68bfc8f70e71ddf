"""Backups while several servers have the shards of a store, and programs use them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

import txaware
from tests.support.cli_runs import error_of, run
from tests.support.clusters import PATIENCE_S, Cluster, asked, clustered
from tests.support.concurrency import until
from txaware.errors import KeeperMissing
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.service.check.checking import check_directory

SHARDS = 3
TRANSFERS = 5  # that have committed before and between backups


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with clustered(tmp_path / "data", SHARDS) as found:
        with txaware.connect(found.url) as messaging:
            for shard in range(SHARDS):
                messaging.create_topic(f"in-{shard}", shards=[shard])
            messaging.create_topic("plain", shards=[1])
        yield found


def numbers(messaging: Messaging, topic: str) -> list[int]:
    """What is committed in a topic, in order."""
    page = messaging.poll(topic, isolation="committed", limit=10_000)
    return [int(one.payload) for one in page]


class Load:
    """Says each number in a transaction over all shards and a table, and plainly."""

    def __init__(self, url: str) -> None:
        self.acknowledged: list[int] = []
        self.plain: list[int] = []
        self._url = url
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with txaware.connect(self._url) as messaging:
            for number in count():
                if self._ends.is_set():
                    return
                self._say(messaging, b"%d" % number)

    def _say(self, messaging: Messaging, number: bytes) -> None:
        with messaging.transaction():
            for shard in range(SHARDS):
                messaging.publisher(f"in-{shard}").publish(number)
            messaging.table("done").put(number, b"")
        self.acknowledged.append(int(number))
        messaging.publish("plain", [number])
        self.plain.append(int(number))

    def more(self) -> None:
        """Waits until some more were acknowledged."""
        wanted = len(self.plain) + TRANSFERS
        assert until(lambda: len(self.plain) >= wanted, timeout_s=PATIENCE_S)

    @contextmanager
    def running(self) -> Iterator["Load"]:
        """Runs meanwhile."""
        self._thread.start()
        try:
            yield self
        finally:
            self._ends.set()
            self._thread.join()


def test_a_backup_under_load_has_whole_transactions_and_all_of_before(
    cluster: Cluster, tmp_path: Path
) -> None:
    """It may be asked of any server, and of the directory that they serve."""
    places = [cluster.owner_of(0), cluster.owner_of(1), f"leveldb:{cluster.data}"]
    with Load(cluster.url).running() as load:
        for turn, place in enumerate(places):
            load.more()
            before, plain = [*load.acknowledged], [*load.plain]
            run("--url", place, "backup", str(tmp_path / str(turn)))
            load.more()
            check_restored(tmp_path, turn, before, plain)


def check_restored(
    beside: Path, turn: int, before: list[int], plain: list[int]
) -> None:
    """Restores a backup, and looks at what is in it."""
    directory = beside / f"new-{turn}"
    run("restore", str(beside / str(turn)), f"leveldb:{directory}")
    report = check_directory(directory, Settings())
    assert report.is_clean, report.problems
    with txaware.connect(f"leveldb:{directory}") as messaging:
        first = numbers(messaging, "in-0")
        done = sorted(int(key) for key, _ in messaging.table("done").scan())
        assert first == done
        for shard in range(SHARDS):
            assert numbers(messaging, f"in-{shard}") == first, "torn over shards"
        assert first[: len(before)] == before
        assert numbers(messaging, "plain")[: len(plain)] == plain


def test_while_a_shard_is_away_there_is_no_backup_and_nothing_is_forgotten(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Its server cannot open it, so that it stays away until its directory is back."""
    place, aside = cluster.data / "shards" / "1", tmp_path / "aside"
    home, owner = cluster.owner_of(0), cluster.owner_of(1)

    def is_away() -> bool:
        return any(one["server"] is None for one in cluster.servers(home)["shards"])

    place.rename(aside)
    cluster.kill(owner)
    assert until(is_away, timeout_s=PATIENCE_S)
    refused = pytest.raises(KeeperMissing, match="shard 1 is at no server")
    with txaware.connect(home) as messaging, refused:
        messaging.prune()
    file = tmp_path / "file"
    said = error_of("--url", cluster.url, "backup", str(file), code=3)
    assert "shard 1 is" in said
    assert [*tmp_path.glob("*file*")] == []
    aside.rename(place)
    assert until(lambda: cluster.is_whole, timeout_s=PATIENCE_S)
    run("--url", cluster.url, "backup", str(file))
    with txaware.connect(home) as messaging:
        messaging.prune()


def test_only_a_server_of_the_store_is_given_the_rows_of_a_shard(
    cluster: Cluster,
) -> None:
    assert asked(cluster.owner_of(1), "POST", "/v1/cluster/view").status == 403
