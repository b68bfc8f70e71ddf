"""Three equal servers over one HBase: shards are shared, taken over, and moved."""

import os
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from typing import Self

import pytest

import txaware
from tests.support.cli_runs import ended, run
from tests.support.clusters import PATIENCE_S, asked
from tests.support.concurrency import until
from tests.support.messagings import payloads
from tests.support.shard_servers import ShardServers, shard_servers
from txaware.errors import BadRequest, TransactionRefused, Unavailable
from txaware.local_hbase import LocalHBase
from txaware.messaging import Messaging
from txaware.model.messages import MessageId

pytestmark = pytest.mark.hbase

SHARDS = 4
PARTITIONS = range(4)
# `ANOMALY_MINUTES=10 python -m pytest -m soak tests/hbase/test_shard_servers.py`.
SOAK_MINUTES = float(os.environ.get("ANOMALY_MINUTES", "1"))
MOVES_EVERY_S, WAITS_S = 2, 20


@pytest.fixture(scope="module")
def servers(shared_hbase: LocalHBase) -> Iterator[ShardServers]:
    data = f"hbase://127.0.0.1:{shared_hbase.thrift_port}/servers"
    assert run("hbase", "create-tables", data).exit_code == 0
    with shard_servers(data, 3, shards=SHARDS) as found:
        with connected(found) as messaging:
            messaging.create_topic("orders", partitions=4)
        yield found


@pytest.fixture
def three(servers: ShardServers) -> ShardServers:
    """The same three, or as many new ones as are needed."""
    while len(servers.servers) < 3:
        servers.start()
    servers.settle()
    return servers


def connected(servers: ShardServers) -> Messaging:
    urls = ",".join(one.url for one in servers.servers)
    return txaware.connect(urls)


def publish_everywhere(messaging: Messaging, payload: bytes) -> None:
    for number in PARTITIONS:
        messaging.publisher(f"orders.{number}").publish(payload)


def commit_everywhere(messaging: Messaging, payload: bytes) -> None:
    with messaging.transaction():
        publish_everywhere(messaging, payload)
        messaging.table("done").put(payload, b"")


def committed(messaging: Messaging, number: int) -> list[bytes]:
    return all_of(messaging, f"orders.{number}")


def published(messaging: Messaging, payload: bytes, *, times_out_s: float) -> float:
    """Publishes in a transaction until one commits; returns how long that took."""
    began_s = time.monotonic()
    while True:
        try:
            commit_everywhere(messaging, payload)
        except (TransactionRefused, Unavailable):
            assert time.monotonic() - began_s < times_out_s
        else:
            return time.monotonic() - began_s


def test_any_server_takes_anything_and_names_the_owner(three: ShardServers) -> None:
    owners = three.owners(three.servers[0])
    assert len(set(owners.values())) == 3
    for server in three.servers:
        with txaware.connect(server.url) as messaging:
            publish_everywhere(messaging, b"plain")
            commit_everywhere(messaging, server.url.encode())
    with connected(three) as messaging:
        for number in PARTITIONS:
            found = committed(messaging, number)
            assert found.count(b"plain") == 3
            assert {one.url.encode() for one in three.servers} < {*found}
        assert messaging.check().is_clean
        assert len(messaging.shards()) == SHARDS


def test_the_data_leads_to_home(three: ShardServers) -> None:
    with txaware.connect(three.data) as messaging:
        publish_everywhere(messaging, b"led")
        assert messaging.reach().url == three.owners(three.servers[0])[0]


def test_a_killed_owner_s_shards_are_taken_over(three: ShardServers) -> None:
    owners = three.owners(three.servers[0])
    lost = next(url for shard, url in owners.items() if url != owners[0])
    with connected(three) as messaging:
        commit_everywhere(messaging, b"before the kill")
        three.kill(three.at(lost))
        took_s = published(messaging, b"after the kill", times_out_s=PATIENCE_S)
        print(f"an owner was taken over after {took_s:.1f} s")
        three.settle()
        for number in PARTITIONS:
            found = committed(messaging, number)
            assert found.count(b"before the kill") == 1
            assert found.count(b"after the kill") == 1
        assert messaging.check().is_clean


def test_home_that_is_killed_is_taken_over_and_owners_go_on(
    three: ShardServers,
) -> None:
    owners = three.owners(three.servers[0])
    home = three.at(owners[0])
    other = next(url for url in owners.values() if url != owners[0])
    with connected(three) as messaging:
        with messaging.transaction() as tx:
            messaging.publisher("orders.1").publish(b"prepared")
            tx.prepare("kept")
        three.kill(home)
        took_s = published(messaging, b"after home", times_out_s=PATIENCE_S)
        print(f"home was taken over after {took_s:.1f} s")
        three.settle()
        assert three.owners(three.servers[0])[0] != home.url
        assert other in three.owners(three.servers[0]).values()
        messaging.commit_prepared("kept")
        assert committed(messaging, 1).count(b"prepared") == 1
        for number in PARTITIONS:
            assert committed(messaging, number).count(b"after home") == 1
        assert messaging.check().is_clean


