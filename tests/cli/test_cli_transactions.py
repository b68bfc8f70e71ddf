"""`txaware transaction`: which hang, which do not, and what is shown of them."""

import gc
import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.cli_runs import error_of, run, run_json
from tests.support.concurrency import until
from tests.support.python_process import PythonProcess
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.server.server import HttpServer

CLIENT = """
import sys, txaware
messaging = txaware.connect(sys.argv[1])
tx = messaging.coordinator.start_short(600)
messaging.publish("t", [b"open"], transaction=tx)
print(tx.transaction_id, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def messaging(tmp_path: Path) -> Iterator[Messaging]:
    settings = Settings(janitor_interval_s=0, accept_unknown_pointers=True)
    with txaware.connect(f"leveldb:{tmp_path / 'data'}", settings=settings) as opened:
        for topic in ("t", "n:u"):
            opened.create_topic(topic)
        yield opened


@pytest.fixture
def server(messaging: Messaging) -> Iterator[HttpServer]:
    with messaging.serve() as served:
        yield served


@contextmanager
def client(url: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process with an open transaction, and its id."""
    child = PythonProcess(
        [sys.executable, "-c", CLIENT, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        yield child, int(child.stdout.readline())
    finally:
        child.kill()
        child.communicate()


def hanging(*arguments: str, **where: Any) -> list[Any]:
    found = ("transactions", "find-hanging", "--older-than", "0", *arguments)
    return run_json(*found, **where)


def test_what_a_killed_client_left_hangs_until_it_is_aborted(
    messaging: Messaging, server: HttpServer
) -> None:
    """Scenario 98: the last stable position moves once it is aborted."""
    url = ("--url", server.url)
    with client(server.url) as (child, pointer):
        open_row = messaging.peek("t")[0].id
        time.sleep(0.01)
        assert not hanging(*url)
        [listed] = run_json("transactions", "list", *url)
        assert (listed["transaction"], listed["is_held"]) == (pointer, True)
        child.send_signal(signal.SIGSTOP)  # it may go on at any time
        assert not hanging(*url)
        child.kill()
        child.wait()
        until(lambda: bool(hanging(*url)))
        [found] = hanging(*url)
    messaging.publish("t", [b"after"])
    assert (found["transaction"], found["principal"]) == (pointer, "anybody")
    assert found["topics"] == ["t"]
    [waiting] = found["waiting"]
    assert (waiting["start"], waiting["rows"]) == (str(open_row), 1)
    assert not run_json("transactions", "find-hanging", *url)  # younger than 15 minutes
    table = run("transactions", "find-hanging", "--older-than", "0", *url).stdout
    header, row = table.splitlines()
    at = header.split().index("StartId")
    assert (row.split()[0], row.split()[at]) == ("t", str(open_row))
    assert messaging.bounds("t", isolation="committed").next == open_row
    run("transactions", "abort", str(pointer), *url)
    assert not hanging(*url)
    behind = messaging.bounds("t").next
    assert messaging.bounds("t", isolation="committed").next == behind


@pytest.mark.parametrize("long", [False, True])
def test_a_long_one_of_this_program_hangs_once_nobody_has_it(
    messaging: Messaging, long: bool
) -> None:
    coordinator = messaging.coordinator
    tx = coordinator.start_long() if long else coordinator.start_short(600)
    time.sleep(0.01)
    assert not hanging(obj=messaging)
    tx = coordinator.checkpoint(tx)
    gc.collect()
    assert not hanging(obj=messaging)
    number = tx.transaction_id
    described = run("transactions", "describe", str(number), obj=messaging).stdout
    assert "is there, and has it" in described
    assert f"time-out       {'1d' if long else '10m'}" in described
    del tx
    gc.collect()
    assert [one["transaction"] for one in hanging(obj=messaging)] == [number]


def test_a_block_that_is_open_for_long_does_not_hang(messaging: Messaging) -> None:
    with messaging.transaction(timeout_s=600) as tx:
        messaging.publish("t", [b"a"], transaction=tx.transaction)
        time.sleep(0.01)
        assert not hanging(obj=messaging)
        listed = ("transactions", "list", "--older-than", "0")
        assert len(run_json(*listed, obj=messaging)) == 1


def test_whose_producer_has_it_is_shown_and_chosen(
    messaging: Messaging, server: HttpServer
) -> None:
    with messaging.producer("loader-7") as here:
        other = messaging.coordinator.start_short()
        with here.transaction():
            here.publish("t", [b"a"])
            time.sleep(0.01)
            [found] = hanging(obj=messaging)  # the producer still has its own
            assert found["transaction"] == other.transaction_id
            listed = ("transactions", "list", "--producer", "loader-7")
            [found] = run_json(*listed, obj=messaging)
            assert (found["producer"], found["producer_epoch"]) == ("loader-7", 0)
            header, row = run(*listed, obj=messaging).stdout.splitlines()
            named = ["TransactionalId", "ProducerId", "ProducerEpoch"]
            assert header.split()[-3:] == named
            assert row.split()[-3:] == ["loader-7", str(here.producer_id), "0"]
            assert not run_json(*listed[:-1], "other", obj=messaging)
            assert not hanging("--producer", "other", obj=messaging)
        assert not run_json(*listed, obj=messaging)
    with (
        txaware.connect(server.url) as client,
        client.producer("loader-8") as there,
        there.transaction() as tx,
    ):
        pointer = tx.transaction.transaction_id
        url = ("--url", server.url)
        [found] = run_json(*listed[:-1], "loader-8", *url)
        assert found["transaction"] == pointer
        text = run("transactions", "describe", str(pointer), *url).stdout
        assert f"producer       loader-8, id {found['producer_id']}, epoch 0" in text


def test_rows_of_an_id_that_nobody_was_given_hang(messaging: Messaging) -> None:
    messaging.publish("t", [b"late"], transaction=6)
    messaging.publish("t", [b"late again"], transaction=6)
    messaging.publish("n:u", [b"plain"])
    time.sleep(0.01)
    [found] = hanging(obj=messaging)
    assert (found["transaction"], found["state"]) == (6, "never given out")
    assert found["age_s"] < 600
    [waiting] = found["waiting"]
    assert (waiting["topic"], waiting["rows"]) == ("t", 2)
    assert "2 rows from" in run("transactions", "describe", "6", obj=messaging).stdout
    run("transactions", "abort", "6", obj=messaging)
    assert not hanging(obj=messaging)


def test_they_are_chosen_by_topic_age_and_principal(
    messaging: Messaging, server: HttpServer
) -> None:
    coordinator = messaging.coordinator
    in_t, in_u, nowhere = (coordinator.start_short() for _ in range(3))
    messaging.publish("t", [b"a"], transaction=in_t)
    messaging.publish("n:u", [b"a"], transaction=in_u)
    time.sleep(0.01)

    def listed(*arguments: str) -> list[int]:
        found = run_json("transactions", "list", *arguments, obj=messaging)
        return [one["transaction"] for one in found]

    def found(*arguments: str) -> list[int]:
        return [one["transaction"] for one in hanging(*arguments, obj=messaging)]

    numbers = [tx.transaction_id for tx in (in_t, in_u, nowhere)]
    for choose in (listed, found):
        assert choose() == numbers
        assert choose("--topic", "t") == numbers[:1]
        assert choose("--topic", "n:u") == numbers[1:2]
        assert choose("--topic", "t", "--topic", "n:u") == numbers[:2]
        assert choose("--older-than", "1h") == []
        assert choose("--principal", "ann") == []
    with txaware.connect(server.url) as there:
        tx = there.coordinator.start_short()
        url = ("transactions", "list", "--principal", "anybody", "--url", server.url)
        [one] = run_json(*url)
        assert one["transaction"] == tx.transaction_id
    assert "leave --state out" in error_of(
        *("transactions", "list", "--state", "all", "--topic", "t"),
        code=2,
        obj=messaging,
    )
    assert "topic x does not exist" in error_of(
        "transactions", "list", "--topic", "x", obj=messaging
    )


def test_a_server_finds_them_too(messaging: Messaging, server: HttpServer) -> None:
    def asked(path: str) -> Any:
        with urllib.request.urlopen(f"{server.url}/v1/transactions{path}") as answer:
            return json.load(answer)

    held = messaging.coordinator.start_short(600)
    dropped = messaging.coordinator.start_short().transaction_id
    time.sleep(0.01)
    found = asked("/find-hanging?olderThanS=0")
    assert [one["transactionId"] for one in found] == [dropped]
    assert not asked("/find-hanging")
    with suppress(txaware.TransactionRefused):
        messaging.coordinator.abort(held)


def test_prepared_ones_are_listed_and_ended_by_name() -> None:
    with txaware.connect("memory:") as messaging:
        assert (
            "(no transaction is prepared)"
            in run("transactions", "prepared", obj=messaging).stderr
        )
        table = messaging.table("rows")
        for name in ("order 7", "order 8"):
            with messaging.transaction() as tx:
                table.put(name.encode(), b"1")
                tx.prepare(name)
        header, *rows = run(
            "transactions", "prepared", obj=messaging
        ).stdout.splitlines()
        assert header.split() == ["NAME", "TRANSACTION", "SINCE", "PRINCIPAL"]
        assert [row[:7] for row in rows] == ["order 7", "order 8"]
        listed = run_json("transactions", "prepared", obj=messaging)
        assert [one["name"] for one in listed] == ["order 7", "order 8"]
        assert not hanging(obj=messaging)
        other = messaging.coordinator.start_short()
        by_state = ("transactions", "list", "--state", "prepared")
        assert [one["transaction"] for one in run_json(*by_state, obj=messaging)] == [
            one.transaction_id for one in messaging.prepared()
        ]
        messaging.coordinator.abort(other)
        number = str(messaging.prepared()[0].transaction_id)
        error = error_of("transactions", "abort", number, obj=messaging)
        assert "order 7" in error  # whose end nobody but its name asks for
        told = run("transactions", "commit", "order 7", obj=messaging).stdout
        assert told == "committed order 7\n"
        told = run("transactions", "rollback", "order 8", obj=messaging).stdout
        assert told == "rolled back order 8\n"
        assert list(table.items()) == [(b"order 7", b"1")]
        error = error_of("transactions", "commit", "order 7", obj=messaging)
        assert "no transaction is prepared as 'order 7'" in error
