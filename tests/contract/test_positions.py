"""Positions of groups: saved with a transaction, and judged like messages."""

from typing import Any

import pytest

from tests.support.messagings import Site, commit, seen_by
from txaware.errors import BadRequest, TransactionRefused
from txaware.messaging import Messaging
from txaware.model.messages import MessageId

ONE, TWO, THREE = (MessageId.of(number) for number in (1, 2, 3))


def saved(
    messaging: Messaging, position: MessageId | None, pointer: Any, group: str = "g"
) -> None:
    messaging.save_position(group, "t", position, transaction=pointer)


def test_a_position_moves_with_the_commit(messaging: Messaging) -> None:
    assert messaging.position("g", "t") is None
    before = messaging.coordinator.snapshot()
    tx = messaging.coordinator.start_short()
    saved(messaging, ONE, tx)
    saved(messaging, TWO, tx)
    assert messaging.position("g", "t") is None
    assert messaging.position("g", "t", transaction=tx) == TWO
    commit(messaging, tx)
    assert messaging.position("g", "t") == TWO
    assert messaging.position("g", "t", transaction=before) is None


def test_each_group_and_topic_has_its_own(messaging: Messaging) -> None:
    for topic in ("t-", "ns:t"):
        messaging.create_topic(topic)
    groups = ["g", "g-", "g.h", "G"]
    places = [(group, topic) for group in groups for topic in ("t", "t-", "ns:t")]
    tx = messaging.coordinator.start_short()
    for number, (group, topic) in enumerate(places):
        position = MessageId.of(number)
        messaging.save_position(group, topic, position, transaction=tx)
    commit(messaging, tx)
    for number, (group, topic) in enumerate(places):
        assert messaging.position(group, topic) == MessageId.of(number)


@pytest.mark.foreign_pointers
def test_the_greatest_visible_pointer_counts_whatever_the_position(
    messaging: Messaging,
) -> None:
    saved(messaging, THREE, 5)
    saved(messaging, ONE, 7)
    saved(messaging, TWO, 6)
    for tx, expected in [
        (seen_by(20, read=19), ONE),
        (seen_by(20, read=19, in_progress=[7]), TWO),
        (seen_by(20, read=19, invalids=[6, 7]), THREE),
        (seen_by(20, read=4), None),
        (seen_by(6, read=5), TWO),
    ]:
        assert messaging.position("g", "t", transaction=tx) == expected


@pytest.mark.foreign_pointers
def test_what_is_taken_back_falls_to_the_one_before(messaging: Messaging) -> None:
    saved(messaging, ONE, 5)
    saved(messaging, TWO, 6)
    tx = seen_by(20, read=19)
    for _ in range(2):
        saved(messaging, None, 6)
        assert messaging.position("g", "t", transaction=tx) == ONE
        assert messaging.position("g", "t", transaction=seen_by(6, read=5)) == ONE
    saved(messaging, THREE, 6)
    assert messaging.position("g", "t", transaction=tx) == THREE
    saved(messaging, None, 9)
    assert messaging.position("g", "t", transaction=tx) == THREE


def test_an_invalid_transaction_moves_nothing(messaging: Messaging) -> None:
    first = messaging.coordinator.start_short()
    saved(messaging, ONE, first)
    commit(messaging, first)
    tx = messaging.coordinator.start_short()
    saved(messaging, TWO, tx)
    messaging.coordinator.invalidate(tx)
    assert messaging.position("g", "t") == ONE
    saved(messaging, None, tx)
    with pytest.raises(TransactionRefused):
        saved(messaging, THREE, tx)
    assert messaging.position("g", "t") == ONE


def test_a_committed_position_is_not_taken_back(messaging: Messaging) -> None:
    tx = messaging.coordinator.start_short()
    saved(messaging, ONE, tx)
    commit(messaging, tx)
    with pytest.raises(TransactionRefused):
        saved(messaging, None, tx)
    assert messaging.position("g", "t") == ONE


