"""`txaware serve --processes`: the map, passing on, and the life of its processes."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import txaware
from tests.support.certificates import self_signed
from tests.support.cli_runs import ended, run
from tests.support.clusters import (
    PATIENCE_S,
    Cluster,
    Told,
    children_of,
    clustered,
    in_background,
    is_alive,
)
from tests.support.concurrency import until
from tests.support.ports import free_ports
from tests.support.server_cuts import ServerCuts

SERVERS = 3
TOPICS = "/v1/namespaces/default/topics"
QUEUES = "/v1/namespaces/default/queues"
ONE = {"messages": [{"utf8": "one"}]}
EVERYTHING = {"payloadAs": "utf8"}
COUNTED = ['"counted.0"} 1.0', '"counted.1"} 2.0', '"counted.2"} 3.0']


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three servers, with a topic in all shards and one in the second and third."""
    with clustered(tmp_path_factory.mktemp("cluster") / "data", SERVERS) as found:
        with txaware.connect(found.url) as messaging:
            messaging.create_topic("orders", partitions=6)
            messaging.create_topic("apart", partitions=4, shards=[1, 2])
            messaging.create_topic("second", shards=[1])
        yield found


def test_the_map_names_servers_and_who_has_each_shard(cluster: Cluster) -> None:
    found = cluster.servers()
    assert found.keys() == {"epoch", "servers", "shards"}
    assert isinstance(found["epoch"], int)
    assert all(one.keys() == {"id", "url", "own"} for one in found["servers"])
    assert {one["url"] for one in found["servers"]} == {cluster.url}
    assert len({one["own"] for one in found["servers"]} - {cluster.url}) == SERVERS
    for address in (cluster.url, *cluster.own):
        parts = urlsplit(address)
        assert address == f"http://{parts.hostname}:{parts.port}"
    ids = [one["id"] for one in found["servers"]]
    assert found["shards"] == [
        {"number": number, "server": ids[number]} for number in range(SERVERS)
    ]
    assert sorted(os.listdir(cluster.data / "shards")) == ["1", "2"]
    assert all(cluster.servers(own) == found for own in cluster.own)


def test_partitions_are_spread_evenly_or_over_the_shards_that_are_named(
    cluster: Cluster,
) -> None:
    with txaware.connect(cluster.url) as messaging:
        orders = messaging.topic("orders")
        assert [orders.shard_of(number) for number in range(6)] == [0, 1, 2, 0, 1, 2]
        assert sorted(messaging.topic("apart").shards) == [1, 1, 2, 2]


@pytest.mark.parametrize("shard", range(SERVERS))
def test_any_server_takes_a_publish_and_names_the_owner(
    cluster: Cluster, shard: int
) -> None:
    owner = cluster.owner_of(shard)
    for own in (*cluster.own, cluster.url):
        for path, body in (("publish", ONE), ("poll", EVERYTHING)):
            told = cluster.ask(own, "POST", f"{TOPICS}/orders.{shard}/{path}", body)
            assert told.status == 200, told
            if own == owner:
                assert told.owner is None
            elif own != cluster.url:
                assert told.owner == owner
    polled = cluster.ask(owner, "POST", f"{TOPICS}/orders.{shard}/poll", EVERYTHING)
    assert [one["payload"] for one in polled.json()] == ["one"] * (SERVERS + 1)


def test_an_error_that_was_passed_on_names_the_owner(cluster: Cluster) -> None:
    home, second, third = cluster.own
    bad = {"messages": 7}
    told = cluster.ask(third, "POST", f"{TOPICS}/second/publish", bad)
    assert (told.status, told.owner) == (400, second)
    assert cluster.ask(second, "POST", f"{TOPICS}/second/publish", bad).owner is None
    told = cluster.ask(second, "GET", f"{TOPICS}/none")
    assert (told.status, told.owner) == (404, home)
    told = cluster.ask(second, "POST", f"{TOPICS}/none/poll", {})
    assert (told.status, told.owner) == (404, home)
    assert "none does not exist" in told.json()["message"]
    assert cluster.ask(home, "GET", f"{TOPICS}/none").owner is None


