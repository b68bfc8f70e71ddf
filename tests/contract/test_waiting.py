"""Waiting for messages: what wakes who waits, and what does not."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import txaware
from coordinator.embedded.coordinator import EmbeddedCoordinator
from tests.support.doubles import Watched
from tests.support.messagings import Site, commit, payloads, publish
from txaware.errors import TopicNotFound, Unavailable
from txaware.messaging import Messaging
from txaware.model.messages import MessageId
from txaware.service.read import reading
from txaware.service.wakeups import Signal

FOR_LONG_S = 20.0


class Waiter:
    """Waits in a thread of its own, and keeps what came of it."""

    def __init__(self, wait: Callable[[], Any]) -> None:
        self.answer: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(wait,))
        self._thread.start()
        time.sleep(0.05)  # it waits by then, or has ended

    def _run(self, wait: Callable[[], Any]) -> None:
        try:
            self.answer = wait()
        except Exception as error:
            self.error = error

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()

    def ends(self, *, within_s: float = FOR_LONG_S / 2) -> Any:
        """What was answered; well before it would have looked again by itself."""
        self._thread.join(within_s)
        assert not self.waits
        return self.answer


def waiter(messaging: Messaging, topic: str = "t", **options: Any) -> Waiter:
    return Waiter(lambda: messaging.poll(topic, wait_s=FOR_LONG_S, **options))


@pytest.fixture(autouse=True)
def looks_only_when_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody finds something because of looking again after a while."""
    monkeypatch.setattr(reading, "LOOK_AGAIN_S", FOR_LONG_S)


@pytest.mark.parametrize("isolation", ["committed", "uncommitted"])
def test_a_plain_publish_wakes_who_waits(messaging: Messaging, isolation: str) -> None:
    waiting = waiter(messaging, isolation=isolation)
    assert waiting.waits
    messaging.publish("t", [b"a"])
    assert payloads(waiting.ends()) == [b"a"]


def test_a_commit_wakes_who_waits_for_what_is_committed(messaging: Messaging) -> None:
    waiting = waiter(messaging, isolation="committed")
    tx = messaging.coordinator.start_short()
    publish(messaging, b"a", transaction=tx)
    time.sleep(0.05)  # one that was woken has ended by then
    assert waiting.waits
    commit(messaging, tx)
    assert payloads(waiting.ends()) == [b"a"]


def test_the_end_of_whoever_blocks_wakes_who_waits(messaging: Messaging) -> None:
    tx = messaging.coordinator.start_short()
    publish(messaging, b"a", transaction=tx)
    messaging.publish("t", [b"b"])
    waiting = waiter(messaging, isolation="committed")
    assert waiting.waits
    messaging.coordinator.invalidate(tx)
    assert payloads(waiting.ends()) == [b"b"]


def test_a_rollback_wakes_who_waits_behind_it(messaging: Messaging) -> None:
    tx = messaging.coordinator.start_short()
    response = publish(messaging, b"a", transaction=tx)
    messaging.publish("t", [b"b"])
    waiting = waiter(messaging, isolation="committed")
    assert waiting.waits
    messaging.rollback("t", response)
    assert payloads(waiting.ends()) == [b"b"]


def test_the_end_of_a_transaction_wakes_every_topic_it_wrote_to(
    messaging: Messaging,
) -> None:
    messaging.create_topic("u")
    tx = messaging.coordinator.start_short()
    messaging.store("u", [b"b"], transaction=tx)
    waiting = [waiter(messaging, topic, isolation="committed") for topic in ("t", "u")]
    publish(messaging, b"a", transaction=tx)
    publish(messaging, transaction=tx, topic="u")
    commit(messaging, tx)
    assert payloads(waiting[0].ends()) == [b"a"]
    assert payloads(waiting[1].ends()) == [b"b"]


def test_who_waits_is_woken_by_its_own_topic_and_start_only(
    messaging: Messaging,
) -> None:
    messaging.create_topic("u")
    messaging.publish("t", [b"a"])
    (message,) = messaging.poll("t")
    waiting = waiter(messaging, start=message.id, inclusive=False)
    messaging.publish("u", [b"x"])
    time.sleep(0.05)  # one that was woken has ended by then
    assert waiting.waits
    messaging.publish("t", [b"b"])
    assert payloads(waiting.ends()) == [b"b"]


def test_waiting_ends_with_an_empty_page(messaging: Messaging) -> None:
    began_s = time.monotonic()
    page = messaging.poll("t", wait_s=0.1, start=MessageId.of(7), inclusive=False)
    assert page == []
    assert 0.08 < time.monotonic() - began_s < FOR_LONG_S / 2
    tx = messaging.coordinator.start_short()
    publish(messaging, b"a", transaction=tx)
    page = messaging.poll("t", wait_s=0.1, isolation="committed")
    assert page == []
    assert page.blocked_by is not None
    assert page.blocked_by.pointer == tx.transaction_id


