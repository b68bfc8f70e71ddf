"""Faults of one server of several: its lines, its disk, and its clock."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import attrs
import pytest

import txaware
from tests.support.cluster_faults import FAULTY
from tests.support.clusters import Cluster, clustered, in_background
from tests.support.concurrency import until
from tests.support.messagings import payloads
from tests.support.ports import free_ports
from tests.support.server_cuts import ADVERTISED, ServerCuts, Way
from txaware.errors import TransactionRefused, TxAwareError, Unavailable
from txaware.messaging import Messaging

HOME, OTHER = "1", "2"  # the ids of the servers
SILENCE_S = 2
PUBLISH = "/v1/namespaces/default/topics/there/publish"
ONE = {"messages": [{"utf8": "asked at home"}]}


@attrs.frozen
class Two:
    """Two servers, the lines between them, and where they are told of faults."""

    cluster: Cluster
    cuts: ServerCuts
    beside: Path

    def mark(self, kind: str, shard: int) -> Path:
        """The file that tells the owner of a shard of a fault."""
        pid = self.cluster.pid_of(self.cluster.owner_of(shard))
        return self.beside / f"{kind}-{pid}"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    beside, [port, *own] = tmp_path_factory.mktemp("two"), free_ports(3)
    settings = {
        "own_ports": ",".join(map(str, own)),
        "advertise": ADVERTISED,
        "server_silence_s": str(SILENCE_S),
    }
    chosen = [part for one in settings.items() for part in ("--set", "=".join(one))]
    with (
        ServerCuts({"all": port, HOME: own[0], OTHER: own[1]}) as cuts,
        clustered(
            *(beside / "data", 2, "--port", str(port)),
            before=tuple(chosen),
            program=[*FAULTY, "told"],
        ) as cluster,
    ):
        with txaware.connect(cluster.url) as messaging:
            messaging.create_topic("here", shards=[0])
            messaging.create_topic("there", shards=[1])
        yield Two(cluster, cuts, beside)


def publish_to_both(messaging: Messaging, payload: bytes) -> None:
    with messaging.transaction():
        for topic in ("here", "there"):
            messaging.publisher(topic).publish(payload)


def committed(two: Two, topic: str) -> list[bytes]:
    with txaware.connect(two.cluster.url) as messaging:
        return payloads(messaging.poll(topic, isolation="committed", limit=10_000))


def asked_at_home(two: Two) -> list[bytes]:
    return [one for one in committed(two, "there") if one == b"asked at home"]


@pytest.mark.parametrize(
    "way", [Way(HOME, OTHER), Way(OTHER, HOME)], ids=["there", "back"]
)
def test_a_request_over_a_line_that_is_cut_is_unknown_and_a_commit_all_or_nothing(
    two: Two, way: Way
) -> None:
    home, before = two.cluster.owner_of(0), len(asked_at_home(two))
    number = b"%s-%s" % (way.source.encode(), way.target.encode())
    done = threading.Event()

    def commit() -> None:
        with suppress(TxAwareError), txaware.connect(home) as messaging:
            publish_to_both(messaging, number)
            done.set()

    assert two.cluster.ask(home, "POST", PUBLISH, ONE).status == 200
    two.cuts.cut(way)
    committing = in_background(commit)
    told = two.cluster.ask(home, "POST", PUBLISH, ONE)
    assert (told.status, told.headers["txaware-outcome"]) == (503, "unknown")
    assert "says nothing any more" in told.body.decode()
    two.cuts.heal()
    committing.join()
    assert two.cluster.ask(home, "POST", PUBLISH, ONE).status == 200
    assert before + 2 <= len(asked_at_home(two)) <= before + 3
    for topic in ("here", "there"):
        assert committed(two, topic).count(number) in ({1} if done.is_set() else {0, 1})
    assert committed(two, "here").count(number) == committed(two, "there").count(number)


def test_a_line_that_ends_within_a_frame_stores_nothing_twice(two: Two) -> None:
    home, before = two.cluster.owner_of(0), len(asked_at_home(two))
    assert two.cluster.ask(home, "POST", PUBLISH, ONE).status == 200
    for way in (Way(HOME, OTHER), Way(OTHER, HOME)):
        broken = two.cuts.broken
        two.cuts.cut_within_a_frame(way)
        statuses = list[int]()

        def is_broken(
            broken: int = broken, statuses: list[int] = statuses
        ) -> bool:  # by this one, or by a beat of the servers just before
            told = two.cluster.ask(home, "POST", PUBLISH, ONE)
            statuses.append(told.status)
            return two.cuts.broken > broken

        assert until(is_broken)
        stored = len(asked_at_home(two)) - before
        ok = 1 + statuses.count(200)
        assert ok <= stored <= 1 + len(statuses)
        before += stored - 1
    with txaware.connect(home) as messaging:
        publish_to_both(messaging, b"after")
        assert messaging.check().is_clean


def test_a_disk_that_is_full_in_one_shard_refuses_there_alone(two: Two) -> None:
    full = two.mark("full", 1)
    with txaware.connect(two.cluster.owner_of(0)) as messaging:
        full.touch()
        with pytest.raises(Unavailable, match="No space left"):
            messaging.publish("there", [b"never"])
        with pytest.raises(TransactionRefused):
            publish_to_both(messaging, b"never")
        messaging.publish("here", [b"beside"])
        with messaging.transaction():
            messaging.publisher("here").publish(b"beside")
            messaging.table("rows").put(b"a", b"b")
        full.unlink()
        publish_to_both(messaging, b"room again")
        assert messaging.check().is_clean
    assert committed(two, "here")[-3:] == [b"beside", b"beside", b"room again"]
    assert committed(two, "there")[-1] == b"room again"
    assert b"never" not in {*committed(two, "here"), *committed(two, "there")}


@pytest.mark.parametrize("shard", [0, 1])
@pytest.mark.parametrize("ahead_s", [10, -10])
def test_a_server_whose_clock_is_off_orders_and_shows_all(
    two: Two, shard: int, ahead_s: int
) -> None:
    numbers = [b"%d %d %d" % (shard, ahead_s, one) for one in range(4)]
    ahead = two.mark("ahead", shard)
    with txaware.connect(two.cluster.url) as messaging:
        publish_to_both(messaging, numbers[0])
        ahead.write_text(str(1000 * ahead_s))
        for number in numbers[1:3]:
            publish_to_both(messaging, number)
        ahead.write_text("0")  # back in the time that the others have
        publish_to_both(messaging, numbers[3])
        for topic in ("here", "there"):
            page = messaging.poll(topic, isolation="committed", limit=10_000)
            assert payloads(page)[-4:] == numbers
            assert [one.id for one in page] == sorted(one.id for one in page)
        assert messaging.check().is_clean