def test_home_that_begins_anew_at_its_address_is_not_waited_for(
    three: ShardServers,
) -> None:
    """It listens again, and is not home: who becomes that asks it nothing more."""
    home = three.at(three.owners(three.servers[0])[0])
    with connected(three) as messaging:
        three.start_anew(home)
        published(messaging, b"home is elsewhere", times_out_s=PATIENCE_S)
        three.settle()
        assert messaging.check().is_clean


class Load:
    """Publishes, polls and transactions at all servers, until the end of the block.

    A consumer waits for what comes to `waited`, and reads on from there.
    """

    def __init__(self, servers: ShardServers) -> None:
        self._servers = servers
        self._is_over = threading.Event()
        self.errors: list[Exception] = []
        self.counts: Counter[str] = Counter()
        self.longest_s = 0.0
        self.waited: list[bytes] = []
        self._at: MessageId | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(act,))
            for act in (self._publish, self._commit, self._poll, self._wait)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.goes_on()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        with connected(self._servers) as messaging:
            messaging.publish("waited", [b"the end"])
        for thread in self._threads:
            thread.join()

    def goes_on(self) -> None:
        """Waits until each kind was done some times more."""
        before = Counter(self.counts)
        assert until(
            lambda: (
                self.errors
                or all(
                    self.counts[kind] > before[kind] + 5
                    for kind in ("_publish", "_commit", "_poll")
                )
            ),
            timeout_s=PATIENCE_S,
        ), (before, self.counts)

    def _run(self, act: Callable[[Messaging, bytes], object]) -> None:
        with connected(self._servers) as messaging:
            while not self._is_over.is_set():
                kind = act.__name__
                number, began_s = self.counts[kind], time.monotonic()
                try:
                    act(messaging, b"%d" % number)
                except Exception as error:
                    self.errors.append(error)
                    return
                self.counts[kind] += 1
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)

    def _publish(self, messaging: Messaging, number: bytes) -> None:
        for partition in PARTITIONS:
            messaging.publisher(f"plain.{partition}").publish(number)

    def _commit(self, messaging: Messaging, number: bytes) -> None:
        with messaging.transaction():
            for partition in PARTITIONS:
                messaging.publisher(f"loaded.{partition}").publish(number)

    def _poll(self, messaging: Messaging, _: bytes) -> None:
        for partition in PARTITIONS:
            last = messaging.bounds(f"plain.{partition}").last
            messaging.poll(f"plain.{partition}", start=last, wait_s=0.2)

    def _wait(self, messaging: Messaging, _: bytes) -> None:
        page = messaging.poll(
            "waited", start=self._at, inclusive=self._at is None, wait_s=WAITS_S
        )
        self._at = MessageId(page.next)
        self.waited += payloads(page)


@contextmanager
def said_where_it_fails(three: ShardServers) -> Iterator[None]:
    """Prints what the servers said if the block fails."""
    try:
        yield
    except BaseException:
        for one in three.servers:
            print(one.url, one.said)
        raise


def moved_under_load(
    three: ShardServers, moves: Callable[[list[str]], Iterator[str]]
) -> None:
    """Gives a shard to one server after the other while it is used and waited for."""
    owners = three.owners(three.servers[0])
    shard = next(one for one, url in owners.items() if url != owners[0])
    others = [url for url in {*owners.values()} if url != owners[shard]]

    def first_knows(url: str) -> bool:
        return three.owners(three.servers[0])[shard] == url

    with connected(three) as messaging:
        for name in ("plain", "loaded", "waited"):
            if name in messaging.topics():
                messaging.delete_topic(name)
        for name in ("plain", "loaded"):
            messaging.create_topic(name, partitions=4)
        messaging.create_topic("waited", shards=[shard])
        told, longest_s = list[bytes](), 0.0
        with said_where_it_fails(three), Load(three) as load:
            for url in moves([*others, owners[shard]]):  # and back
                began_s = time.monotonic()
                messaging.give_shard(shard, url)
                longest_s = max(longest_s, time.monotonic() - began_s)
                # Who gave it knows; the others hear so with what they say to home next.
                assert until(partial(first_knows, url))
                told.append(b"%d" % len(told))
                messaging.publish("waited", told[-1:])
                assert until(
                    lambda: load.errors or load.waited == told, timeout_s=PATIENCE_S
                )
                load.goes_on()
                for error in load.errors:
                    traceback.print_exception(error)
                assert not load.errors
        print(f"{len(told)} moves of shard {shard}, the longest took {longest_s:.2f} s")
        print(f"{load.counts}, the longest took {load.longest_s:.2f} s")
        assert load.waited == [*told, b"the end"]
        for partition in PARTITIONS:
            for name, kind in (("plain", "_publish"), ("loaded", "_commit")):
                found = all_of(messaging, f"{name}.{partition}")
                assert found == [b"%d" % one for one in range(load.counts[kind])]
        assert messaging.check().is_clean
        with pytest.raises(BadRequest, match="there is no server nobody"):
            messaging.give_shard(shard, "nobody")
        with pytest.raises(BadRequest, match="is not one that moves"):
            messaging.give_shard(0, owners[shard])