def test_what_is_home_s_is_passed_on(cluster: Cluster) -> None:
    home, *others = cluster.own
    for own in others:
        told = cluster.ask(own, "GET", TOPICS)
        assert (told.status, told.owner) == (200, home)
        assert "orders" in told.json()
        told = cluster.ask(own, "POST", "/v1/transactions")
        assert (told.status, told.owner) == (200, home)


def keyed(cluster: Cluster, own: str, path: str, body: Any, instance: str) -> Told:
    """Asks a server with a key, as the first try or as a repeat of it."""
    headers = {"Idempotency-Key": f"{path} {body}"[-60:], "Txaware-Instance": instance}
    return cluster.ask(own, "POST", path, body, headers=headers)


def instances_of(cluster: Cluster) -> set[str]:
    """The instance that each server names: one, once all know the same."""
    return {
        cluster.ask(own, "GET", "/ping").headers["txaware-instance"]
        for own in cluster.own
    }


@pytest.mark.parametrize("first", range(SERVERS))
def test_a_repeat_at_another_server_gets_the_first_answer(
    cluster: Cluster, first: int
) -> None:
    """The owner remembers the keys, whichever server has passed the request on."""
    jobs, topic = f"{QUEUES}/jobs-{first}", f"{TOPICS}/orders.{first}"
    told = cluster.ask(cluster.own[first], "PUT", jobs, {})
    assert told.status == 200, told
    ways = [*cluster.own[first:], *cluster.own[:first]]
    [instance] = instances_of(cluster)

    def answers(path: str, body: Any) -> list[Any]:
        all_told = [keyed(cluster, own, path, body, instance) for own in ways]
        assert {told.status for told in all_told} == {200}, all_told
        return [json.loads(told.body or b"null") for told in all_told]

    answers(f"{topic}/publish", {"messages": [{"utf8": f"once-{first}"}]})
    polled = cluster.ask(ways[0], "POST", f"{topic}/poll", EVERYTHING).json()
    assert [one["payload"] for one in polled].count(f"once-{first}") == 1
    for item in ("a", "b"):
        answers(f"{jobs}/push", {"messages": [item]})
    [[popped], *again] = answers(f"{jobs}/pop", {})
    assert again == [[popped]] * (SERVERS - 1)
    answers(f"{jobs}/commit", {name: popped[name] for name in ("id", "lease")})
    counts = cluster.ask(ways[-1], "GET", f"{jobs}/stats").json()
    assert [counts[name] for name in ("pushed", "popped", "committed")] == [2, 1, 1]


def test_a_transaction_over_shards_is_seen_at_once_at_every_server(
    cluster: Cluster,
) -> None:
    for number, own in enumerate(cluster.own):
        mark = b"of %d" % number
        with txaware.connect(own) as messaging:
            orders = messaging.publisher("orders")
            table = messaging.table("rows")
            with messaging.transaction():
                for key in range(24):
                    orders.publish(mark, key=b"%d" % key)
                table.put(b"row", mark)
            with suppress(KeyError), messaging.transaction():
                for key in range(24):
                    orders.publish(b"never", key=b"%d" % key)
                raise KeyError
        for other in cluster.own:
            with txaware.connect(other) as messaging, messaging.transaction():
                page = messaging.poll("orders", limit=10_000)
                found = [one.payload for one in page]
                assert found.count(mark) == 24
                assert b"never" not in found
                assert messaging.table("rows").get(b"row") == mark


