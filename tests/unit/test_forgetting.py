"""The janitor has invalid transactions forgotten by itself, where nobody needs them."""

import logging

import pytest

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.concurrency import until
from tests.support.doubles import Clock
from tests.support.messagings import Site, payloads, publish
from tests.support.rows_elsewhere import DAY_S, RowsElsewhere, killed, write
from txaware.messaging import Messaging
from txaware.model.settings import Settings
from txaware.service.retention.cleaning import Cleaning


def invalid(messaging: Messaging, payload: bytes = b"never") -> int:
    tx = messaging.coordinator.start_short()
    publish(messaging, payload, transaction=tx)
    messaging.coordinator.invalidate(tx)
    return tx.transaction_id


def test_the_janitor_forgets_in_the_background(site: Site) -> None:
    """Over HTTP too, and beside consumers: nobody keeps rows elsewhere there."""
    messaging = site.open(janitor_interval_s=0.01)
    messaging.create_topic("t")
    messaging.publish("t", [b"plain"])
    with messaging.transaction():
        messaging.consumer("t", group="g").poll()
        messaging.publisher("t").publish(b"more")
    invalid(messaging)
    assert messaging.keepers() == []
    site.clock.advance_s(2 * DAY_S)
    assert until(lambda: not messaging.coordinator.invalid_size(), timeout_s=60)
    read = messaging.poll("t", isolation="committed")
    assert payloads(read) == [b"plain", b"more"]


def test_a_clean_up_forgets_after_the_grace_and_not_before(
    site: Site, messaging: Messaging
) -> None:
    invalid(messaging)
    done = messaging.clean_up()
    assert (done.forgotten, done.held_back) == (0, None)
    site.clock.advance_s(DAY_S)
    invalid(messaging)
    done = messaging.clean_up()
    assert (done.forgotten, done.held_back) == (1, None)
    assert messaging.coordinator.invalid_size() == 1
    assert not messaging.poll("t", isolation="committed")
    assert messaging.metrics().retention.forgotten == 1


@pytest.mark.in_process
def test_what_holds_it_back_is_said_where_an_operator_looks(
    site: Site, messaging: Messaging, caplog: pytest.LogCaptureFixture
) -> None:
    rows = RowsElsewhere()
    killed(messaging, rows)
    before = invalid(messaging)
    site.clock.advance_s(DAY_S + 1)
    for _ in range(2):
        done = messaging.clean_up()
    counted = messaging.metrics().retention
    assert done.held_back == counted.held_back
    assert counted.held_back_count == 2
    assert "Nobody registered rows" in str(done.held_back)
    warned = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len([r for r in warned if "are kept" in r.getMessage()]) == 1
    with messaging.serve() as server, txaware.connect(server.url) as client:
        shown = client.metrics().retention
        assert (shown.held_back, shown.held_back_count) == (counted.held_back, 2)
    rows.rows = []
    messaging.register_keeper(rows)
    assert messaging.clean_up().forgotten == 2
    assert messaging.metrics().retention.held_back is None
    assert not messaging.coordinator.snapshot().is_excluded(before)


@pytest.mark.in_process
def test_a_topic_that_could_not_be_cleaned_up_keeps_everything(
    site: Site, messaging: Messaging, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no disk")

    invalid(messaging)
    site.clock.advance_s(2 * DAY_S)
    monkeypatch.setattr(Cleaning, "clean", fail)
    done = messaging.clean_up()
    assert (done.failed_topics, done.forgotten) == (1, 0)
    assert messaging.coordinator.invalid_size() == 1


def test_a_coordinator_of_somebody_elses_is_left_alone() -> None:
    clock = Clock()
    mine = EmbeddedCoordinator(settle_grace_s=DAY_S, clock_ms=clock)
    settings = Settings(janitor_interval_s=0)
    with txaware.connect(
        "memory:", coordinator=mine, clock_ms=clock, settings=settings
    ) as messaging:
        messaging.create_topic("t")
        invalid(messaging)
        clock.advance_s(2 * DAY_S)
        done = messaging.clean_up()
        assert done.forgotten == 0
        assert "others may use this coordinator" in str(done.held_back)
        assert mine.invalid_size() == 1


@pytest.mark.in_process
def test_rows_of_an_unregistered_participant_outlive_every_restart(
    lasting: Site,
) -> None:
    """Who took part is on disk before it writes."""
    messaging = lasting.messaging
    messaging.create_topic("t")
    rows = RowsElsewhere()
    committed = write(messaging, rows, "first")
    tx = messaging.coordinator.start_short()
    coordinator = messaging.coordinator
    assert isinstance(coordinator, EmbeddedCoordinator)
    coordinator.note_writers(tx, ["late"])
    coordinator.persist(tx)
    messaging = lasting.crash()
    assert {one.name for one in messaging.keepers()} == {"rows", "late"}
    lasting.clock.advance_s(2 * DAY_S)
    assert messaging.clean_up().forgotten == 0
    snapshot = messaging.coordinator.snapshot()
    assert snapshot.is_visible(committed)
    assert not snapshot.is_visible(tx.transaction_id)


class Killed(Exception):
    """The process is gone, as far as the store is concerned."""


class CrashesInCommit(RowsElsewhere):
    """Its process dies with the row written and the commit not begun."""

    def __init__(self, site: Site) -> None:
        super().__init__()
        self.site = site

    def commit_tx(self) -> bool:
        super().commit_tx()
        self.site.crash()
        raise Killed


@pytest.mark.in_process
def test_a_row_written_just_before_a_crash_never_appears(lasting: Site) -> None:
    lasting.messaging.create_topic("t")
    rows = CrashesInCommit(lasting)
    with pytest.raises(Killed):
        write(lasting.messaging, rows, "never")
    messaging = lasting.messaging
    assert [one.name for one in messaging.keepers()] == ["rows"]
    lasting.clock.advance_s(2 * DAY_S)
    assert messaging.clean_up().forgotten == messaging.prune().pruned == 0
    assert rows.seen_by(messaging.coordinator.snapshot()) == []
    assert not messaging.poll("t", isolation="committed")
