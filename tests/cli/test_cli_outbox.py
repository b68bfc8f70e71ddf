"""`txaware outbox`: the relay as a process of its own."""

import sqlite3
from pathlib import Path

import pytest

import txaware
from tests.support.cli_runs import error_of, run
from tests.support.messagings import committed
from txaware import participants


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
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


def test_a_file_that_is_not_there_is_one_sentence() -> None:
    assert "no file of SQLite at away.db" in error_of(
        "outbox", "relay", "away.db", code=2
    )
    assert not Path("away.db").exists()
