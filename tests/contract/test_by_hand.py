"""What is published by the verbs themselves inside a block goes back with the block."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.messagings import Site, payloads
from txaware.errors import ParticipantFailed, TransactionConflict, Unavailable
from txaware.messaging import Messaging

End = Callable[[Messaging], None]


def seen(messaging: Messaging) -> list[bytes]:
    return payloads(messaging.poll("t", isolation="committed"))


def test_what_was_published_by_hand_is_taken_back_when_the_block_raises(
    messaging: Messaging,
) -> None:
    def write_and_fail() -> None:
        messaging.publish("t", [b"never"], transaction=tx.transaction)
        messaging.store("t", [b"nor this"], transaction=tx.transaction)
        messaging.publish("t", [], transaction=tx.transaction.transaction_id)
        end = messaging.bounds("t").next
        messaging.save_position("g", "t", end, transaction=tx.transaction)
        raise ValueError("no")

    messaging.publish("t", [b"before"])
    with pytest.raises(ValueError, match="no"), messaging.transaction() as tx:
        write_and_fail()
    assert tx.status.value == "aborted"
    assert seen(messaging) == [b"before"]
    assert messaging.position("g", "t") is None


def test_it_is_taken_back_when_the_commit_is_refused(messaging: Messaging) -> None:
    class Table:
        transaction_aware_name = "table"

        def __getattr__(self, name: str) -> Any:
            return lambda *_: True

        def get_tx_changes(self) -> list[bytes]:
            return [b"key"]

    def meet_another_one() -> None:
        messaging.publish("t", [b"never"], transaction=tx.transaction)
        other = messaging.coordinator.start_short()
        messaging.coordinator.can_commit(other, [b"key"])
        messaging.coordinator.commit(other)

    with pytest.raises(TransactionConflict), messaging.transaction(Table()) as tx:
        meet_another_one()
    assert seen(messaging) == []
    assert messaging.coordinator.invalid_size() == 0


def test_it_stays_when_the_block_commits(messaging: Messaging) -> None:
    with messaging.transaction() as tx:
        messaging.publish("t", [b"a"], transaction=tx.transaction)
        messaging.publisher("t").publish(b"b")
        end = messaging.bounds("t").next.before()
        messaging.save_position("g", "t", end, transaction=tx.transaction)
    assert seen(messaging) == [b"a", b"b"]
    assert messaging.position("g", "t") == end


def test_a_transaction_held_by_hand_is_its_holders_to_undo(
    messaging: Messaging,
) -> None:
    def write_and_fail() -> None:
        messaging.publish("t", [b"of another one"], transaction=held)
        raise ValueError("no")

    held = messaging.coordinator.start_short()
    with pytest.raises(ValueError, match="no"), messaging.transaction():
        write_and_fail()
    messaging.coordinator.can_commit(held, [])
    messaging.coordinator.commit(held)
    assert seen(messaging) == [b"of another one"]


def test_a_block_whose_publish_may_have_happened_is_invalidated(site: Site) -> None:
    messaging = site.messaging
    messaging.create_topic("t")
    service = messaging._service
    publish = service.publish

    def lose_the_answer(*args: Any, **options: Any) -> None:
        publish(*args, **options)
        raise Unavailable("the answer is lost")

    service.publish = lose_the_answer  # type: ignore[method-assign]
    with pytest.raises(Unavailable), messaging.transaction() as tx:
        messaging.publish("t", [b"never"], transaction=tx.transaction)
    assert tx.status.value == "invalidated"
    assert seen(messaging) == []


def test_a_block_whose_position_may_have_been_saved_is_invalidated(site: Site) -> None:
    """The write may still arrive, after anything that takes it back."""
    messaging = site.messaging
    messaging.create_topic("t")
    messaging.publish("t", [b"m"])
    service = messaging._service
    end = messaging.bounds("t").next

    def lose_the_call(*_: Any, **__: Any) -> None:
        service.save_position = save_position  # type: ignore[method-assign]
        raise Unavailable("the answer is lost")

    save_position = service.save_position
    service.save_position = lose_the_call  # type: ignore[method-assign]
    with pytest.raises(Unavailable), messaging.transaction() as tx:
        messaging.save_position("g", "t", end, transaction=tx.transaction)
    assert tx.status.value == "invalidated"
    assert messaging.position("g", "t") is None


def test_what_a_participant_publishes_while_it_flushes_goes_back_too(
    messaging: Messaging,
) -> None:
    class Notifier:
        transaction_aware_name = "notifier"

        def __getattr__(self, name: str) -> Any:
            return lambda *_: True

        def get_tx_changes(self) -> list[bytes]:
            return []

        def commit_tx(self) -> bool:
            messaging.publish("t", [b"never"], transaction=tx.transaction)
            return True

    class Broken(Notifier):
        def commit_tx(self) -> bool:
            return False

    with (
        pytest.raises(ParticipantFailed),
        messaging.transaction(Notifier(), Broken()) as tx,
    ):
        pass
    assert tx.status.value == "aborted"
    assert seen(messaging) == []
    messaging.publish("t", [b"plain"])
    assert seen(messaging) == [b"plain"]


def test_a_checkpoint_pointer_belongs_to_the_block_as_well() -> None:
    def write_and_fail() -> None:
        tx.checkpoint()
        pointer = tx.transaction.write_pointer
        messaging.publish("t", [b"never"], transaction=pointer)
        raise ValueError("no")

    mine = EmbeddedCoordinator()
    with txaware.connect("memory:", coordinator=mine) as messaging:
        messaging.create_topic("t")
        with pytest.raises(ValueError, match="no"), messaging.transaction() as tx:
            write_and_fail()
        with messaging.transaction():
            messaging.publisher("t").publish(b"later")
        assert seen(messaging) == [b"later"]


def test_a_start_is_on_disk_before_rows_of_it_are_in_another_store(
    tmp_path: Path,
) -> None:
    """Killed after the publish, its transaction must not look like one that ended."""

    def urls() -> tuple[str, str]:
        return f"leveldb:{directory / 'a'}", f"leveldb:{directory / 'b'}"

    directory = tmp_path / "before"
    first, second = urls()
    with (
        txaware.connect(first) as one,
        txaware.connect(second, coordinator=one.coordinator) as other,
    ):
        other.create_topic("t")
        with one.transaction() as tx:
            other.publish("t", [b"never"], transaction=tx.transaction)
            shutil.copytree(directory, tmp_path / "after")
    directory = tmp_path / "after"
    for lock in directory.rglob("LOCK"):
        lock.unlink()
    first, second = urls()
    with (
        txaware.connect(first) as one,
        txaware.connect(second, coordinator=one.coordinator) as other,
    ):
        assert tx.transaction.transaction_id in one.coordinator.snapshot().invalids
        assert seen(other) == []