def test_a_whole_topic_is_read_to_its_end_in_small_pages(cluster: Cluster) -> None:
    with txaware.connect(cluster.own[1]) as messaging:
        messaging.create_topic("paged", partitions=5)
        sent = [b"%d" % number for number in range(40)]
        publisher = messaging.publisher("paged")
        with messaging.transaction():
            for one in sent:
                publisher.publish(one, key=one)
        found, start = [], None
        for _ in range(100):
            page = messaging.poll("paged", start=start, inclusive=False, limit=7)
            assert len(page) <= 7
            found += [one.payload for one in page]
            start = page.next
            if not page:
                break
        assert sorted(found) == sorted(sent)
        assert messaging.offsets("paged").keys() == set(range(5))
        counts = {one.partition for one in messaging.poll("paged", limit=100)}
        assert counts == set(range(5))


def test_a_poll_of_a_whole_topic_waits_at_all_servers(cluster: Cluster) -> None:
    with txaware.connect(cluster.own[0]) as messaging:
        messaging.create_topic("awaited", partitions=3)
        pages = []

        def wait() -> None:
            pages.append(messaging.poll("awaited", wait_s=PATIENCE_S))

        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.2)  # it waits, most likely
        with txaware.connect(cluster.own[1]) as other:
            other.publish("awaited.2", [b"here"])
        waiting.join(PATIENCE_S)
        assert [[one.payload for one in page] for page in pages] == [[b"here"]]


def test_a_publish_without_a_key_stays_at_its_server(cluster: Cluster) -> None:
    with txaware.connect(cluster.own[0]) as messaging:
        messaging.create_topic("keyless", partitions=6)
    for shard, own in enumerate(cluster.own):
        told = cluster.ask(own, "POST", f"{TOPICS}/keyless/publish", ONE)
        assert (told.status, told.owner) == (200, None)
        with txaware.connect(own) as messaging:
            topic = messaging.topic("keyless")
            here = [n for n in range(6) if topic.shard_of(n) == shard]
            assert sum(len(messaging.poll(f"keyless.{n}")) for n in here) == 1


def test_what_is_stored_ahead_is_published_in_all_shards(cluster: Cluster) -> None:
    with txaware.connect(cluster.own[2]) as messaging:
        messaging.create_topic("large", partitions=4)
        publisher = messaging.publisher("large", buffer_limit_bytes=100)
        sent = [b"%040d" % number for number in range(30)]
        with messaging.transaction():
            for one in sent:
                publisher.publish(one, key=one)
        with suppress(KeyError), messaging.transaction():
            for one in sent:
                publisher.publish(one, key=one)
            raise KeyError
        with messaging.transaction():
            found = [one.payload for one in messaging.poll("large", limit=1000)]
        assert sorted(found) == sent


def test_a_producer_of_home_publishes_once_at_every_server(cluster: Cluster) -> None:
    with txaware.connect(cluster.own[1]) as messaging:
        messaging.create_topic("once", partitions=3)
        with messaging.producer() as producer:
            for number in range(3):
                producer.publish(f"once.{number}", [b"one", b"two"])
        assert [len(messaging.poll(f"once.{n}")) for n in range(3)] == [2] * 3
        with messaging.sender() as sender:
            for number in range(60):
                sender.send("once", b"%d" % number, key=b"%d" % number)
        assert len(messaging.poll("once", limit=1000)) == 66


def test_members_share_partitions_of_all_servers(cluster: Cluster) -> None:
    with txaware.connect(cluster.own[1]) as messaging:
        messaging.create_topic("shared", partitions=3)
        for number in range(3):
            messaging.publish(f"shared.{number}", [b"%d" % number])
        found: list[bytes] = []
        with messaging.member("readers", topics=["shared"]) as member:

            def read() -> bool:
                with messaging.transaction():
                    found.extend(one.payload for one in member.poll())
                return len(found) == 3

            assert until(read, timeout_s=PATIENCE_S)
        assert sorted(found) == [b"0", b"1", b"2"]