def test_a_checkpoint_does_not_move_the_pointer_of_a_position(
    messaging: Messaging,
) -> None:
    tx = messaging.coordinator.start_short()
    saved(messaging, ONE, tx)
    later = messaging.coordinator.checkpoint(tx)
    saved(messaging, TWO, later)
    assert messaging.position("g", "t", transaction=later) == TWO
    saved(messaging, None, later)
    assert messaging.position("g", "t", transaction=later) is None
    commit(messaging, later)
    assert messaging.position("g", "t") is None


def test_the_last_save_of_a_transaction_counts_however_much_it_wrote(
    site: Site,
) -> None:
    """Beyond what is held for the commit, too."""
    messaging = site.open(sync_limit_bytes=400)
    messaging.create_topic("t")
    for size in range(150, 400, 10):
        tx = messaging.coordinator.start_short()
        saved(messaging, ONE, tx)
        messaging.publish("t", [b"x" * size], transaction=tx)
        saved(messaging, TWO, tx)
        assert messaging.position("g", "t", transaction=tx) == TWO
        saved(messaging, THREE, tx)
        assert messaging.position("g", "t", transaction=tx) == THREE
        commit(messaging, tx)
        assert messaging.position("g", "t") == THREE
        assert len(messaging.poll("t")) == (size - 140) // 10


def test_many_saves_of_one_transaction_are_one_row(site: Site) -> None:
    messaging = site.open(sync_limit_bytes=400)
    messaging.create_topic("t")
    tx = messaging.coordinator.start_short()
    for number in range(100):
        saved(messaging, MessageId.of(number), tx)
        expected = MessageId.of(number)
        assert messaging.position("g", "t", transaction=tx) == expected
    saved(messaging, None, tx)
    assert messaging.position("g", "t", transaction=tx) is None


@pytest.mark.foreign_pointers
def test_a_position_is_found_behind_many_that_count_no_more(
    messaging: Messaging,
) -> None:
    for pointer in range(1, 601):
        saved(messaging, MessageId.of(pointer), pointer)
    tx = seen_by(700, read=699, invalids=range(2, 601))
    assert messaging.position("g", "t", transaction=tx) == ONE
    tx = seen_by(700, read=699, invalids=range(400, 601))
    assert messaging.position("g", "t", transaction=tx) == MessageId.of(399)


@pytest.mark.foreign_pointers
def test_a_position_outlives_its_generation(messaging: Messaging) -> None:
    saved(messaging, ONE, 5)
    messaging.delete_topic("t")
    messaging.create_topic("t")
    assert messaging.position("g", "t", transaction=seen_by(9, read=8)) == ONE


def test_a_position_is_there_after_a_restart_if_it_was_committed(
    lasting: Site,
) -> None:
    messaging = lasting.messaging
    messaging.create_topic("t")
    tx = messaging.coordinator.start_short()
    saved(messaging, ONE, tx)
    commit(messaging, tx)
    unfinished = messaging.coordinator.start_short()
    saved(messaging, TWO, unfinished)
    remote = messaging.coordinator.start_short(600, outlives_process=True)
    saved(messaging, THREE, remote)
    for again in (lasting.crash, lasting.open):
        messaging = again()
        assert messaging.position("g", "t") == ONE
        assert messaging.position("g", "t", transaction=remote) == THREE
    commit(messaging, remote)
    assert messaging.position("g", "t") == THREE


@pytest.mark.parametrize("group", ["", "a b", "a:b", "é", None, 5], ids=repr)
def test_a_group_has_a_name(messaging: Messaging, group: Any) -> None:
    with pytest.raises(BadRequest, match="group"):
        messaging.position(group, "t")
    with pytest.raises(BadRequest, match="group"):
        messaging.save_position(group, "t", ONE, transaction=5)


@pytest.mark.parametrize("position", [5, "00" * 20, bytes(20)], ids=repr)
def test_a_position_is_an_id(messaging: Messaging, position: Any) -> None:
    with pytest.raises(BadRequest, match="MessageId"):
        saved(messaging, position, 5)


@pytest.mark.parametrize("pointer", [None, 0, -1, "5", True], ids=repr)
def test_a_position_is_saved_in_a_transaction(
    messaging: Messaging, pointer: Any
) -> None:
    with pytest.raises(BadRequest):
        saved(messaging, ONE, pointer)
