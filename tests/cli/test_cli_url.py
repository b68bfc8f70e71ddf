"""Every verb with the address of a server, in the way that users call it."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import txaware
from coordinator.transaction import TransactionType
from tests.support.cli_runs import PROGRAM, error_of, run, run_json, start
from txaware.cli.root import command
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.server.server import HttpServer

pytestmark = pytest.mark.usefixtures("here")

# What needs no data, or is about a place on this machine.
WITHOUT = {"asyncapi", "bench", "copy", "demo", "hbase", "metric"} | {
    *("restore", "serve", "token"),
}
# What goes on until it is told to stop.
ENDLESS = {"run", "worker"}
PATIENCE_S = 20


@pytest.fixture
def embedded() -> Iterator[Messaging]:
    settings = Settings(janitor_interval_s=0)
    with txaware.connect("leveldb:data", settings=settings) as messaging:
        messaging.create_topic("t")
        messaging.create_queue("mail")
        messaging.queue("mail").push(b"to ann")
        messaging.publish("t", [b"1", b"2"])
        messaging.administration.report_keeper("kept", 1)
        for name in ("yes", "no"):
            with messaging.transaction() as tx:
                messaging.table("rows").put(name.encode(), b"1")
                tx.prepare(name)
        yield messaging


@pytest.fixture
def server(embedded: Messaging) -> Iterator[HttpServer]:
    with embedded.serve() as served:
        yield served


@pytest.fixture(params=["http", "leveldb"])
def url(request: pytest.FixtureRequest, server: HttpServer) -> str:
    """The server's address, or the directory that leads there."""
    return server.url if request.param == "http" else "leveldb:data"


@pytest.fixture
def open_one(embedded: Messaging) -> int:
    """A transaction that keeps readers of t waiting."""
    tx = embedded.coordinator.start_short()
    embedded.publish("t", [b"open"], transaction=tx)
    return tx.transaction_id


@pytest.fixture
def made(embedded: Messaging) -> int:
    """A producer, beside a row of a table."""
    embedded.table("rows").put(b"kept", b"1")
    Path("shop.db").touch()
    Path("files/.txaware").mkdir(parents=True)
    producer = embedded.producer()
    producer.publish("t", [b"3"])
    return producer.producer_id


VERBS = [
    ["topic", "create", "new"],
    ["topic", "list"],
    ["topic", "show", "t"],
    ["topic", "peek", "t", "--from", "last"],
    ["topic", "offsets", "t"],
    ["topic", "update", "t", "--ttl", "1d"],
    ["topic", "delete", "t", "--yes"],
    ["publish", "t", "3"],
    ["publish", "t", "3", "--transaction"],
    ["poll", "t"],
    ["poll", "t", "--group", "g"],
    ["poll", "t", "--follow", "--limit", "2"],
    ["table", "put", "rows", "ann", "5"],
    ["table", "get", "rows", "kept"],
    ["table", "scan", "rows"],
    ["table", "list"],
    ["table", "delete", "rows", "ann"],
    ["queue", "create", "jobs"],
    ["queue", "push", "mail", "a"],
    ["queue", "pop", "mail"],
    ["queue", "peek", "mail"],
    ["queue", "list"],
    ["queue", "update", "mail", "--lease", "10m"],
    ["queue", "stats", "mail", "--pipes"],
    ["queue", "pause", "mail"],
    ["queue", "resume", "mail"],
    ["queue", "redrive", "mail"],
    ["queue", "truncate", "mail", "--yes"],
    ["queue", "delete", "mail", "--yes"],
    ["producer", "list"],
    ["producer", "describe", "MADE"],
    ["producer", "forget", "MADE"],
    ["group", "list"],
    ["group", "show", "had", "t"],
    ["group", "reset", "had", "t", "--to", "next", "--yes"],
    ["transaction", "list", "--state", "all"],
    ["transaction", "describe", "OPEN"],
    ["transaction", "find-hanging", "--older-than", "0"],
    ["transaction", "abort", "OPEN"],
    ["transaction", "prepared"],
    ["transaction", "commit", "yes"],
    ["transaction", "rollback", "no"],
    ["transaction", "prune", "--exclusive"],
    ["transaction", "keepers"],
    ["shard", "list"],
    ["shard", "add", "1"],
    ["transaction", "forget-keeper", "kept"],
    ["transaction", "decide", "7", "--life", "00000000000000a1", "--rolled-back"],
    ["outbox", "relay", "shop.db"],
    ["participant", "recover", "files"],
    ["status"],
    ["janitor"],
    ["check"],
    ["backup", "a.backup"],
]


# One goes on until it is stopped, others need what was set aside, or members.
TRIED_ELSEWHERE = (
    *("queue watch", "topic schema", "topic search", "shard give"),
    *(f"group {verb}" for verb in ("create", "delete", "members", "rewind", "assign")),
    *(f"outbox {verb}" for verb in ("list", "show", "retry", "send", "discard")),
)


