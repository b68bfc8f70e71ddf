"""Clocks that jump ahead and are set right: time-outs count the time that passes."""

import threading
import time

import pytest

import txaware
from coordinator.context import TransactionContext
from coordinator.embedded.coordinator import EmbeddedCoordinator
from coordinator.errors import TransactionNotInProgress
from coordinator.transaction import elapsed_of, monotonic_ms, system_clock_ms
from tests.support.doubles import Clock
from tests.support.fake_disk import Lives
from tests.support.messagings import Site, commit, payloads, publish
from txaware.messaging import Messaging

AHEAD_S = 300 * 60
DAYS_S = 3 * 86_400


@pytest.mark.parametrize("begun", ["before", "while ahead", "after"])
def test_a_clock_that_was_ahead_and_is_set_right_stops_no_time_out(
    site: Site, messaging: Messaging, begun: str
) -> None:
    for moment in ("before", "while ahead", "after"):
        if moment != "before":
            messaging.publish("t", [b"plain"])  # the store has seen what the clock says
        if moment == begun:
            tx = messaging.coordinator.start_short(timeout_s=10)
        site.clock.set_s(
            {"before": AHEAD_S, "while ahead": -AHEAD_S, "after": 0}[moment]
        )
    publish(messaging, b"blocks", transaction=tx)
    for passes_s, blocks in ((9.9, True), (0.2, False)):
        site.clock.advance_s(passes_s)
        page = messaging.poll("t", transaction=messaging.coordinator.snapshot())
        assert payloads(page) == [b"plain"] * 2
        assert (page.blocked_by is not None) is blocks
    with pytest.raises(TransactionNotInProgress):
        publish(messaging, b"late", transaction=tx)


def test_a_clock_that_jumps_ahead_hastens_no_time_out(
    site: Site, messaging: Messaging
) -> None:
    tx = messaging.coordinator.start_short(timeout_s=10)
    site.clock.set_s(AHEAD_S)
    publish(messaging, b"a", transaction=tx)
    site.clock.advance_s(9)
    commit(messaging, tx)
    snapshot = messaging.coordinator.snapshot()
    assert payloads(messaging.poll("t", transaction=snapshot)) == [b"a"]


@pytest.mark.in_process
def test_what_a_restart_left_open_is_open_for_its_length_again(lasting: Site) -> None:
    lasting.messaging.create_topic("t")
    lasting.clock.set_s(AHEAD_S)
    begin = lasting.messaging.coordinator.start_short
    tx = begin(timeout_s=20, outlives_process=True)
    publish(lasting.messaging, b"blocks", transaction=tx)
    lasting.clock.set_s(-AHEAD_S)
    messaging = lasting.crash()
    for passes_s, blocks in ((5, True), (20, False)):
        lasting.clock.advance_s(passes_s)
        found = messaging.coordinator.snapshot().in_progress
        assert (tx.transaction_id in found) is blocks


def test_a_restart_bounds_how_long_a_clock_that_was_ahead_keeps_one_open() -> None:
    lives = Lives()
    lives.clock.set_s(AHEAD_S)
    tx = lives.now.start_short(timeout_s=20, outlives_process=True)
    lives.now.persist(tx)
    lives.clock.set_s(-AHEAD_S)
    lives.crash()
    lives.clock.advance_s(20)
    assert tx.transaction_id in lives.now.snapshot().in_progress
    lives.clock.advance_s(11)
    assert tx.transaction_id in lives.now.snapshot().invalids


def test_after_a_restart_with_ids_ahead_of_the_clock_time_outs_keep_their_length() -> (
    None
):
    lives = Lives()
    lives.clock.set_s(AHEAD_S)
    lives.now.persist(lives.now.start_short())
    lives.clock.set_s(-AHEAD_S)
    lives.crash()
    tx = lives.now.start_short(timeout_s=60, outlives_process=True)
    lives.now.persist(tx)
    lives.crash()
    lives.clock.advance_s(59)
    assert tx.transaction_id in lives.now.snapshot().in_progress
    lives.clock.advance_s(2)
    assert tx.transaction_id in lives.now.snapshot().invalids


@pytest.mark.parametrize("restarted", [False, True])
def test_a_clock_that_jumps_ahead_has_nothing_forgotten_early(restarted: bool) -> None:
    lives = Lives()
    tx = lives.now.start_short()
    lives.now.invalidate(tx)
    if restarted:
        lives.close()
    lives.clock.set_s(DAYS_S)
    assert lives.now.truncate_invalid_tx(tx.pointers) is False
    lives.clock.advance_s(86_401)
    assert lives.now.truncate_invalid_tx(tx.pointers) is True


def test_writes_under_way_are_waited_for_no_longer_than_the_time_out() -> None:
    """However far the clock was set back meanwhile."""
    clock = Clock()
    coordinator = EmbeddedCoordinator(clock_ms=clock)
    clock.set_s(AHEAD_S)
    tx = coordinator.start_short(timeout_s=10)
    writing, over = threading.Event(), threading.Event()

    def write() -> None:
        entry = coordinator.barrier.enter(tx.transaction_id)
        writing.set()
        over.wait(60)
        coordinator.barrier.leave(entry)

    thread = threading.Thread(target=write)
    thread.start()
    assert writing.wait(60)
    clock.set_s(-AHEAD_S)
    clock.advance_s(9.99)
    began_s = time.monotonic()
    threading.Timer(0.01, clock.advance_s, (1,)).start()
    try:
        with pytest.raises(TransactionNotInProgress):
            coordinator.commit(tx)
    finally:
        over.set()
        thread.join()
    assert time.monotonic() - began_s < 30


def test_how_long_ago_a_commit_was_asked_for_is_no_matter_of_the_clock() -> None:
    context = TransactionContext(EmbeddedCoordinator())
    assert context._clock_s is time.monotonic


def test_a_clock_of_the_callers_counts_by_its_steps_forward() -> None:
    now_ms = 1_000

    def clock_ms() -> int:
        return now_ms

    passed_ms = elapsed_of(clock_ms)
    began_ms = passed_ms()
    for set_to_ms, passes_ms in ((1_500, 500), (200, 500), (1_000, 1_300)):
        now_ms = set_to_ms
        assert passed_ms() - began_ms == passes_ms
    clock = Clock()
    assert elapsed_of(clock) == clock.elapsed_ms
    assert elapsed_of(system_clock_ms) is monotonic_ms


def test_a_store_with_a_clock_of_the_callers_stops_no_time_out() -> None:
    now_s = 1_700_000_000
    with txaware.connect("memory:", clock_ms=lambda: now_s * 1000) as messaging:
        messaging.create_topic("t")
        now_s += AHEAD_S
        tx = messaging.coordinator.start_short(timeout_s=10)
        publish(messaging, b"blocks", transaction=tx)
        now_s -= AHEAD_S
        assert messaging.coordinator.snapshot().in_progress
        now_s += 11
        assert not messaging.coordinator.snapshot().in_progress
