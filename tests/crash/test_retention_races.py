"""Clean-ups beside everything else: what comes in between, and what goes wrong."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.concurrency import in_threads, until
from tests.support.messagings import (
    Site,
    administration_of,
    commit,
    payloads,
    publish,
    rows,
    save,
    table_of,
)
from txaware.messaging import Messaging
from txaware.service.retention.clean_up import Retention
from txaware.store.keys import MARK, MESSAGE, POSITION, TOPIC

pytestmark = pytest.mark.in_process


def retention(messaging: Messaging) -> Retention:
    return administration_of(messaging)._retention


def between(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch, step: Callable[[], None]
) -> None:
    """Has `step` happen once, just after the next call of that method."""
    method = getattr(owner, name)

    def call(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        answer = method(*args, **options)
        step()
        return answer

    monkeypatch.setattr(owner, name, call)


def test_a_topic_made_while_a_clean_up_begins_is_not_forgotten(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = site.messaging
    messaging.create_topic("a")

    def make() -> None:
        messaging.create_topic("t")
        tx = messaging.coordinator.start_short()
        publish(messaging, b"never", transaction=tx)
        messaging.coordinator.invalidate(tx)

    first = messaging.coordinator.start_short()
    messaging.coordinator.invalidate(first)
    between(retention(messaging)._topics, "all", monkeypatch, make)
    messaging.clean_up()
    site.clock.advance_s(2 * 86_400)
    messaging.prune()
    assert messaging.coordinator.invalid_size() == 0
    assert not messaging.poll("t", isolation="committed")


def test_rows_are_marked_although_the_clock_jumped_between_start_and_publish(
    site: Site,
) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    site.clock.advance_s(3600)
    tx = messaging.coordinator.start_short()
    site.clock.advance_s(-3600)
    publish(messaging, b"never", transaction=tx)
    messaging.coordinator.invalidate(tx)
    site.clock.advance_s(3 * 86_400)
    assert messaging.prune().pruned == 1
    assert not messaging.poll("t", isolation="committed")


def test_two_clean_ups_take_turns(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"m"])
    save(messaging)
    inside, most = [0], [0]
    clean_topic = Retention._clean_topic

    def slow(*args: Any) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threading.Event().wait(0.02)
        inside[0] -= 1
        clean_topic(*args)

    monkeypatch.setattr(Retention, "_clean_topic", slow)
    in_threads(lambda _: messaging.clean_up(), range(3))
    assert most == [1]


def test_an_older_snapshot_removes_no_position(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"m"])
    blocker = messaging.coordinator.start_short(timeout_s=900)
    older = messaging.coordinator.snapshot()
    save(messaging)
    messaging.clean_up()
    versions = retention(messaging)._versions
    assert not versions.clean_up(older, None)  # type: ignore[arg-type]
    messaging.coordinator.abort(blocker)
    assert messaging.position("g", "t") is not None


def test_one_run_of_a_program_removes_positions(lasting: Site) -> None:
    messaging = lasting.messaging
    messaging.create_topic("t")
    for _ in range(5):
        messaging.publish("t", [b"m"])
        save(messaging)
    messaging = lasting.open()
    assert messaging.clean_up().positions == 4
    assert rows(messaging, POSITION) == 1


def test_a_topic_that_cannot_be_cleaned_up_stops_no_other(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    messaging = site.messaging
    for name in ("a", "b"):
        messaging.create_topic(name, ttl_s=1)
        messaging.publish(name, [b"m"])
    site.clock.advance_s(5)
    clean_topic = Retention._clean_topic

    def fail(self: Retention, topic: str, *others: Any) -> None:
        if topic == "a":
            raise ValueError("this topic is odd")
        clean_topic(self, topic, *others)

    monkeypatch.setattr(Retention, "_clean_topic", fail)
    done = messaging.clean_up()
    assert (done.failed_topics, done.expired_messages) == (1, 1)
    assert done.least_needed is None
    assert "this topic is odd" in caplog.text


def test_the_janitor_outlives_an_error(site: Site) -> None:
    messaging = site.open(janitor_interval_s=0.01)
    table: Any = table_of(messaging)
    bad = TOPIC + b"not a key"
    table.submit([(bad, b"{}")])()
    threading.Event().wait(0.05)
    table.submit([(bad, None)])()
    messaging.create_topic("t", ttl_s=1)
    messaging.publish("t", [b"m"])
    site.clock.advance_s(5)
    assert until(lambda: not rows(messaging), timeout_s=60)


def test_marks_go_when_nobody_can_write_with_their_pointers(site: Site) -> None:
    clock = site.clock
    other = EmbeddedCoordinator(clock_ms=clock)
    with txaware.connect("memory:", coordinator=other, clock_ms=clock) as messaging:
        messaging.create_topic("t", ttl_s=10)
        for _ in range(3):
            tx = other.start_short()
            messaging.store("t", [b"a"], transaction=tx)
            messaging.publish("t", [], transaction=tx)
            commit(messaging, tx)
        messaging.store("t", [b"by hand"], transaction=7)
        messaging.publish("t", [], transaction=7)
        clock.advance_s(11)
        messaging.clean_up()
        messaging.clean_up()
        assert rows(messaging, MARK) == 4
        clock.advance_s(90_000)
        messaging.store("t", [b"something to judge"], transaction=8)
        messaging.clean_up()
        assert rows(messaging, MARK) == 2  # pointers made by hand are no times


def test_payloads_of_many_transactions_go_in_one_pass_over_the_messages(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    for _ in range(50):
        tx = messaging.coordinator.start_short()
        messaging.store("t", [b"a"], transaction=tx)
        messaging.coordinator.abort(tx)
    looks: list[None] = []
    payload_retention = retention(messaging)._payloads
    named = payload_retention._named

    def count(*args: Any) -> set[int]:
        looks.append(None)
        return named(*args)

    monkeypatch.setattr(payload_retention, "_named", count)
    assert messaging.clean_up().expired_payloads == 50
    assert len(looks) == 1


@pytest.mark.foreign_pointers
def test_a_reference_that_comes_while_payloads_are_looked_at_keeps_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    messaging = site.open(orphan_grace_s=1.0)
    messaging.create_topic("t", ttl_s=1)
    messaging.store("t", [b"a"], transaction=7)
    site.clock.advance_s(5)

    def refer() -> None:
        messaging.publish("t", [], transaction=7)

    between(retention(messaging)._payloads, "_named", monkeypatch, refer)
    assert messaging.clean_up().expired_payloads == 0
    assert payloads(messaging.poll("t")) == [b"a"]


def test_crash_after_crash_does_not_lead_pointers_away_from_the_clock(
    lasting: Site,
) -> None:
    messaging = lasting.messaging
    messaging.create_topic("t")
    for _ in range(8):
        tx = messaging.coordinator.start_short()
        messaging = lasting.crash()
    tx = messaging.coordinator.start_short()
    assert tx.start_ms < lasting.clock() + 14_000
    publish(messaging, b"never", transaction=tx)
    messaging.coordinator.invalidate(tx)
    messaging = lasting.crash()
    lasting.clock.advance_s(2 * 86_400)
    messaging.prune()
    assert messaging.coordinator.invalid_size() == 0
    assert not messaging.poll("t", isolation="committed")


@pytest.mark.foreign_pointers
def test_rows_of_an_earlier_life_are_marked_wherever_they_are(lasting: Site) -> None:
    """Whatever their time: the first clean-up of a process looks at all of them."""
    messaging = lasting.messaging
    messaging.create_topic("t", ttl_s=10**8)
    publish(messaging, b"never", transaction=7)  # its row is from now
    lasting.clock.advance_s(10**6)
    tx = messaging.coordinator.start_short()
    messaging.coordinator.persist(tx)
    rows_of = retention(messaging)._marking
    table: Any = table_of(messaging)
    prefix = MESSAGE + messaging.topic("t").prefix
    ((key, value),) = table.scan(prefix)
    pointer = tx.transaction_id.to_bytes(8, "big")
    table.submit([(prefix + key, value[:1] + pointer + value[9:])])()
    assert rows_of.due(messaging.coordinator.snapshot()) == set()
    messaging = lasting.crash()
    assert messaging.clean_up().marked_rows == 1


def test_a_coordinator_lent_to_another_store_is_not_pruned_unasked(
    site: Site,
) -> None:
    messaging = site.messaging
    lent = messaging.coordinator
    with txaware.connect("memory:", coordinator=lent, clock_ms=site.clock) as other:
        other.create_topic("t")
        tx = lent.start_short()
        publish(other, b"never", transaction=tx)
        lent.invalidate(tx)
        site.clock.advance_s(2 * 86_400)
        assert messaging.prune().pruned == 0
        assert not other.poll("t", isolation="committed")
    assert messaging.prune(exclusive=True).pruned == 1