def leaves(group: click.Group, *names: str) -> Iterator[tuple[str, ...]]:
    for name, verb in group.commands.items():
        if isinstance(verb, click.Group):
            yield from leaves(verb, *names, name)
        else:
            yield (*names, name)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_works_at_a_server(
    verb: list[str], url: str, open_one: int, made: int
) -> None:
    run("group", "reset", "had", "t", "--to", "first", "--url", url)
    named = {"OPEN": str(open_one), "MADE": str(made)}
    arguments = [named.get(one, one) for one in verb]
    assert run(*arguments, "--url", url).stdout.strip()


def test_no_verb_was_left_out() -> None:
    tried = [" ".join(verb) + " " for verb in VERBS]
    for names in leaves(command):
        if names[0] in WITHOUT | ENDLESS or " ".join(names) in TRIED_ELSEWHERE:
            continue
        name = " ".join(names) + " "
        assert any(one.startswith(name) for one in tried), name


def test_the_help_names_the_verbs_that_take_no_url() -> None:
    def takes_url(names: tuple[str, ...]) -> bool:
        verb: click.Command = command
        for name in names:
            assert isinstance(verb, click.Group)
            verb = verb.commands[name]
        return "url" in {one.name for one in verb.params}

    without = {names[0] for names in leaves(command) if not takes_url(names)}
    assert without == WITHOUT - {"restore", "serve"}
    *first, last = sorted(without)
    text = " ".join(run("--help").stdout.split())
    assert f"but {', '.join(first)} and {last}, which say" in text


def test_what_is_shown_of_transactions_is_what_the_server_knows(
    url: str, embedded: Messaging, open_one: int
) -> None:
    arguments = ("transactions", "describe", str(open_one))
    [here] = run_json(*arguments, obj=embedded)
    [there] = run_json(*arguments, "--url", url)
    assert {**here, "age_s": 0} == {**there, "age_s": 0}
    assert (there["type"], there["topics"]) == ("short", ["t"])
    text = run(*arguments, "--url", url).stdout
    assert "state          open: readers stop" in text
    assert "changed keys   0" in text
    aborted = run("transactions", "abort", str(open_one), "--url", url)
    assert aborted.stdout.startswith("aborted: transaction ")
    assert "is invalid now" in aborted.stdout
    for verb in ([], ["list"], ["describe"], ["find-hanging"], ["abort"]):
        told = run("transactions", *verb, "--help").stdout
        assert not re.search("(?i)releas|invalidat", told)
    *_, there = run_json("transactions", "list", "--state", "all", "--url", url)
    assert (there["transaction"], there["state"]) == (open_one, "invalid")


def test_whose_a_transaction_is_is_shown(url: str, embedded: Messaging) -> None:
    own = embedded.coordinator.start_short().transaction_id
    with txaware.connect(url) as client:
        tx = client.coordinator.checkpoint(client.coordinator.start_short())
        for arguments in (("list",), ("list", "--state", "all")):
            found = run_json("transactions", *arguments, "--url", url)
            whose = {one["transaction"]: one for one in found}
            theirs = whose[tx.transaction_id]
            assert theirs["principal"] == "anybody"
            assert re.fullmatch(r"127\.0\.0\.1:[0-9]+", theirs["address"])
            assert whose[own]["address"] == "this process"
            assert whose[own]["principal"] is None
            text = run("transactions", *arguments, "--url", url).stdout
            assert f"anybody at {theirs['address']}" in text
            assert "the coordinator's own process" in text
        for pointer in tx.pointers:
            text = run("transactions", "describe", str(pointer), "--url", url).stdout
            assert f"began by       anybody at {theirs['address']}" in text
        client.coordinator.invalidate(tx)
        listed = run("transactions", "list", "--state", "invalid", "--url", url).stdout
        assert f"anybody at {theirs['address']}" in listed
    text = run("transactions", "describe", str(own), obj=embedded).stdout
    assert "began by       the coordinator's own process" in text


def test_after_a_restart_nobody_knows_whose_a_transaction_is(tmp_path: Path) -> None:
    url = f"leveldb:{tmp_path / 'restarted'}"
    with (
        txaware.connect(url) as first,
        first.serve() as server,
        txaware.connect(server.url) as client,
    ):
        tx = client.coordinator.start_short(600)
        client.coordinator.persist(tx)
    with txaware.connect(url) as second, second.serve() as server:
        for arguments in (("list",), ("find-hanging", "--older-than", "0")):
            text = run("transactions", *arguments, "--url", server.url).stdout
            assert "not known since the restart" in text
        pointer = str(tx.transaction_id)
        describe = ("transactions", "describe", pointer, "--url", server.url)
        assert "not known since the restart" in run(*describe).stdout
        [found] = run_json(*describe)
        assert (found["principal"], found["address"]) == (None, None)


