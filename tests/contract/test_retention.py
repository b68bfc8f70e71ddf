"""What is removed, what stays, and what is marked before it may be forgotten."""

import threading

import pytest

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.concurrency import until
from tests.support.doubles import Clock
from tests.support.messagings import (
    Site,
    commit,
    payloads,
    publish,
    rows,
    save,
    seen_by,
)
from txaware.errors import TransactionRefused
from txaware.messaging import Messaging
from txaware.model.reports import CleanUp
from txaware.model.settings import Settings
from txaware.service.retention.deletion import Deleting
from txaware.service.retention.version_retention import VersionRetention
from txaware.service.visibility import ForeignPointers
from txaware.store.keys import PAYLOAD, POSITION

pytestmark = pytest.mark.in_process


def embedded(messaging: Messaging) -> EmbeddedCoordinator:
    coordinator = messaging.coordinator
    assert isinstance(coordinator, EmbeddedCoordinator)
    return coordinator


def test_61_expired_messages_go_and_live_ones_stay(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("short", ttl_s=10)
    messaging.create_topic("long", ttl_s=100)
    for topic in ("short", "long"):
        messaging.publish(topic, [b"old"])
    site.clock.advance_s(11)
    for topic in ("short", "long"):
        messaging.publish(topic, [b"new"])
    assert messaging.clean_up().expired_messages == 1
    assert payloads(messaging.poll("short")) == [b"new"]
    assert payloads(messaging.poll("long")) == [b"old", b"new"]
    assert rows(messaging) == 3


def test_41_a_longer_ttl_brings_back_only_what_was_not_cleaned_up(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t", ttl_s=10)
    messaging.publish("t", [b"m"])
    assert payloads(messaging.poll("t")) == [b"m"]  # and now it is cached
    site.clock.advance_s(11)
    assert not messaging.poll("t")
    messaging.update_topic("t", ttl_s=100)
    assert payloads(messaging.poll("t")) == [b"m"]
    messaging.update_topic("t", ttl_s=10)
    messaging.clean_up()
    messaging.update_topic("t", ttl_s=100)
    assert not messaging.poll("t")


@pytest.mark.foreign_pointers
def test_61_older_generations_go_and_the_present_one_stays(site: Site) -> None:
    messaging = site.messaging
    for _ in range(3):
        messaging.create_topic("t")
        publish(messaging, b"a", transaction=7)
        messaging.store("t", [b"b"], transaction=8)
        messaging.delete_topic("t")
    messaging.create_topic("t")
    messaging.publish("t", [b"kept"])
    assert messaging.clean_up().old_generation_rows == 6
    assert rows(messaging) == 1
    messaging.delete_topic("t")
    assert messaging.clean_up().old_generation_rows == 1
    assert not rows(messaging)
    assert not rows(messaging, PAYLOAD)


def test_61_stores_of_an_open_transaction_stay_however_old(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t", ttl_s=10)
    tx = messaging.coordinator.start_long()
    messaging.store("t", [b"a", b"b"], transaction=tx)
    site.clock.advance_s(3600)
    assert messaging.clean_up().expired_payloads == 0
    messaging.publish("t", [], transaction=tx)
    commit(messaging, tx)
    assert payloads(messaging.poll("t", isolation="committed")) == [b"a", b"b"]


def test_61_stores_of_an_ended_transaction_go_unless_a_reference_names_them(
    site: Site,
) -> None:
    messaging = site.messaging
    messaging.create_topic("t", ttl_s=10)
    named, orphaned, hidden = (messaging.coordinator.start_short() for _ in range(3))
    for tx in (named, orphaned, hidden):
        messaging.store("t", [b"a", b"b"], transaction=tx)
    messaging.publish("t", [], transaction=named)
    response = messaging.publish("t", [], transaction=hidden)
    assert response is not None
    messaging.rollback("t", response)
    for tx in (named, orphaned, hidden):
        commit(messaging, tx)
    assert messaging.clean_up().expired_payloads == 2
    assert payloads(messaging.poll("t")) == [b"a", b"b"] * 2
    site.clock.advance_s(11)
    messaging.publish("t", [b"new"])
    done = messaging.clean_up()
    # First the payloads are looked at, then the messages that name them go.
    assert (done.expired_messages, done.expired_payloads) == (2, 4)
    assert not rows(messaging, PAYLOAD)


@pytest.mark.foreign_pointers
def test_61_stores_of_foreign_transactions_wait_for_a_grace(site: Site) -> None:
    messaging = site.open(orphan_grace_s=100.0)
    messaging.create_topic("t", ttl_s=10)
    messaging.store("t", [b"a"], transaction=7)
    site.clock.advance_s(105)
    messaging.store("t", [b"b"], transaction=8)
    site.clock.advance_s(6)
    assert messaging.clean_up().expired_payloads == 1
    with pytest.raises(TransactionRefused, match="was removed"):
        messaging.publish("t", [], transaction=7)
    with pytest.raises(TransactionRefused, match="was removed"):
        messaging.store("t", [b"c"], transaction=7)
    messaging.publish("t", [], transaction=8)
    assert payloads(messaging.poll("t")) == [b"b"]


@pytest.mark.foreign_pointers
def test_a_removed_store_stays_refused_after_a_restart(lasting: Site) -> None:
    messaging = lasting.open(orphan_grace_s=1.0)
    messaging.create_topic("t", ttl_s=1)
    messaging.store("t", [b"a"], transaction=7)
    lasting.clock.advance_s(9)
    assert messaging.clean_up().expired_payloads == 1
    messaging = lasting.crash()
    with pytest.raises(TransactionRefused, match="was removed"):
        messaging.publish("t", [], transaction=7)


def test_62_what_was_marked_stays_hidden_when_it_is_forgotten(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    tx = messaging.coordinator.start_short()
    publish(messaging, b"never", transaction=tx)
    messaging.save_position("g", "t", messaging.bounds("t").next, transaction=tx)
    messaging.publish("t", [b"plain"])
    messaging.coordinator.invalidate(tx)
    assert payloads(messaging.poll("t", isolation="committed")) == [b"plain"]
    assert messaging.clean_up().marked_rows == 2
    site.clock.advance_s(86_400)
    assert messaging.prune().pruned == 1
    assert messaging.coordinator.invalid_size() == 0
    assert payloads(messaging.poll("t", isolation="committed")) == [b"plain"]
    assert messaging.position("g", "t") is None
    assert payloads(messaging.poll("t")) == [b"never", b"plain"]


def test_62_marks_survive_a_crash_that_follows_the_prune(lasting: Site) -> None:
    messaging = lasting.messaging
    messaging.create_topic("t")
    tx = messaging.coordinator.start_short()
    publish(messaging, b"never", transaction=tx)
    messaging.coordinator.invalidate(tx)
    lasting.clock.advance_s(86_400)
    assert messaging.prune().pruned == 1
    messaging = lasting.crash()
    assert not messaging.poll("t", isolation="committed")


def test_an_invalid_transaction_is_not_forgotten_while_it_writes(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    coordinator = embedded(messaging)
    tx = coordinator.start_short()
    entry = coordinator.barrier.enter(tx.transaction_id)
    coordinator.invalidate(tx)
    site.clock.advance_s(86_400)
    assert messaging.prune().pruned == 0
    assert messaging.clean_up().least_needed == tx.transaction_id
    coordinator.barrier.leave(entry)
    assert messaging.prune().pruned == 1


def test_a_prune_spares_what_somebody_may_still_ask_about(site: Site) -> None:
    messaging = site.messaging
    tx = messaging.coordinator.start_short()
    messaging.coordinator.invalidate(tx)
    assert messaging.prune().pruned == 0
    assert messaging.coordinator.invalid_size() == 1


def test_least_needed_is_the_first_that_is_open_or_not_marked(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    first, second = (messaging.coordinator.start_short() for _ in range(2))
    messaging.coordinator.invalidate(second)
    assert messaging.clean_up().least_needed == first.transaction_id


def test_a_clean_up_takes_no_snapshot_while_there_is_nothing_to_judge(
    site: Site,
) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"plain"])
    assert messaging.clean_up() == CleanUp(topics=1)


def test_a_coordinator_that_others_share_is_pruned_only_when_told() -> None:
    clock = Clock()
    mine = EmbeddedCoordinator(settle_grace_s=0, clock_ms=clock)
    with txaware.connect("memory:", coordinator=mine, clock_ms=clock) as messaging:
        messaging.create_topic("t")
        tx = mine.start_short()
        publish(messaging, b"never", transaction=tx)
        mine.invalidate(tx)
        assert messaging.prune(exclusive=True).pruned == 0  # somebody may still write
        publish(messaging, b"late", transaction=tx)
        clock.advance_s(90_001)
        assert messaging.prune().pruned == 0
        assert mine.invalid_size() == 1
        assert messaging.prune(exclusive=True).pruned == 1
        assert not messaging.poll("t", isolation="committed")


def test_older_positions_go_when_nobody_open_can_read_them(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    for group in ("g", "h"):
        for _ in range(3):
            messaging.publish("t", [b"m"])
            save(messaging, group)
    newest = messaging.position("g", "t")
    assert messaging.clean_up().positions == 4
    assert rows(messaging, POSITION) == 2
    assert messaging.position("g", "t") == newest


def test_an_older_position_stays_while_an_older_snapshot_is_open(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"m"])
    save(messaging)
    seen = messaging.position("g", "t")
    reader = messaging.coordinator.start_short(timeout_s=1000)
    messaging.publish("t", [b"n"])
    save(messaging)
    for _ in range(3):
        messaging.clean_up()
    assert messaging.position("g", "t", transaction=reader) == seen
    messaging.coordinator.abort(reader)
    messaging.clean_up()
    messaging.clean_up()
    assert rows(messaging, POSITION) == 1


def test_a_position_that_is_not_yet_committed_is_never_removed(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"m"])
    save(messaging)
    tx = messaging.coordinator.start_short(timeout_s=1000)
    end = messaging.bounds("t").next.before()
    messaging.save_position("g", "t", end, transaction=tx)
    for _ in range(3):
        messaging.clean_up()
    commit(messaging, tx)
    assert messaging.position("g", "t") == end


SAVE_MARKER = "spark-save-monday"
STREAM_MARKER = "spark-0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"


def test_markers_of_spark_go_so_long_after_they_were_moved_last(site: Site) -> None:
    messaging, day_s = site.messaging, 86_400
    messaging.create_topic("t")
    messaging.publish("t", [b"m"])
    groups = [SAVE_MARKER, STREAM_MARKER, "spark-etl", "g"]
    markers = groups[:2]
    for group in (*groups, *(f"{marker}..rows" for marker in markers)):
        save(messaging, group)

    def left() -> list[str]:
        messaging.clean_up()
        return [group for group in groups if messaging.position(group, "t")]

    site.clock.advance_s(90 * day_s - 60)
    assert left() == groups
    site.clock.advance_s(120)
    assert left() == [STREAM_MARKER, "spark-etl", "g"]
    save(messaging, STREAM_MARKER)
    site.clock.advance_s(364 * day_s)
    assert left() == [STREAM_MARKER, "spark-etl", "g"]
    site.clock.advance_s(2 * day_s)
    assert left() == ["spark-etl", "g"]
    assert rows(messaging, POSITION) == 2


def marker_retention(site: Site, settings: Settings, now_ms: int) -> VersionRetention:
    return VersionRetention(
        site.table,
        site.messaging.coordinator,
        ForeignPointers(None),
        threading.Lock(),
        settings,
        None,
        lambda: now_ms,
    )


def test_a_marker_that_an_open_transaction_moves_stays(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"m"])
    save(messaging, SAVE_MARKER)
    tx = messaging.coordinator.start_long()
    end = messaging.bounds("t").next
    messaging.save_position(SAVE_MARKER, "t", end, transaction=tx)
    later_ms = site.clock() + 1000 * 86_400_000
    retention = marker_retention(site, Settings(), later_ms)
    deleting = Deleting(site.table, threading.Lock())
    open_now = messaging.coordinator.snapshot()
    assert not retention.clean_up(open_now, deleting)
    assert messaging.position(SAVE_MARKER, "t", transaction=tx) == end
    commit(messaging, tx)
    ended = messaging.coordinator.snapshot()
    assert retention.clean_up(ended, deleting)["positions"] == 2
    forever = marker_retention(site, Settings(save_marker_ttl_s=0), later_ms)
    save(messaging, SAVE_MARKER)
    assert not forever.clean_up(ended, deleting)


def test_messages_that_expire_unseen_are_warned_about(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    messaging = site.messaging
    messaging.create_topic("t", ttl_s=10)
    tx = messaging.coordinator.start_long()
    publish(messaging, b"blocks", transaction=tx)
    messaging.publish("t", [b"waits"])
    site.clock.advance_s(11)
    start = site.clock() - 11_000
    assert messaging.poll("t", start=start).skipped_before == site.clock() - 10_000
    messaging.save_position(
        "g", "t", messaging.bounds("t").next, transaction=tx
    )  # something to judge
    messaging.clean_up()
    assert "expire unseen" in caplog.text
    assert str(tx.transaction_id) in caplog.text


def test_a_clean_up_tells_how_far_it_is(site: Site) -> None:
    messaging = site.messaging
    for name in ("a", "b"):
        messaging.create_topic(name)
    told: list[tuple[str, int, int]] = []
    messaging.clean_up(lambda *progress: told.append(progress))
    assert told == [("a", 1, 2), ("b", 2, 2)]


def test_the_janitor_cleans_up_in_the_background(site: Site) -> None:
    messaging = site.open(janitor_interval_s=0.01, default_ttl_s=1)
    messaging.create_topic("t")
    messaging.publish("t", [b"m"])
    site.clock.advance_s(2)
    assert until(lambda: not rows(messaging), timeout_s=60)


def test_63_windows_of_expired_messages_give_their_disk_back(durable: Site) -> None:
    messaging = durable.messaging
    messaging.create_topic("t", ttl_s=100)
    payload = bytes(range(256)) * 40
    for _ in range(3):
        for _ in range(30):
            messaging.publish("t", [payload] * 10)
        durable.clock.advance_s(40)
    messaging = durable.open()  # what is in memory goes to the disk
    durable.clock.advance_s(30)

    def size() -> int:
        files = durable.directory.rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file())

    before = size()
    assert messaging.clean_up().expired_messages == 600
    assert size() < before / 2
    assert len(messaging.poll("t", limit=10_000)) == 300


def test_a_snapshot_from_before_sees_the_same_after_marking(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    tx = messaging.coordinator.start_short()
    publish(messaging, b"never", transaction=tx)
    reader = messaging.coordinator.start_short()
    messaging.coordinator.invalidate(tx)
    messaging.publish("t", [b"plain"])
    assert not messaging.poll("t", transaction=reader)  # it is in progress there
    messaging.clean_up()
    assert payloads(messaging.poll("t", transaction=reader)) == [b"plain"]
    outsider = seen_by(3, read=3)
    assert payloads(messaging.poll("t", transaction=outsider)) == [b"plain"]