def test_a_client_goes_to_the_owner_by_itself(cluster: Cluster) -> None:
    _, second, third = cluster.own
    with txaware.connect(f"{third},http://127.0.0.1:1") as messaging:
        for _ in range(2):
            messaging.poll("second")
            messaging.topic("second")
        service: Any = messaging._parts.service
        link = service._transport.link
        assert link.place_of("second").url == second
        assert link.place_of("").url == cluster.own[0]


def test_the_page_and_lags_show_what_is_at_all_servers(cluster: Cluster) -> None:
    with txaware.connect(cluster.url) as messaging:
        messaging.create_topic("shown", partitions=3)
        for number in range(3):
            messaging.publish(f"shown.{number}", [b"one", b"two", b"three"])
        with messaging.transaction():
            for number in range(3):
                messaging.consumer(f"shown.{number}", group="late").poll(limit=1)
    for own in cluster.own:
        found = cluster.ask(own, "GET", "/v1/overview").json()
        lags = {g["topic"]: g["rows"] for g in found["groups"] if g["group"] == "late"}
        assert lags == {f"shown.{number}": 2 for number in range(3)}
        ages = {t["topic"]: t["newestMs"] for t in found["topics"]}
        assert all(ages[f"shown.{number}"] for number in range(3))


def test_the_metrics_of_any_server_are_those_of_all(cluster: Cluster) -> None:
    with txaware.connect(cluster.url) as messaging:
        messaging.create_topic("counted", partitions=3)
        for number in range(3):
            messaging.publish(f"counted.{number}", [b"one"] * (number + 1))
    for own in cluster.own:

        def is_counted(own: str = own) -> bool:
            text = cluster.ask(own, "GET", "/metrics").body.decode()
            beginning = 'txaware_messages_published_total{topic="counted.'
            lines = [one for one in text.splitlines() if one.startswith(beginning)]
            return sorted(one.partition("topic=")[2] for one in lines) == COUNTED

        assert until(is_counted)
        text = cluster.ask(own, "GET", "/metrics").body.decode()
        up = [one for one in text.splitlines() if one.startswith("txaware_up{")]
        assert up
        assert all(one.endswith(" 1.0") for one in up)
        assert 'txaware_metric_failures_total{family="topic_ages"}' not in text
        names = [line for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(names) == len(set(names))


def test_a_forged_mark_of_a_server_is_refused(cluster: Cluster) -> None:
    headers = {"Txaware-Server": "1 " + "0" * 64}
    told = cluster.ask(cluster.url, "GET", TOPICS, headers=headers)
    assert told.status == 403
    assert "secret" in told.json()["message"]


def test_nobody_greets_home_in_place_of_a_server(cluster: Cluster) -> None:
    body = {"writer": "w", "shards": [1]}
    for own in cluster.own:  # one that is not home passes it on to nobody
        told = cluster.ask(own, "POST", "/v1/transactions/hello", body)
        assert told.status == 403
        assert "only the servers of this data" in told.json()["message"]
    assert cluster.is_whole  # the servers themselves were let in


def test_the_directory_leads_to_the_servers(cluster: Cluster) -> None:
    with txaware.connect(f"leveldb:{cluster.data}") as messaging:
        assert messaging.topic("orders").partitions == 6


def second_parent(cluster: Cluster, *more: str) -> "subprocess.CompletedProcess[str]":
    return ended("serve", "--data", str(cluster.data), "--port", "0", *more)


def test_a_second_parent_is_refused(cluster: Cluster) -> None:
    ran = second_parent(cluster, "--processes", "2")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert f"process {cluster.process.pid}" in ran.stderr
    assert second_parent(cluster).returncode == 3


# ---- the life of the processes
@contextmanager
def two_servers(data: Path, *, forward_wait_s: float) -> Iterator[Cluster]:
    """Two servers, with a topic in each shard; slow ones are not killed for that."""
    waits = ("--set", f"forward_wait_s={forward_wait_s}")
    options = (*waits, "--set", f"server_silence_s={PATIENCE_S}")
    with clustered(data, 2, before=options) as found:
        with txaware.connect(found.url) as messaging:
            messaging.create_topic("orders", partitions=2)
        yield found


@pytest.fixture
def short_lived(tmp_path: Path) -> Iterator[Cluster]:
    """Two servers of a test's own, which wait for the successor of one that ended."""
    with two_servers(tmp_path / "data", forward_wait_s=PATIENCE_S) as found:
        yield found


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Cluster]:
    """Two servers of a test's own, which do not wait for it for long."""
    with two_servers(tmp_path / "data", forward_wait_s=0.5) as found:
        yield found


