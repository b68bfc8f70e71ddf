"""`txaware outbox`: the relay as a process of its own."""

import sqlite3
from pathlib import Path

import pytest

import txaware
from tests.support.cli_runs import error_of, run
from tests.support.messagings import committed
from txaware import participants
from txaware.participants import sqlite_outbox


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


def test_what_is_no_outbox_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = ("outbox", "relay")
    assert "no file of SQLite at away.db" in error_of(*relay, "away.db", code=2)
    assert not Path("away.db").exists()
    Path("junk.db").write_text("junk")
    assert error_of(*relay, "junk.db", code=2) == (
        "SQLite cannot read junk.db: file is not a database"
    )
    monkeypatch.setattr(sqlite_outbox, "WAIT_S", 0)
    with sqlite3.connect("shop.db") as connection:
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
