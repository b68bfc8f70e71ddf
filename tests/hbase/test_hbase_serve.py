"""A server over HBase: it has one owner, and nobody waits in its loop for HBase."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

import txaware
from coordinator.remote.client import RemoteCoordinator
from tests.support.cli_runs import error_of, run, start
from tests.support.cli_runs import serving as serving_process
from tests.support.concurrency import until
from tests.support.http_raw import (
    AVRO,
    ONE,
    PING,
    TOPIC,
    Raw,
    Served,
    long_poll,
    poll,
    publish,
    request,
    serving,
)
from tests.support.messagings import commit, payloads
from tests.support.ports import free_port
from tests.support.queues import made, popped, taken
from txaware.client import (
    ClientSettings,
    CoordinatorSend,
    HttpService,
    Link,
    Transport,
)
from txaware.errors import Unavailable
from txaware.local_hbase import LocalHBase
from txaware.queue import Job
from txaware.spark.addresses import StoreAddress
from txaware.store.hbase.address import HBaseAddress
from txaware.store.hbase.connections import HBaseConnections
from txaware.store.hbase.ownership import Ownership, Process, StoreInUse
from txaware.store.hbase.table import HBaseTable

pytestmark = pytest.mark.hbase

LOOP = "txaware-http"  # its thread; others have numbers behind that
TIMEOUT_S = PATIENCE_S = 2
TOPICS = TOPIC.removesuffix("t")


@pytest.fixture
def over_hbase(hbase: LocalHBase, hbase_url: str) -> Iterator[Served]:
    """A server with short patience."""
    times: dict[str, Any] = {
        "hbase_timeout_s": TIMEOUT_S,
        "hbase_patience_s": PATIENCE_S,
    }
    with ExitStack() as later:
        later.callback(hbase.thrift.resume)
        with serving(hbase_url, **times) as served:
            later.callback(hbase.thrift.resume)
            yield served
            hbase.thrift.resume()


@pytest.fixture
def patient_over_hbase(hbase_url: str) -> Iterator[Served]:
    """A server as it is where nobody says otherwise."""
    with serving(hbase_url) as served:
        yield served


def test_serve_takes_the_address_and_is_the_one_owner(hbase_url: str) -> None:
    with serving_process("--data", hbase_url) as server:
        run("topic", "create", "t", "--url", server.url)
        run("publish", "t", "one", "two", "--transaction", "--url", server.url)
        assert run("poll", "t", "--raw", "--url", server.url).stdout == "one\ntwo\n"
        # Who names the store is led to its owner.
        assert run("poll", "t", "--raw", "--url", hbase_url).stdout == "one\ntwo\n"
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == (0, b"", b"")
    assert run("poll", "t", "--raw", "--url", hbase_url).stdout == "one\ntwo\n"


def test_others_are_led_to_the_owner_while_it_serves_the_store(
    hbase_url: str,
) -> None:
    with txaware.connect(hbase_url) as owner:
        for _ in range(2):
            with pytest.raises(StoreInUse) as caught:
                txaware.connect(hbase_url)
            assert f"is in use by process {os.getpid()} on " in str(caught.value)
            assert "start `txaware serve` on it first" in str(caught.value)
            with owner.serve() as one, owner.serve() as other:
                assert StoreAddress(hbase_url).resolved().url == other.url
                with txaware.connect(hbase_url, coordinator="embedded") as led:
                    assert led.reach().url in (one.url, other.url)
                    if "t" not in led.topics():
                        led.create_topic("t")
                    led.publish("t", [b"by way of the owner"])
            with pytest.raises(Unavailable, match="served by nobody"):
                StoreAddress(hbase_url).resolved()
        assert len(owner.poll("t")) == 2
    with txaware.connect(hbase_url) as next_one:
        assert len(next_one.poll("t")) == 2


@pytest.mark.parametrize(
    ("url", "led_to"),
    [
        ("http://127.0.0.1:1", None),
        ("http://localhost:1", None),
        ("http://[::1]:1", None),
        (None, None),
        ("https://10.0.0.7:11015", "https://10.0.0.7:11015"),
    ],
)
def test_an_owner_on_another_host_leads_to_what_can_be_reached(
    url: str | None, led_to: str | None, hbase_url: str
) -> None:
    connections = HBaseConnections(HBaseAddress.parse(hbase_url))
    elsewhere = Process("elsewhere", "another machine", 1, "long ago")
    owner = Ownership(connections, process=elsewhere)
    owner.take()
    owner.announce(url)
    asking = Ownership(connections, sleep_s=lambda _: owner.beat())
    with pytest.raises(StoreInUse, match="process 1 on elsewhere") as caught:
        asking.take()
    assert caught.value.served_at == led_to
    for each in (asking, owner):
        each.close()
    connections.close()


def test_nobody_is_led_to_an_owner_that_has_ended(hbase_url: str) -> None:
    connections = HBaseConnections(HBaseAddress.parse(hbase_url))
    ended = attrs.evolve(Process.this(), started="long ago")
    owner = Ownership(connections, process=ended)
    owner.take()
    owner.announce("http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="served by nobody"):
        StoreAddress(hbase_url).resolved()
    owner.close()
    connections.close()


def test_a_copy_says_who_has_the_store(hbase_url: str, tmp_path: Path) -> None:
    with (
        txaware.connect(hbase_url) as owner,
        owner.serve(),
        pytest.raises(Unavailable, match="during a copy that is the copy: end that"),
    ):
        txaware.copy(hbase_url, f"leveldb:{tmp_path}/copy")


def test_a_backup_names_what_there_is_instead(hbase_url: str) -> None:
    with txaware.connect(hbase_url):
        pass
    said = error_of("--url", hbase_url, "backup", "-", code=2)
    assert "txaware copy" in said
    assert "snapshots" in said


def calls() -> dict[str, bytes]:
    """All that looks at rows, or at a topic that nobody has looked at before."""
    return {
        "publish": publish(),
        "publish elsewhere": request("POST", TOPICS + "u/publish", ONE, *AVRO),
        "poll": poll(),
        "committed": long_poll_committed(),
        "describe": request("GET", TOPICS + "absent"),
        "update": request("PUT", TOPICS + "absent/properties", b"{}"),
        "wait": request("POST", TOPIC + "/wait", b'{"waitMs": 100}'),
        "bounds": request("GET", TOPIC + "/bounds"),
    }


def long_poll_committed() -> bytes:
    body = b'{"waitMs": 100, "isolation": "committed"}'
    return request("POST", TOPIC + "/poll", body, "Content-Type: application/json")


def test_while_hbase_is_stopped_others_are_served_and_all_get_503_in_time(
    hbase: LocalHBase, over_hbase: Served
) -> None:
    assert over_hbase.ask(publish()).status == 200
    with ExitStack() as stack:
        hbase.thrift.pause()
        began_s = time.monotonic()
        asked: dict[str, Raw] = {}
        for name, data in calls().items():
            asked[name] = stack.enter_context(over_hbase.connect())
            asked[name].send(data)
            ping_s = time.monotonic()
            assert over_hbase.ask(PING).status == 200
            assert time.monotonic() - ping_s < TIMEOUT_S, name  # waits for no try
        status = {name: raw.response().status for name, raw in asked.items()}
        assert set(status.values()) == {503}, status
        # A try takes the time-out, and some more of them wait for one another.
        assert time.monotonic() - began_s < 6 * (TIMEOUT_S + PATIENCE_S)
        hbase.thrift.resume()
    assert until(lambda: over_hbase.ask(publish()).status == 200, timeout_s=15)
    assert until(lambda: over_hbase.ask(request("GET", "/health")).status == 200)
    assert over_hbase.payloads()[0] == b"a"
    assert over_hbase.ask(request("GET", TOPICS + "absent")).status == 404


def test_a_killed_hbase_is_503_and_comes_back_by_itself(
    hbase: LocalHBase, over_hbase: Served
) -> None:
    assert over_hbase.ask(publish()).status == 200
    hbase.kill_thrift()
    began_s = time.monotonic()
    assert over_hbase.ask(publish()).status == 503
    assert over_hbase.ask(poll()).status == 503
    assert time.monotonic() - began_s < 4 * (TIMEOUT_S + PATIENCE_S)
    hbase.start_thrift()
    assert until(lambda: over_hbase.ask(publish()).status == 200, timeout_s=15)
    assert len(over_hbase.payloads()) >= 2


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that read from the table, from now on."""
    threads: list[str] = []
    for name in ("scan", "get"):
        read: Callable[..., Any] = getattr(HBaseTable, name)

        def noting(
            *args: Any, _read: Callable[..., Any] = read, **options: Any
        ) -> object:
            threads.append(threading.current_thread().name)
            return _read(*args, **options)

        monkeypatch.setattr(HBaseTable, name, noting)
    return threads