def lines_to(own: str) -> int:
    """How many connections others have to a server, also while nobody is there."""
    port = f":{urlsplit(own).port:04X}"
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(row.split()[2].endswith(port) and row.split()[3] == "01" for row in rows)


def publish_at(cluster: Cluster, own: str, partition: int) -> int:
    path = f"{TOPICS}/orders.{partition}/publish"
    return cluster.ask(own, "POST", path, ONE).status


def polled_at(cluster: Cluster, own: str, partition: int) -> list[str]:
    path = f"{TOPICS}/orders.{partition}/poll"
    told = cluster.ask(own, "POST", path, EVERYTHING)
    assert told.status == 200, told
    return [one["payload"] for one in told.json()]


def test_a_child_that_is_killed_is_started_anew_at_its_address(
    short_lived: Cluster,
) -> None:
    before = short_lived.servers()
    home, other = short_lived.own
    pid = short_lived.kill(other)
    assert publish_at(short_lived, home, 1) == 200  # it waits for its successor
    assert until(lambda: short_lived.is_whole)
    after = short_lived.servers()
    assert after["servers"] == before["servers"]
    assert after["shards"] == before["shards"]
    assert after["epoch"] > before["epoch"]
    assert short_lived.pid_of(other) != pid
    assert publish_at(short_lived, other, 1) == 200
    pid = short_lived.kill(home)
    assert publish_at(short_lived, other, 0) == 200
    assert until(lambda: short_lived.is_whole)
    assert polled_at(short_lived, home, 0) == ["one"]
    assert polled_at(short_lived, home, 1) == ["one"] * 2


def test_a_repeat_is_unknown_at_all_servers_once_the_owner_has_ended(
    short_lived: Cluster,
) -> None:
    """It remembered the key. What an owner that lives remembers is answered."""
    [before] = instances_of(short_lived)
    paths = [f"{TOPICS}/orders.{partition}/publish" for partition in (0, 1)]
    home, other = short_lived.own
    for path in paths:
        assert keyed(short_lived, home, path, ONE, before).status == 200
    pid = short_lived.kill(other)
    assert until(lambda: not is_alive(pid), timeout_s=PATIENCE_S)
    assert until(
        lambda: short_lived.is_whole and before not in instances_of(short_lived),
        timeout_s=PATIENCE_S,
    )
    for own in (home, other):
        lived, ended = (keyed(short_lived, own, path, ONE, before) for path in paths)
        assert lived.status == 200
        assert (ended.status, ended.headers["txaware-outcome"]) == (503, "unknown")
    for partition in (0, 1):
        assert polled_at(short_lived, other, partition) == ["one"]