def test_what_is_there_is_not_waited_for(messaging: Messaging) -> None:
    messaging.publish("t", [b"a"])
    for isolation in ("committed", "uncommitted"):
        began_s = time.monotonic()
        assert messaging.poll("t", wait_s=FOR_LONG_S, isolation=isolation)
        assert time.monotonic() - began_s < FOR_LONG_S / 2


def test_a_topic_that_is_deleted_ends_the_wait(messaging: Messaging) -> None:
    waiting = waiter(messaging)
    messaging.delete_topic("t")
    waiting.ends()
    assert isinstance(waiting.error, TopicNotFound)


def test_closing_ends_the_wait(site: Site) -> None:
    site.messaging.create_topic("t")
    waiting = waiter(site.messaging)
    site.messaging.close()
    waiting.ends()
    assert isinstance(waiting.error, Unavailable)


def test_a_new_generation_is_waited_for_too(messaging: Messaging) -> None:
    messaging.publish("t", [b"old"])
    messaging.delete_topic("t")
    messaging.create_topic("t")
    waiting = waiter(messaging)
    messaging.publish("t", [b"new"])
    assert payloads(waiting.ends()) == [b"new"]


def test_wait_says_whether_something_is_there(messaging: Messaging) -> None:
    service: Any = messaging._service
    assert service.wait("t", start=None, timeout_s=0.02) is False
    tx = messaging.coordinator.start_short()
    publish(messaging, b"a", transaction=tx)
    assert service.wait("t", start=None, timeout_s=0.02) is False
    options: Any = {"isolation": "uncommitted", "timeout_s": 0.02}
    assert service.wait("t", start=None, **options) is True
    waiting = Waiter(lambda: service.wait("t", start=None, timeout_s=FOR_LONG_S))
    assert waiting.waits
    commit(messaging, tx)
    assert waiting.ends() is True


def test_who_waits_on_a_coordinator_elsewhere_looks_again_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "LOOK_AGAIN_S", 0.2)
    log: list[str] = []
    other: Any = Watched(EmbeddedCoordinator(), log)
    with txaware.connect("memory:", coordinator=other) as messaging:
        messaging.create_topic("t")
        waiting = waiter(messaging, isolation="committed")
        time.sleep(0.3)  # it has looked again by then
        assert "snapshot" not in log  # there is nothing to judge
        tx = messaging.coordinator.start_short()
        publish(messaging, b"a", transaction=tx)
        time.sleep(0.1)  # one that finds it has ended by then
        assert waiting.waits
        commit(messaging, tx)
        assert payloads(waiting.ends()) == [b"a"]
        assert log.count("snapshot") < 30


def test_who_waits_behind_the_last_message_asks_for_no_snapshot() -> None:
    log: list[str] = []
    other: Any = Watched(EmbeddedCoordinator(), log)
    with txaware.connect("memory:", coordinator=other) as messaging:
        messaging.create_topic("t")
        messaging.publish("t", [b"a"])
        messaging.store("t", [b"b"], transaction=5)
        publish(messaging, transaction=5)
        ids = [message.id for message in messaging.poll("t")]
        after = MessageId.after_payloads(ids[1].row_key)
        log.clear()
        options: Any = {"isolation": "committed", "wait_s": 0.05, "inclusive": False}
        assert not messaging.poll("t", start=after, **options)
        messaging.publish("t", [b"c"])
        last = messaging.bounds("t").last
        assert not messaging.poll("t", start=last, **options)
        assert "snapshot" not in log


def test_what_happened_before_the_wait_began_is_not_missed() -> None:
    signal = Signal()
    seen = signal.count
    signal.notify()
    began_s = time.monotonic()
    signal.wait(seen, FOR_LONG_S)
    assert time.monotonic() - began_s < FOR_LONG_S / 2
    signal.wait(signal.count, 0.01)


def test_many_who_wait_are_all_woken(messaging: Messaging) -> None:
    waiting = [waiter(messaging, isolation="committed") for _ in range(10)]
    messaging.publish("t", [b"a"])
    for each in waiting:
        assert payloads(each.ends()) == [b"a"]


@pytest.mark.foreign_pointers
def test_a_group_goes_on_where_only_its_transaction_may(messaging: Messaging) -> None:
    messaging.publish("t", [b"foreign"], transaction=6)
    consumer = messaging.consumer("t", group="g")
    assert not messaging.consumer("t").wait(0.01)
    assert consumer.wait(0.01)
    with messaging.transaction():
        assert payloads(consumer.poll()) == [b"foreign"]
    assert not consumer.wait(0.01)
    tx = messaging.coordinator.start_short()
    publish(messaging, b"ours", transaction=tx)
    assert not consumer.wait(0.01)
    commit(messaging, tx)
    assert consumer.wait(0.01)