def test_long_transactions_and_checkpoints_are_told_apart(
    url: str, embedded: Messaging
) -> None:
    tx = embedded.coordinator.start_long()
    assert tx.type is TransactionType.LONG
    again = embedded.coordinator.checkpoint(tx)
    pointer = str(again.write_pointer)
    [found] = run_json("transactions", "describe", pointer, "--url", url)
    assert (found["transaction"], found["type"]) == (tx.transaction_id, "long")
    assert found["pointers"] == [tx.transaction_id, again.write_pointer]
    run("transactions", "abort", pointer, "--url", url)
    assert embedded.coordinator.invalid_size() == 2


def test_check_finds_at_the_server_what_it_finds_here(
    url: str, embedded: Messaging
) -> None:
    text = run("check", "--url", url).stdout
    assert text == run("check", obj=embedded).stdout
    assert text.endswith("clean\n")


def test_check_of_a_directory_that_nobody_serves_says_who_has_it(
    embedded: Messaging,
) -> None:
    told = error_of("check", "--url", "leveldb:data", code=3)
    assert "data is in use by process " in told


def test_a_backup_of_a_server_is_restored(url: str, here: Path) -> None:
    assert run("backup", "a.backup", "--url", url).stdout.startswith("a.backup: ")
    assert (here / "a.backup").stat().st_mode & 0o777 == 0o600
    run("restore", "a.backup", "leveldb:new")
    assert run("poll", "t", "--raw", "--url", "leveldb:new").stdout == "1\n2\n"


def test_a_backup_of_a_server_goes_through_a_pipe(server: HttpServer) -> None:
    made = subprocess.run(
        [*PROGRAM, "--url", server.url, "backup", "-"],
        capture_output=True,
        check=True,
        timeout=60,
    )
    run("restore", "-", "leveldb:new", stdin=made.stdout)
    assert run("--url", "leveldb:new", "check").stdout.endswith("clean\n")


def test_lines_are_published_as_they_come_and_followed(server: HttpServer) -> None:
    follow = start("poll", "t", "-f", "--raw", "--limit", "4", "--url", server.url)
    publish = start("publish", "t", "--url", server.url)
    with follow, publish:
        try:
            assert follow.stdout is not None
            assert publish.stdin is not None
            assert [follow.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
            for line in (b"3\n", b"4\n"):
                publish.stdin.write(line)
                publish.stdin.flush()
                assert follow.stdout.readline() == line
            assert follow.wait(PATIENCE_S) == 0
            out, _ = publish.communicate(timeout=PATIENCE_S)
            assert out == b"published 2 messages to t\n"
        finally:
            follow.kill()
            publish.kill()


def test_bytes_come_out_as_they_went_in(
    server: HttpServer, embedded: Messaging
) -> None:
    stdin = bytes(range(256)) * 5000 + b"\n\xff\xfe\n\n"
    embedded.create_topic("raw")
    run("publish", "raw", "--transaction", "--url", server.url, stdin=stdin)
    assert run("poll", "raw", "--raw", "--url", server.url).stdout_bytes == stdin


def test_another_coordinator_than_the_servers_has_to_be_named(
    server: HttpServer,
) -> None:
    url = ("--url", server.url)
    run("--coordinator", server.url, "publish", "t", "x", "--transaction", *url)
    told = error_of("--coordinator", "embedded", "topic", "list", *url, code=2)
    assert "a server has a coordinator of its own" in told
    run("--coordinator", "embedded", "topic", "list", "--url", "leveldb:data")


def test_the_address_may_be_in_the_environment(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    monkeypatch.setenv("TXAWARE_URL", server.url)
    assert len(run_json("poll", "t")) == 2
    before = {path.name for path in here.iterdir()}
    assert before == {"data"}


def test_no_server_and_a_wrong_address_are_one_sentence() -> None:
    nobody = "http://127.0.0.1:1"
    told = error_of("topic", "list", "--url", nobody, code=3)
    assert told.startswith(f"{nobody}: no connection")
    assert "no URL of a server" in error_of(
        "topic", "list", "--url", "http:///", code=2
    )
    told = error_of("restore", "x", "--url", nobody, code=2)
    assert told.startswith("a backup is restored to leveldb:PATH")


def test_json_of_a_server_is_that_of_a_directory(
    server: HttpServer, embedded: Messaging
) -> None:
    for verb in (["topic", "list"], ["topic", "show", "t"], ["poll", "t"]):
        there = run(*verb, "--json", "--url", server.url).stdout
        assert there == run(*verb, "--json", obj=embedded).stdout
        assert json.loads(there.splitlines()[0])