def test_other_servers_pass_on_which_life_a_write_was_sent_to(
    short_lived: Cluster,
) -> None:
    """Home refuses a copy of before it began anew, and nothing that was sent since."""
    home, other = short_lived.own
    [before] = instances_of(short_lived)
    path = f"{TOPICS}/orders.0/publish"
    with txaware.connect(other, frames=True) as client:
        tx = client.coordinator.start_short(PATIENCE_S)
        client.publish("orders.0", [b"before"], transaction=tx)
        short_lived.kill(home)
        assert until(
            lambda: short_lived.is_whole and before not in instances_of(short_lived),
            timeout_s=PATIENCE_S,
        )
        [now] = instances_of(short_lived)
        asked = {"transactionWritePointer": tx.write_pointer, **ONE}

        def sent(key: str, sent_to: str | None) -> Told:
            headers = {"Txaware-Sent-To": sent_to} if sent_to else {}
            headers["Idempotency-Key"] = key
            return short_lived.ask(other, "POST", path, asked, headers=headers)

        for copy in (sent("silent", None), sent("before", before)):
            assert (copy.status, copy.owner) == (503, home)
            assert copy.headers["txaware-outcome"] == "unknown"
            assert "it may be a copy" in copy.json()["message"]
        assert sent("since", now).status == 200
        with txaware.connect(other, frames=True) as stranger:  # to home's own address
            stranger.publish("orders.0", [b"in frames"], transaction=tx)
        client.coordinator.can_commit(tx, [])
        client.coordinator.commit(tx)
    assert polled_at(short_lived, other, 0) == ["before", "one", "in frames"]


def test_a_request_in_a_frame_that_waits_for_the_next_life_of_home_is_no_copy(
    short_lived: Cluster,
) -> None:
    """It came before the server that passes it on knew of that life."""
    home, other = short_lived.own
    with (
        txaware.connect(home) as client,
        txaware.connect(other, frames=True) as stranger,  # to home's own address
        ThreadPoolExecutor(1) as threads,
    ):
        tx = client.coordinator.start_short(PATIENCE_S)
        client.publish("orders.0", [b"before"], transaction=tx)
        short_lived.process.send_signal(signal.SIGSTOP)
        try:
            pid = short_lived.kill(home)
            assert until(lambda: not is_alive(pid) and not lines_to(home))
            more = threads.submit(
                stranger.publish, "orders.0", [b"more"], transaction=tx
            )
            assert until(lambda: lines_to(home))
        finally:
            short_lived.process.send_signal(signal.SIGCONT)
        more.result(PATIENCE_S)
        client.coordinator.can_commit(tx, [])
        client.coordinator.commit(tx)
    assert polled_at(short_lived, other, 0) == ["before", "more"]


def test_shards_that_are_added_are_used_at_once_and_after_a_kill(
    short_lived: Cluster,
) -> None:
    run("shards", "add", "3", "--url", short_lived.own[1])
    shards = [one["server"] for one in short_lived.servers()["shards"]]
    assert shards == ["1", "2", "1", "2", "1"]
    with txaware.connect(short_lived.url) as messaging:
        other = f"at {short_lived.own[1]}"
        found = [one.status for one in messaging.shards()]
        assert found == ["OK", other, "OK", other, "OK"]
        messaging.create_topic("wide", partitions=5)
        assert sorted(messaging.topic("wide").shards) == list(range(5))
        publisher = messaging.publisher("wide")
        with messaging.transaction():
            for number in range(50):
                publisher.publish(b"%d" % number, key=b"%d" % number)
    for own in short_lived.own:
        short_lived.kill(own)
        assert until(lambda: short_lived.is_whole)
    with txaware.connect(short_lived.url) as messaging, messaging.transaction():
        assert len(messaging.poll("wide", limit=1000)) == 50
    code, err = short_lived.end()
    assert code == 0, err
    with txaware.connect(f"leveldb:{short_lived.data}") as messaging:
        assert len(messaging.poll("wide", limit=1000)) == 50
        with messaging.serve() as server:
            found = short_lived.servers(server.url)
            assert found["servers"] == [
                {"id": "1", "url": server.url, "own": server.url}
            ]
            assert [one["number"] for one in found["shards"]] == list(range(5))
            assert {one["server"] for one in found["shards"]} == {"1"}


def test_a_child_that_ends_by_itself_is_started_anew(short_lived: Cluster) -> None:
    _, other = short_lived.own
    pid = short_lived.kill(other, signal.SIGTERM)
    assert until(lambda: not is_alive(pid) and short_lived.is_whole)
    assert publish_at(short_lived, other, 1) == 200


