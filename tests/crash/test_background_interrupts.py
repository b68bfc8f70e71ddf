"""Ctrl-C at every place of a call of a publisher in the background: nobody hangs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from coordinator.threads import (
    Condition,
    Event,
    JoinableThread,
    SafeFuture,
    SharedCall,
    try_lock,
)
from tests.support.concurrency import until
from tests.support.interrupts import (
    PATIENCE_S,
    elsewhere,
    interrupted,
    interrupted_at,
    places,
)
from txaware.client.connections import FairSemaphore
from txaware.model.messages import Outgoing
from txaware.publish import AsyncPublisher, AtMostOncePublisher, Sender, SentFuture
from txaware.publish.send_way import PlainWay
from txaware.publish.sender import SenderOptions


class SenderOfOne(Sender):
    """A sender that is called as a publisher to one topic is."""

    def __init__(
        self, service: Any, topic: str, *, message_limit_bytes: int, linger_ms: float
    ) -> None:
        super().__init__(
            partial(PlainWay, service, once=False),
            SenderOptions(linger_ms=linger_ms),
            message_limit_bytes=message_limit_bytes,
        )
        self._topic = topic

    def publish(self, payload: bytes) -> SentFuture:
        """Sends a message with a key, as most have one."""
        return self.send(self._topic, payload, key=b"k")


Publisher = AsyncPublisher | AtMostOncePublisher | SenderOfOne


class Service:
    """Takes down what is published, and lets a batch through when it is told to."""

    def __init__(self) -> None:
        self.published: list[bytes] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def publish(self, topic: str, messages: list[bytes | Outgoing]) -> None:
        assert self.go_on.wait(PATIENCE_S)
        self.published += [
            one.payload if isinstance(one, Outgoing) else one for one in messages
        ]


@contextmanager
def publishing(kind: type[Publisher], **options: Any) -> Iterator[tuple[Service, Any]]:
    """A publisher, which another thread closes: one that hangs must not hang this."""
    stand_in: Any = Service()
    publisher = kind(stand_in, "t", message_limit_bytes=100, linger_ms=0, **options)
    try:
        yield stand_in, publisher
    finally:
        stand_in.go_on.set()
        elsewhere(publisher.close)


CALLS: dict[str, Callable[[Publisher], object]] = {
    "publish": lambda publisher: publisher.publish(b"i"),
    "flush": lambda publisher: publisher.flush(),
    "close": lambda publisher: publisher.close(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", [AsyncPublisher, AtMostOncePublisher, SenderOfOne])
def test_an_interrupt_at_any_place_stops_no_publisher(
    kind: type[Publisher], name: str
) -> None:
    def interrupt(place: int) -> bool:
        with publishing(kind) as (service, publisher):
            publisher.publish(b"before")
            found = interrupted_at(place, partial(CALLS[name], publisher))
            if name != "close":
                elsewhere(partial(publisher.publish, b"after"))
                assert elsewhere(partial(publisher.flush, PATIENCE_S))
        whole = [b"before", b"i", b"after"]
        assert service.published in (
            [one for one in whole if one not in left]
            for left in ([], [b"i"], [b"i", b"after"], [b"after"])
        )
        assert not publisher._background.machine.held_bytes
        assert not publisher._background.thread.is_alive()
        return found

    assert places(interrupt) > 5


def test_an_interrupt_of_a_publish_that_wakes_the_sender_stops_nothing() -> None:
    """The sender sleeps without an end then: nothing else wakes it."""

    def interrupt(place: int) -> bool:
        with publishing(AsyncPublisher) as (_, publisher):
            publisher.publish(b"before")
            assert elsewhere(partial(publisher.flush, PATIENCE_S))
            found = interrupted_at(place, partial(publisher.publish, b"i"))
            elsewhere(partial(publisher.publish, b"after"))
            assert elsewhere(partial(publisher.flush, PATIENCE_S))
        return found

    assert places(interrupt) > 5


def test_an_interrupt_at_any_place_of_a_new_publisher_leaves_no_thread() -> None:
    def interrupt(place: int) -> bool:
        before = set(threading.enumerate())
        stand_in: Any = Service()
        made: list[Publisher] = []

        def make() -> None:
            made.append(AtMostOncePublisher(stand_in, "t", message_limit_bytes=100))

        found = interrupted_at(place, make)
        for publisher in made:
            elsewhere(publisher.close)
        for thread in set(threading.enumerate()) - before:
            if thread.ident is not None:  # it was started
                elsewhere(thread.join)
        return found

    assert places(interrupt) > 5


def test_an_interrupt_at_any_place_of_waiting_for_a_result_stops_no_publisher() -> None:
    """The result comes when somebody waits for it, or was interrupted before."""
    early: list[bool] = []

    def interrupt(place: int) -> bool:
        with publishing(AsyncPublisher) as (service, publisher):
            service.go_on.clear()
            future = publisher.publish(b"a")
            over = threading.Event()

            def answer() -> None:
                until(lambda: future._batch.turns or over.is_set())
                service.go_on.set()

            other = threading.Thread(target=answer)
            other.start()
            found = interrupted_at(place, future.result)
            early.append(found and not service.go_on.is_set())
            over.set()
            other.join()
            assert elsewhere(partial(publisher.flush, PATIENCE_S))
            assert elsewhere(future.result).topic == "t"
        return found

    places(interrupt)
    assert early[0], "no interrupt came before the result"


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("wait", ["flush", "room", "result"])
def test_whoever_is_interrupted_while_it_waits_stops_no_publisher(wait: str) -> None:
    with publishing(AsyncPublisher, queue_limit_messages=1) as (service, publisher):
        service.go_on.clear()
        future = publisher.publish(b"a")
        waits: dict[str, Callable[[], object]] = {
            "flush": publisher.flush,
            "room": partial(publisher.publish, b"never"),
            "result": future.result,
        }
        for _ in range(2):
            interrupted(waits[wait])
        service.go_on.set()
        elsewhere(partial(publisher.publish, b"b"))
        assert elsewhere(publisher.flush)
    assert service.published == [b"a", b"b"]


def test_a_condition_is_given_back_wherever_an_interrupt_comes() -> None:
    def interrupt(place: int) -> bool:
        condition = Condition()

        def use() -> None:
            with condition, condition:
                condition.wait(0)
                condition.notify_all()

        found = interrupted_at(place, use)
        assert not condition._is_owned()
        assert elsewhere(partial(condition.acquire, timeout=PATIENCE_S))
        return found

    assert places(interrupt) > 5


def test_all_that_wait_with_a_condition_are_woken_in_one_step() -> None:
    def interrupt(place: int) -> bool:
        condition, ready, woken = Condition(), threading.Semaphore(0), [False] * 3

        def wait(number: int) -> None:
            with condition:
                ready.release()
                woken[number] = condition.wait(PATIENCE_S)

        threads = [threading.Thread(target=wait, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
            ready.acquire()

        def notify() -> None:
            with condition:
                condition.notify_all()

        with condition:
            pass  # all of them wait
        found = interrupted_at(place, notify)
        if not found or any(woken):
            for thread in threads:
                thread.join()
        with condition:
            condition.notify_all()
        for thread in threads:
            thread.join()
        return found

    assert places(interrupt) > 1


def test_an_event_is_set_or_not_wherever_an_interrupt_comes() -> None:
    def interrupt(place: int) -> bool:
        event = Event()
        thread = JoinableThread(target=event.wait, args=(PATIENCE_S,))
        thread.start()
        found = interrupted_at(place, event.set)
        elsewhere(event.set)
        elsewhere(thread.join)
        return found

    assert places(interrupt) > 3


def test_an_interrupted_start_hangs_no_thread() -> None:
    def interrupt(place: int) -> bool:
        ran = threading.Event()
        thread = JoinableThread(target=ran.set, daemon=True)
        found = interrupted_at(place, thread.start)
        if thread.ident is not None or not found:
            assert ran.wait(PATIENCE_S)
            elsewhere(thread._over.wait)
        return found

    assert places(interrupt) > 5


def test_a_shared_call_that_is_interrupted_leaves_nobody_waiting() -> None:
    def interrupt(place: int) -> bool:
        shared = SharedCall(lambda: 7)
        found = interrupted_at(place, shared)
        assert elsewhere(shared) == 7
        return found

    assert places(interrupt) > 5


def test_a_permit_is_not_lost_wherever_an_interrupt_comes() -> None:
    for free in (1, 0):

        def interrupt(place: int, free: int = free) -> bool:
            semaphore, got = FairSemaphore(1), []

            def take() -> None:
                got.append(semaphore.acquire(timeout=0))

            if not free:
                assert semaphore.acquire(timeout=0)
            found = interrupted_at(place, take)
            if not free or True in got:
                semaphore.release()
            assert semaphore._count == 1 or (found and not got)
            assert elsewhere(partial(semaphore.acquire, timeout=0))
            assert not elsewhere(partial(semaphore.acquire, timeout=0))
            return found

        assert places(interrupt) > 3


def test_a_lock_that_is_tried_is_given_back_wherever_an_interrupt_comes() -> None:
    def interrupt(place: int) -> bool:
        lock = threading.Lock()

        def use() -> None:
            taken: list[bool] = []
            try:
                try_lock(lock, taken)
            finally:
                if True in taken:
                    lock.release()

        found = interrupted_at(place, use)
        assert not lock.locked()
        return found

    assert places(interrupt) > 1


def test_a_future_of_ours_is_one_that_others_can_wait_for() -> None:
    future: SafeFuture[int] = SafeFuture()
    threading.Timer(0.001, future.set_result, (3,)).start()
    assert future.result(PATIENCE_S) == 3
