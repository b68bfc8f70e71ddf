"""`txaware outbox`: the relay as a process of its own."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import txaware
from tests.support.cli_runs import error_of, run
from tests.support.messagings import committed
from tests.support.queues import taken
from txaware import Outgoing, participants
from txaware.cli.stop import Stop
from txaware.participants import sqlite_link
from txaware.participants.outbox_relay import OutboxRelay

LIST = ("outbox", "list", "shop.db")


@pytest.fixture(autouse=True)
def filled(here: Path) -> None:
    run("topic", "create", "t")


def test_the_relay_carries_over_what_a_program_has_left() -> None:
    connection = sqlite3.connect("shop.db")
    with txaware.connect("leveldb:./data") as messaging:
        shop = participants.sqlite(messaging, connection, relay=False)
        with messaging.transaction(shop):
            messaging.publisher("t").publish_all([b"1", b"2"])
    connection.close()
    relay = ("outbox", "relay", "shop.db")
    assert run(*relay).stdout == "carried over 2 messages\n"
    assert run(*relay).stdout == "carried over 0 messages\n"
    with txaware.connect("leveldb:./data") as messaging:
        assert committed(messaging) == [b"1", b"2"]


def test_the_relay_removes_the_notes_of_items_that_have_ended() -> None:
    connection = sqlite3.connect("shop.db")
    with txaware.connect("leveldb:./data") as messaging:
        messaging.create_queue("mail")
        messaging.queue("mail").push_all([b"1", b"2"])
        shop = participants.sqlite(messaging, connection, relay=False)
        with messaging.transaction(shop):
            assert len(messaging.queue("mail").pop_many(2)) == 2
    count = "SELECT count(*) FROM txaware_inbox_items"
    assert connection.execute(count).fetchone() == (2,)
    run("outbox", "relay", "shop.db")
    assert connection.execute(count).fetchone() == (0,)
    connection.close()


def test_an_absent_server_is_told_of_and_tried_again_each_five_seconds_at_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command stops in its ninth pause; nothing here waits for one."""
    pauses_s: list[float] = []

    def pause(stop: Stop, timeout_s: float) -> bool:
        pauses_s.append(timeout_s)
        stop.requested = len(pauses_s) == 9
        return stop.requested

    def carry_over(relay: OutboxRelay[Any]) -> int:
        raise txaware.Unavailable("nobody is there")

    monkeypatch.setattr(Stop, "wait", pause)
    monkeypatch.setattr(OutboxRelay, "carry_over", carry_over)
    with closing(sqlite3.connect("shop.db")) as connection, connection:
        txaware.outbox(connection).publish("t", b"1")
    told = run("outbox", "relay", "shop.db", "--every", "1s").stderr
    assert pauses_s == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    for line, pause_s in zip(told.splitlines(), pauses_s, strict=True):
        assert "1 message waiting, the oldest for " in line
        assert line.endswith(f"; again in {pause_s:g} s: nobody is there)")


def test_what_is_no_outbox_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = ("outbox", "relay")
    assert "no file of SQLite at away.db" in error_of(*relay, "away.db", code=2)
    assert not Path("away.db").exists()
    Path("junk.db").write_text("junk")
    assert error_of(*relay, "junk.db", code=2) == (
        "SQLite cannot read junk.db: file is not a database"
    )
    monkeypatch.setattr(sqlite_link, "WAIT_S", 0)
    with closing(sqlite3.connect("shop.db")) as connection, connection:
        connection.execute("BEGIN IMMEDIATE")
        assert error_of(*relay, "shop.db", code=3) == (
            "SQLite cannot use shop.db: database is locked"
        )
    assert "'0' is not more than 0" in error_of(
        *relay, "shop.db", "--every", "0", code=2
    )


@pytest.mark.parametrize("verb", [("outbox", "relay"), ("participants", "recover")])
def test_a_wrong_address_of_postgres_is_one_sentence(verb: tuple[str, str]) -> None:
    pytest.importorskip("psycopg")
    assert "PostgreSQL refuses: invalid percent-encoded token" in error_of(
        *verb, "postgresql://%zz", code=2
    )


@pytest.fixture
def left() -> None:
    """Messages for a topic and items for a queue that are not there any more."""
    connection = sqlite3.connect("shop.db")
    with txaware.connect("leveldb:./data") as messaging:
        messaging.create_queue("mail")
        shop = participants.sqlite(messaging, connection, relay=False)
        with messaging.transaction(shop):
            for number in (b"1", b"2"):
                messaging.publisher("t").publish(Outgoing(number, key=b"ann"))
                messaging.queue("mail").push(number)
        messaging.delete_topic("t")
        messaging.delete_queue("mail")
    connection.close()
    assert run("outbox", "relay", "shop.db").stdout == "carried over 0 messages\n"


@pytest.mark.usefixtures("left")
def test_what_is_set_aside_is_listed_and_shown() -> None:
    listed = run("outbox", "list", "shop.db").stdout.splitlines()
    assert listed[0].split() == ["KIND", "NAME", "COUNT", "SINCE", "REASON"]
    assert [line.split()[:3] for line in listed[1:]] == [
        ["topic", "t", "2"],
        ["queue", "mail", "2"],
    ]
    found = [json.loads(line) for line in run(*LIST, "--json").stdout.splitlines()]
    assert [one["count"] for one in found] == [2, 2]
    assert (found[0]["topic"], found[1]["queue"]) == ("t", "mail")
    assert run("outbox", "show", "shop.db", "t").stdout == "[ann] 1\n[ann] 2\n"
    shown = run("outbox", "show", "shop.db", "mail", "--json", "--limit", "1").stdout
    assert json.loads(shown)["payload"] == "1"
    assert error_of("outbox", "show", "shop.db", "away", code=2) == (
        "nothing is set aside for away; it is for topic t, queue mail"
    )


@pytest.mark.usefixtures("left")
def test_what_is_set_aside_is_retried_sent_elsewhere_and_discarded() -> None:
    assert "topic t" in error_of("outbox", "retry", "shop.db", "t", code=1)
    run("topic", "create", "t")
    run("queue", "create", "other")
    assert run("outbox", "retry", "shop.db", "t").stdout == (
        "carried over 2 messages to t\n"
    )
    send = ("outbox", "send", "shop.db", "mail", "--to")
    assert "away" in error_of(*send, "away", code=1)
    assert run(*send, "other").stdout == "carried over 2 messages to other\n"
    with txaware.connect("leveldb:./data") as messaging:
        assert committed(messaging) == [b"1", b"2"]
        assert taken(messaging.queue("other")) == [b"1", b"2"]


@pytest.mark.usefixtures("left")
def test_discard_asks_for_yes() -> None:
    discard = ("outbox", "discard", "shop.db", "t")
    said = error_of(*discard, code=2)
    assert "this removes 2 messages for t for good: say --yes" in said
    assert run(*discard, "--yes").stdout == "removed 2 messages for t\n"
    assert [line.split()[1] for line in run(*LIST).stdout.splitlines()] == [
        "NAME",
        "mail",
    ]
    run("outbox", "discard", "shop.db", "mail", "--queue", "--yes")
    assert "nothing is set aside" in run(*LIST).stderr