def test_a_shard_that_stays_away_is_503_and_its_neighbours_work(
    impatient: Cluster,
) -> None:
    home, other = impatient.own
    # Its successor cannot open the shard.
    place = impatient.data / "shards" / "1"
    place.rename(impatient.data / "away")
    impatient.kill(other)
    told = impatient.ask(home, "POST", f"{TOPICS}/orders.1/publish", ONE)
    assert told.status == 503
    assert "shard 1" in told.json()["message"]
    assert [one["server"] for one in impatient.servers(home)["shards"]][1] is None
    assert publish_at(impatient, home, 0) == 200
    with txaware.connect(home) as messaging, messaging.transaction():
        messaging.publisher("orders.0").publish(b"two")
        messaging.table("rows").put(b"a", b"b")
        assert messaging.shards()[1].status == "at no server just now"
    (impatient.data / "away").rename(place)
    assert until(lambda: impatient.is_whole)
    assert publish_at(impatient, home, 1) == 200


def test_owners_go_on_without_home(short_lived: Cluster) -> None:
    home, other = short_lived.own
    assert publish_at(short_lived, other, 1) == 200
    pid = short_lived.kill(home, signal.SIGSTOP)
    try:
        assert publish_at(short_lived, other, 1) == 200
        assert polled_at(short_lived, other, 1) == ["one"] * 2
        with txaware.connect(other) as messaging:
            messaging.publish("orders.1", [b"two"])
            assert len(messaging.poll("orders.1")) == 3
        assert is_alive(pid), "they waited for the next life of home"
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_silent_child_is_killed_and_started_anew(tmp_path: Path) -> None:
    fast = ("--set", "server_silence_s=1")
    with clustered(tmp_path / "data", 2, before=fast) as cluster:
        own = cluster.own[1]
        pid = cluster.kill(own, signal.SIGSTOP)
        assert until(lambda: not is_alive(pid))
        assert until(lambda: cluster.is_whole)
        code, err = cluster.end()
        assert code == 0
        assert "silent" in err