def test_a_shard_is_given_to_a_server_and_nobody_sees_an_error(
    three: ShardServers,
) -> None:
    moved_under_load(three, iter)


@pytest.mark.soak
def test_a_shard_that_moves_every_two_seconds_is_used_without_an_error(
    three: ShardServers,
) -> None:
    until_s = time.monotonic() + 60 * SOAK_MINUTES

    def moves(urls: list[str]) -> Iterator[str]:
        for url in cycle(urls):
            if time.monotonic() > until_s:
                return
            yield url
            time.sleep(MOVES_EVERY_S)

    moved_under_load(three, moves)


def all_of(messaging: Messaging, topic: str) -> list[bytes]:
    page = messaging.poll(topic, isolation="committed", limit=10_000)
    found = payloads(page)
    while page:
        page = messaging.poll(
            *(topic,), start=page.next, inclusive=False, isolation="committed"
        )
        found += payloads(page)
    return found


def test_a_server_that_ends_gives_its_shards_away_first(three: ShardServers) -> None:
    owners = three.owners(three.servers[0])
    for leaving in (
        next(url for url in owners.values() if url != owners[0]),
        owners[0],
    ):
        with connected(three) as messaging:
            publish_everywhere(messaging, b"stays")
            assert three.end(three.at(leaving)) == 0
            three.settle()
            assert published(messaging, leaving.encode(), times_out_s=PATIENCE_S)
    assert [*three.owners(three.servers[0])] == [*range(SHARDS)]


def test_a_server_that_hung_finds_its_shards_elsewhere_and_goes_on(
    three: ShardServers,
) -> None:
    owners = three.owners(three.servers[0])
    hung = three.at(next(url for url in owners.values() if url != owners[0]))
    living = [one for one in three.servers if one is not hung]
    with txaware.connect(",".join(one.url for one in living)) as messaging:
        hung.process.send_signal(signal.SIGSTOP)
        try:
            took_s = published(messaging, b"beside it", times_out_s=PATIENCE_S)
            print(f"a server that hung was taken over after {took_s:.1f} s")
            assert hung.url not in three.owners(living[0]).values()
        finally:
            hung.process.send_signal(signal.SIGCONT)
        three.settle()
        assert hung.url in three.owners(living[0]).values()
        with txaware.connect(hung.url) as again:
            commit_everywhere(again, b"it is back")
        for number in PARTITIONS:
            found = committed(messaging, number)
            assert found.count(b"beside it") == 1
            assert found.count(b"it is back") == 1
        assert messaging.check().is_clean


def test_shards_that_are_added_are_some_server_s_at_once(three: ShardServers) -> None:
    with connected(three) as messaging:
        [made] = messaging.add_shards(1)
        assert three.owners(three.servers[0])[made]
        messaging.create_topic("more", shards=[made])
        messaging.publisher("more").publish(b"x")
        assert all_of(messaging, "more") == [b"x"]
        assert messaging.check().is_clean


def test_a_server_that_tells_the_address_of_another_one_is_refused(
    three: ShardServers,
) -> None:
    """It listens at the same port of another machine, and would lead all there."""
    other = three.servers[1]
    before = three.map_of(other)
    ran = ended(
        *("--set", f"shards={SHARDS}", "--set", "advertise=127.0.0.1"),
        *("serve", "--data", three.data, "--host", "127.0.0.2"),
        *("--port", other.url.rpartition(":")[2]),
    )
    assert ran.returncode == 2, ran.stderr
    assert f"{other.url} is where" in ran.stderr
    assert f"it is server {three.id_of(other)}, and this is" in ran.stderr
    assert "set advertise to a name of this machine" in ran.stderr
    assert three.map_of(other) == before


def test_another_secret_is_refused(three: ShardServers) -> None:
    forged = {"txaware-server": "someone 00"}
    for path in ("/v1/cluster/sessions", "/v1/cluster/rows"):
        told = asked(three.servers[0].url, "POST", path, headers=forged)
        assert told.status == 403
        assert "has not the secret of this store" in told.body.decode()
        assert asked(three.servers[0].url, "POST", path).status == 403