def test_the_loop_reads_nothing_from_hbase(
    patient_over_hbase: Served, reads: list[str]
) -> None:
    here = patient_over_hbase
    messaging = here.messaging
    messaging.create_topic("u")
    with here.connect() as plain, here.connect() as committed:
        body = b'{"waitMs": 20000, "isolation": "committed"}'
        committed.send(
            request("POST", TOPIC + "/poll", body, "Content-Type: application/json")
        )
        plain.send(long_poll(20_000))
        assert until(lambda: here.in_flight == 2)
        assert here.ask(publish()).status == 200
        assert len(plain.response().json()) == 1
        assert len(committed.response().json()) == 1
    tx = messaging.coordinator.start_short()
    messaging.store("t", [b"x" * 100] * 50, transaction=tx)
    messaging.publish("t", [], transaction=tx)
    commit(messaging, tx)
    for data in calls().values():
        here.ask(data)
    messaging.delete_topic("u")
    for path in ("u", "absent", "t"):
        here.ask(request("GET", TOPICS + path))
    assert here.ask(poll()).status == 200
    assert len(reads) > 10
    assert LOOP not in reads


def test_the_loop_reads_nothing_of_queues_either(
    patient_over_hbase: Served, reads: list[str]
) -> None:
    with txaware.connect(patient_over_hbase.url) as messaging:
        first, second = made(messaging, "first"), made(messaging, "second")
        second_waits = threading.Thread(target=lambda: found.append(second.pop(20)))
        found: list[Job | None] = []
        second_waits.start()
        first.push_all([b"a", b"b"])
        with messaging.transaction():
            second.push(popped(first).payload)
        second_waits.join(20)
        (job,) = found
        assert job is not None
        job.rollback(error="not now")
        assert taken(second) == [b"a"]
        assert taken(first) == [b"b"]
        stats = first.stats()
        assert (stats.committed, stats.depth, first.peek()) == (2, 0, [])
    assert len(reads) > 10
    assert LOOP not in reads


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP], ids=["kill", "stop"])
def test_a_standby_takes_over_from_an_owner_that_ended_or_hangs(
    blow: signal.Signals, hbase_url: str
) -> None:
    """A client with both addresses goes on, with the transaction that it had begun."""
    settings = ClientSettings(answer_timeout_s=2)
    with ExitStack() as stack:
        first = stack.enter_context(serving_process("--data", hbase_url))
        port = free_port()
        options = ("--data", hbase_url, "--standby", "--port", str(port))
        standby = stack.enter_context(start("serve", *options))
        stack.callback(standby.kill)
        assert standby.stdout is not None
        assert standby.stderr is not None
        said = standby.stderr.readline().decode()
        owner = f"{first.process.pid} on {Process.this().host} at {first.url}"
        assert f"on standby: this data is served already, by process {owner}" in said
        url = f"{first.url},http://127.0.0.1:{port}"
        transport = Transport(Link(url, settings=settings))
        stack.callback(transport.close)
        service = HttpService(transport)
        coordinator = RemoteCoordinator(CoordinatorSend(transport))
        service.create_topic("t")
        tx = coordinator.start_short(timeout_s=600)
        service.publish("t", [b"of a transaction"], transaction=tx)
        first.process.send_signal(blow)

        def published() -> bool:
            try:
                service.publish("t", [b"plain"])
            except Unavailable:
                return False
            return True

        assert until(published, timeout_s=120)
        coordinator.can_commit(tx, [])
        coordinator.commit(tx)
        found = payloads(service.poll("t", isolation="committed"))
        assert found[0] == b"of a transaction"
        assert set(found[1:]) == {b"plain"}