def test_children_end_with_the_parent_and_it_can_be_started_anew(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with clustered(data, 2) as cluster:
        with txaware.connect(cluster.url) as messaging:
            messaging.create_topic("orders", partitions=2)
            messaging.publish("orders.1", [b"one"])
        pids = cluster.pids
        assert len(pids) == 2
        cluster.process.kill()
        cluster.process.wait()
        with clustered(data, 2) as again:  # at once
            assert not any(map(is_alive, pids))
            assert polled_at(again, again.url, 1) == ["one"]


def test_sigterm_ends_the_children_first_and_then_it_with_0(tmp_path: Path) -> None:
    with clustered(tmp_path / "data", 2) as cluster:
        pids = cluster.pids
        code, err = cluster.end()
        assert (code, err) == (0, "")
        assert not any(map(is_alive, pids))
        assert not children_of(cluster.process.pid)
    assert not (tmp_path / "data" / "SERVER").exists()
    with txaware.connect(f"leveldb:{tmp_path / 'data'}") as messaging:
        assert messaging.topics() == []


def test_a_token_has_its_rights_at_every_server(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    made = {}
    for name, verb in (("writer", "publish"), ("reader", "consume"), ("boss", "admin")):
        made[name] = run(
            *("token", "new", name, "--file", str(tokens)),
            *("--topic", "*", "--verb", verb),
        ).stdout.strip()
    with clustered(tmp_path / "data", 2, "--auth", str(tokens)) as cluster:
        with txaware.connect(cluster.url, token=made["boss"]) as messaging:
            messaging.create_topic("orders", partitions=2)
        boss = {"Authorization": f"Bearer {made['boss']}"}
        asked: tuple[tuple[str | None, int], ...] = (
            *(("writer", 200), ("reader", 403), (None, 401)),
        )
        found = cluster.ask(cluster.url, "GET", "/v1/servers", headers=boss).json()
        for own in [one["own"] for one in found["servers"]]:
            for who, status in asked:
                headers = {"Authorization": f"Bearer {made[who]}"} if who else {}
                for place in ("orders.0", "orders.1", "orders"):
                    told = cluster.ask(
                        own, "POST", f"{TOPICS}/{place}/publish", ONE, headers=headers
                    )
                    assert told.status == status, (own, who, place, told)


def test_what_is_wrong_is_one_sentence(tmp_path: Path) -> None:
    for arguments, said in (
        (("--data", "memory:"), "no directory"),
        (("--data", str(tmp_path / "d"), "--standby"), "--standby"),
    ):
        ran = ended("serve", "--port", "0", "--processes", "2", *arguments)
        assert ran.returncode == 2
        assert said in ran.stderr
    for setting, code, said in (
        ("own_ports=1-x", 2, "own_ports"),
        ("advertise=127.0.0.3", 3, "is not reached at 127.0.0.3:"),
    ):
        ports = ("--set", setting, "serve", "--processes", "2")
        ran = ended(*ports, "--data", str(tmp_path / "d"), "--port", "0")
        assert ran.returncode == code, ran.stderr
        assert said in ran.stderr
    assert not (tmp_path / "d" / "shards").exists()


def test_an_address_of_another_machine_is_refused_and_a_way_to_this_one_is_not(
    tmp_path: Path,
) -> None:
    """Another one listens at the same ports there, or a proxy that leads here."""
    other, here = "127.0.0.2", tmp_path / "here"
    port, *own = free_ports(3)
    ports = ("--set", f"own_ports={own[0]},{own[1]}")
    listens, told = ("--port", str(port)), ("--set", f"advertise={other}")

    def refused() -> str:
        serve = ("serve", "--data", str(here), "--processes", "2")
        ran = ended(*ports, *told, *serve, *listens)
        assert ran.returncode == 2, ran.stderr
        assert not ran.stdout
        assert "set advertise to a name of this machine" in ran.stderr
        return ran.stderr

    there = ("--host", other, "--port", str(port))
    with clustered(tmp_path / "there", 2, *there, before=ports):
        assert f"http://{other}:{port} is where" in refused()
    # Where only the address of one is another's, that one finds out.
    lines = ServerCuts({"all": port, "1": own[0]})
    with lines, socket.create_server((other, own[1])) as silent:
        answers = in_background(partial(_answers_nonsense, silent))
        assert f"http://{other}:{own[1]} is where" in refused()
        silent.shutdown(socket.SHUT_RDWR)
        answers.join()
    lines = ServerCuts({"all": port, "1": own[0], "2": own[1]})
    with lines:
        with clustered(here, 2, *listens, before=(*ports, *told)) as cluster:
            assert {urlsplit(one).hostname for one in cluster.own} == {other}
        tokens = str(tmp_path / "tokens.toml")
        run("token", "new", "boss", "--file", tokens, "--topic", "*", "--verb", "admin")
        made, key = map(str, self_signed(tmp_path, "DNS:mq.example.org"))
        guarded = ("--auth", tokens, "--certificate", made, "--key", key)
        with clustered(here, 2, *listens, *guarded, before=(*ports, *told)) as cluster:
            assert cluster.url == f"https://{other}:{port}"


def _answers_nonsense(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            line, _ = listener.accept()
            with line:
                line.recv(1 << 16)
                line.sendall(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")


def test_a_shard_of_another_store_is_told(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with clustered(tmp_path / name, 2):
            pass
    place = tmp_path / "one" / "shards" / "1"
    place.rename(tmp_path / "taken")
    (tmp_path / "two" / "shards" / "1").rename(place)
    ran = ended("serve", "--data", str(tmp_path / "one"), "--processes", "2")
    assert ran.returncode == 1, ran.stderr
    assert "another store" in json.dumps(ran.stderr)
