"""`connect` and the addresses of coordinators."""

import os
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator import EmbeddedCoordinator
from coordinator.tephra import TephraCoordinator, ThriftCoordinator
from tests.support.doubles import Recorder
from tests.support.http_access import TRANSACTIONS, Caller
from tests.support.messagings import payloads
from tests.support.ports import free_port
from txaware.client import ClientSettings

PUBLISH = "/v1/namespaces/default/topics/t/publish"


def test_memory_is_embedded_unless_told_otherwise() -> None:
    with txaware.connect("memory:") as messaging:
        assert isinstance(messaging.coordinator, EmbeddedCoordinator)
        table = Recorder()
        with messaging.transaction(table, timeout_s=5) as tx:
            pass
        assert table.log[-1] == "post_tx_commit table"
        assert messaging.coordinator.snapshot().is_visible(
            tx.transaction.transaction_id
        )


def test_what_connect_opened_is_closed_with_it() -> None:
    with txaware.connect("memory:") as messaging:
        coordinator = messaging.coordinator
    assert coordinator.status() == "closed"


def test_a_coordinator_of_the_callers_stays_open() -> None:
    mine = EmbeddedCoordinator()
    with txaware.connect("memory:", coordinator=mine) as messaging:
        assert messaging.coordinator is mine
    assert mine.status() == "OK"


@pytest.mark.parametrize("url", ["", "memory", "memory:x", "leveldb:", "file:"])
def test_an_unknown_url_says_what_can_be_connected_to(url: str) -> None:
    with pytest.raises(txaware.BadRequest, match="cannot be connected to; memory:, "):
        txaware.connect(url)


def test_a_closed_messaging_takes_nothing_that_it_could_not_write() -> None:
    messaging = txaware.connect("memory:")
    messaging.create_topic("t")
    messaging.close()
    for taking in (
        messaging.sender,
        partial(messaging.async_publisher, "t"),
        partial(messaging.at_most_once_publisher, "t"),
        messaging.serve,
        messaging.__enter__,
    ):
        with pytest.raises(txaware.Unavailable, match="this Messaging is closed; make"):
            taking()


@pytest.mark.parametrize("port", [-1, 65_536, "80", None, True])
def test_a_port_that_there_is_not_is_bad_input(port: Any) -> None:
    wrong = pytest.raises(txaware.BadRequest, match=f"from 0 to 65535, not {port!r}")
    with txaware.connect("memory:") as messaging, wrong:
        messaging.serve(port=port)


def test_a_directory_that_is_open_here_is_said_to_be_so(tmp_path: Path) -> None:
    url = f"leveldb:{tmp_path / 'data'}"
    with txaware.connect(url):
        said = rf"by process {os.getpid()}, this one; .*share one Messaging"
        with pytest.raises(txaware.Unavailable, match=said):
            txaware.connect(url)


def test_an_option_that_a_verb_does_not_have_is_named_in_its_words() -> None:
    with txaware.connect("memory:") as messaging:
        wrong: Any = {"ttl": 5}
        said = r"^create_topic\(\) has no option ttl, but topic, ttl_s, properties, "
        with pytest.raises(TypeError, match=said):
            messaging.create_topic("t", **wrong)
        nothing: Any = messaging.delete_topic
        with pytest.raises(
            TypeError, match=r"^delete_topic\(\): missing a required argument"
        ):
            nothing()


@pytest.mark.parametrize("wrong", [{"cache_bytes": 5}, 5, ClientSettings()])
def test_what_is_no_settings_is_bad_input(wrong: Any) -> None:
    said = pytest.raises(
        txaware.BadRequest, match=r"settings are a txaware\.Settings, not"
    )
    with said:
        txaware.connect("memory:", settings=wrong)


def test_a_consumer_says_which_times_there_are() -> None:
    with txaware.connect("memory:") as messaging:
        messaging.create_topic("t")
        with pytest.raises(
            txaware.BadRequest, match=r"a time is from 0 to \d+ ms, not"
        ):
            messaging.consumer("t", start=-5).poll()


