"""An outbox beside a server: what a token lacks is set aside, and metrics show it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import txaware
from tests.support.doubles import Clock
from tests.support.http_access import Caller
from tests.support.messagings import committed
from tests.support.queues import made, taken
from txaware import participants
from txaware.auth import digest_text
from txaware.errors import NotAuthorized
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.participants import Sqlite
from txaware.participants.outbox_relay import REPORT_MS, OutboxRelay
from txaware.participants.sqlite_outbox import SqliteOutbox

SETTINGS = Settings(janitor_interval_s=0)
RULE = """[[principals.{who}.rules]]
{kind} = ["{name}"]
verbs = {verbs}
"""
ITS_TABLE = RULE.format(
    who="relay",
    kind="tables",
    name="txaware:participants",
    verbs=["publish", "consume"],
)
MAY = (
    RULE.format(who="relay", kind="topics", name="t", verbs=["publish"])
    + RULE.format(who="relay", kind="queues", name="mail", verbs=["push"])
    + "[[principals.relay.rules]]\ntransactions = true\n"
)
WATCHES = (
    RULE.format(who="watcher", kind="topics", name="t", verbs=["consume"])
    + "monitor = true\n"
)


@pytest.fixture
def owner() -> Iterator[Messaging]:
    """A store with what the relay may write to, and with what it may not."""
    with txaware.connect("memory:", settings=SETTINGS, clock_ms=Clock()) as messaging:
        for topic in ("t", "secret"):
            messaging.create_topic(topic)
        for queue in ("mail", "hidden"):
            made(messaging, queue)
        yield messaging


@pytest.fixture
def shop(owner: Messaging, tmp_path: Path) -> Iterator[Sqlite]:
    """A participant, and one block of it for each of these."""
    connection = sqlite3.connect(tmp_path / "shop.db")
    shop = participants.sqlite(owner, connection, relay=False)
    with owner.transaction(shop):
        for topic in ("t", "secret"):
            owner.publisher(topic).publish(b"1")
        for queue in ("mail", "hidden"):
            owner.queue(queue).push(b"1")
    yield shop
    connection.close()


@contextmanager
def relay_with(owner: Messaging, below: Path, rules: str) -> Iterator[OutboxRelay]:  # type: ignore[type-arg]
    """A relay over the network whose token has these rules."""
    file = below / "tokens.toml"
    file.touch(mode=0o600)
    file.write_text(f'[principals.relay]\ntokens = ["{digest_text("one")}"]\n{rules}')
    with (
        owner.serve(tokens=file) as server,
        txaware.connect(server.url, token="one", settings=SETTINGS) as messaging,
    ):
        relay = OutboxRelay(messaging, SqliteOutbox(below / "shop.db"))
        yield relay
        relay.close()


def test_what_the_token_of_a_relay_may_not_do_is_set_aside(
    owner: Messaging, shop: Sqlite, tmp_path: Path
) -> None:
    with relay_with(owner, tmp_path, ITS_TABLE + MAY) as relay:
        assert relay.carry_over() == 2
        assert relay.carry_over() == 0
    assert committed(owner) == [b"1"]
    assert taken(owner.queue("mail")) == [b"1"]
    found = {one.topic: one.reason for one in shop.outbox.set_aside()}
    assert found.keys() == {"secret", "hidden"}
    assert "relay" in found["secret"]
    assert (shop.outbox.retry("secret"), shop.outbox.retry("hidden")) == (1, 1)
    assert committed(owner, "secret") == [b"1"]


def test_a_relay_that_may_not_write_down_what_it_does_sets_nothing_aside(
    owner: Messaging, shop: Sqlite, tmp_path: Path
) -> None:
    with (
        relay_with(owner, tmp_path, MAY) as relay,
        pytest.raises(NotAuthorized, match="txaware:participants"),
    ):
        relay.carry_over()
    assert (shop.outbox.waiting(), shop.outbox.set_aside()) == (4, [])
    assert shop.relay() == 4


def scraped(caller: Caller) -> dict[str, float]:
    """The metrics of outboxes; each has at most one sample."""
    text = caller.ask("GET", "/metrics").body.decode()
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("txaware_outbox_")
    }


def test_metrics_show_what_waits_and_what_is_set_aside(
    owner: Messaging, shop: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: Clock = owner.clock_ms  # type: ignore[assignment]
    for remembered in (
        "txaware.server.metrics.exposition.REMEMBERED_S",
        "txaware.service.monitor.overview.REMEMBERED_S",
        "txaware.service.monitor.turns.REMEMBERED_TIMES",
    ):
        monkeypatch.setattr(remembered, 0)
    owner.delete_topic("secret")
    with owner.serve() as server:
        caller = Caller(server.url, None)
        assert scraped(caller) == {}
        shop.relay()
        began_s = clock() / 1000
        expected = {"waiting": 0, "set_aside": 1, "last_look_seconds": began_s}
        assert scraped(caller) == named(expected)
        with owner.transaction(shop):
            owner.publisher("t").publish(b"2")
        clock.advance_s(REPORT_MS / 1000)
        shop._relay.report()
        expected |= {"waiting": 1, "last_look_seconds": clock() / 1000}
        assert scraped(caller) == named(expected)
        shop.outbox.discard("secret")
        shop.relay()
        clock.advance_s(REPORT_MS / 1000)
        shop.relay()
        assert scraped(caller) == named(
            {"waiting": 0, "set_aside": 0, "last_look_seconds": clock() / 1000}
        )
        caller.close()


def test_names_of_databases_are_for_who_may_see_all_topics(
    owner: Messaging, shop: Sqlite, tmp_path: Path
) -> None:
    shop.relay()
    file = tmp_path / "tokens.toml"
    file.touch(mode=0o600)
    file.write_text(f'[principals.watcher]\ntokens = ["{digest_text("w")}"]\n{WATCHES}')
    with owner.serve(tokens=file) as server:
        caller = Caller(server.url, "w")
        assert scraped(caller) == {}
        assert caller.ask("GET", "/metrics").status == 200
        caller.close()


def named(values: dict[str, float]) -> dict[str, float]:
    """As Prometheus names them."""
    return {f"txaware_outbox_{name}": value for name, value in values.items()}