@pytest.mark.parametrize("second", ["http://h:1", "HTTPS://h:1", "hbase://h:1/p"])
def test_data_and_a_server_in_one_address_are_refused_and_nothing_is_made(
    tmp_path: Path, second: str
) -> None:
    url = f"leveldb:{tmp_path / 'data'}, {second}"
    with pytest.raises(txaware.BadRequest, match="names data and a server"):
        txaware.connect(url)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "address", ["", "tephra", "tephra:", "embedded:", "ftp://x:1", "tephra+zk://"]
)
def test_an_unknown_coordinator_says_which_there_are(address: str) -> None:
    with pytest.raises(
        txaware.BadRequest, match=r"use embedded, tephra:DIR, .* or http://HOST:PORT$"
    ):
        txaware.connect("memory:", coordinator=address)


@pytest.mark.parametrize(
    "address",
    ["tephra://", "tephra://host", "tephra://host:x", "tephra://h:1:2", "tephra://:1"],
)
def test_a_tephra_address_needs_host_and_port(address: str) -> None:
    with pytest.raises(txaware.BadRequest, match="is not tephra://HOST:PORT"):
        txaware.connect("memory:", coordinator=address)


def test_nobody_at_an_address_is_unavailable_and_says_where() -> None:
    with (
        txaware.connect("memory:", coordinator="tephra://127.0.0.1:9") as messaging,
        pytest.raises(txaware.Unavailable, match=r"127\.0\.0\.1:9"),
    ):
        messaging.coordinator.start_short()


def test_a_store_opens_while_the_server_of_its_coordinator_is_away(
    tmp_path: Path,
) -> None:
    port = free_port()
    away, where = f"http://127.0.0.1:{port}", rf"127\.0\.0\.1:{port}"
    with (
        txaware.connect(f"leveldb:{tmp_path / 'rows'}", coordinator=away) as messaging,
        messaging.serve() as server,
        closing(Caller(server.url, None)) as caller,
    ):
        messaging.create_topic("t")
        messaging.publish("t", [b"plain"])
        assert payloads(messaging.poll("t")) == [b"plain"]
        for use in (
            messaging.coordinator.start_short,
            messaging.coordinator.status,
            partial(messaging.poll, "t", isolation="committed"),
        ):
            with pytest.raises(txaware.Unavailable, match=where):
                use()
        published = caller.ask("POST", PUBLISH, {"messages": ["plain"]})
        assert published.status == 200
        with (
            txaware.connect(server.url, coordinator=away) as other,
            pytest.raises(txaware.Unavailable, match=where),
        ):
            other.coordinator.start_short()
        begun = caller.ask("POST", TRANSACTIONS, {})
        assert (begun.status, begun.json["error"]) == (503, "Unavailable")
        health = caller.ask("GET", "/health")
        assert (health.status, health.json["parts"]["table"]) == (503, "OK")
        assert f"127.0.0.1:{port}" in health.json["parts"]["coordinator"]
        with (
            txaware.connect(f"leveldb:{tmp_path / 'decisions'}") as owner,
            owner.serve(port=port),
            txaware.connect(server.url) as client,
        ):
            for each in (messaging, client):
                with each.transaction():
                    each.publisher("t").publish(b"committed")
            assert payloads(messaging.poll("t", isolation="committed")) == [
                *(b"plain", b"plain", b"committed", b"committed")
            ]
            assert caller.ask("GET", "/health").status == 200
            assert "(another store)" in [one.name for one in owner.keepers()]


@pytest.mark.tephra
@pytest.mark.usefixtures("java")
def test_the_real_tephra_by_directory_and_by_address(tmp_path: Path) -> None:
    address = f"tephra:{tmp_path}"
    with txaware.connect("memory:", coordinator=address) as messaging:
        assert isinstance(messaging.coordinator, TephraCoordinator)
        with messaging.transaction(Recorder()) as tx:
            pass
        host, port = messaging.coordinator.serve_thrift()
        elsewhere = f"tephra://{host}:{port}"
        with txaware.connect("memory:", coordinator=elsewhere) as other:
            assert isinstance(other.coordinator, ThriftCoordinator)
            seen = other.coordinator.snapshot()
            assert seen.is_visible(tx.transaction.transaction_id)
