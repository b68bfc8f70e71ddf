"""The future of a message: who waits for several, and what a forked child hears."""

import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

import pytest

from tests.support.concurrency import until
from txaware.errors import PublisherClosed, Unavailable
from txaware.model.messages import MessageId
from txaware.publish.send_batch import SendBatch, SendLock, Sent, SentFuture

FIRST = MessageId.of(7, 0)
as_completed: Any = futures.as_completed


def taken(count: int = 1) -> tuple[SendBatch, list[SentFuture]]:
    """Returns a batch of a sender of its own, and the futures of its messages."""
    batch = SendBatch("t", SendLock(), 0.0)
    batch.payloads = [b"x"] * count
    batch.keys = [None] * count
    return batch, [SentFuture(batch, at) for at in range(count)]


def settle(batch: SendBatch, error: Exception | None = None) -> None:
    """Ends a batch as the thread of its sender does."""
    with batch.lock:
        batch.cut()
        batch.first = None if error else FIRST
        batch.settle(error=error)
    batch.notify_callers()


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_thread_that_waits_for_two_senders_holds_up_no_other() -> None:
    (_, [mine]), (_, [theirs]) = taken(), taken()
    looked = threading.Event()

    def look() -> None:
        with theirs._condition, mine._condition:
            looked.set()

    # `wait` stands here between the futures of two senders, by their addresses.
    with mine._condition:
        in_thread(look)
        assert until(looked.is_set), "it waits for the other's lock"
        with theirs._condition:
            pass


def test_threads_wait_for_messages_of_two_senders_in_any_order() -> None:
    one, other = taken(200), taken(200)
    pairs = [*zip(one[1], other[1], strict=True)]
    ended: list[int] = []

    def wait(pairs: list[tuple[SentFuture, SentFuture]]) -> None:
        ended.extend(len(futures.wait(pair).done) for pair in pairs)

    for order in (pairs, pairs[::-1]):
        in_thread(lambda order=order: wait(order))  # type: ignore[misc]
    for batch, _ in (one, other):
        settle(batch)
    assert until(lambda: len(ended) == 400)
    assert {*ended} == {2}


ENDS: dict[str, Callable[[SendBatch, SentFuture], object]] = {
    "sent": lambda batch, _: settle(batch),
    "given up": lambda batch, _: settle(batch, Unavailable("gone")),
    "dropped": lambda batch, _: batch.drop_oldest(),
    "taken back": lambda _, future: future.cancel(),
    "settled by hand": lambda _, future: future.set_result("by hand"),
    "failed by hand": lambda _, future: future.set_exception(Unavailable("by hand")),
}


@pytest.mark.parametrize("when", ["_AS_COMPLETED", "ALL_COMPLETED", "FIRST_COMPLETED"])
@pytest.mark.parametrize("end", ENDS)
def test_what_ends_while_a_thread_looks_is_told_once(end: str, when: str) -> None:
    batch, [future] = taken()
    library: Any = futures._base
    with future._condition:
        ENDS[end](batch, future)
        assert future.done()
        assert future._state == "PENDING", "it changed while `wait` counted"
        waiter = library._create_and_install_waiters({future}, getattr(library, when))
    assert waiter.event.is_set()
    assert waiter.finished_futures == [future]
    assert future._state in (library.FINISHED, library.CANCELLED_AND_NOTIFIED)


def test_what_was_over_when_a_thread_looked_is_not_told_again() -> None:
    batch, [future] = taken()
    settle(batch)
    library: Any = futures._base
    with future._condition:
        waiter = library._create_and_install_waiters({future}, futures.ALL_COMPLETED)
    assert waiter.finished_futures == []
    assert futures.wait([future], timeout=0) == ({future}, set())


CALLS: list[Callable[[SentFuture], object]] = [
    lambda future: future.result(),
    lambda future: future.exception(),
    lambda future: future.cancel(),
    lambda future: future.add_done_callback(print),
    lambda future: future.set_exception(Unavailable("by hand")),
    lambda future: futures.wait([future]),
    lambda future: [*as_completed([future])],
]


def held_for_ever(lock: SendLock) -> None:
    """Leaves a lock as a forked child finds it, of a thread that stayed behind."""
    in_thread(lock.acquire).join()
    lock.is_forked = True


@pytest.mark.parametrize("call", CALLS)
def test_a_forked_child_hears_at_once_that_its_sender_stayed_behind(
    call: Callable[[SentFuture], object],
) -> None:
    batch, [future] = taken()
    held_for_ever(batch.lock)
    with pytest.raises(PublisherClosed, match="stayed behind in the parent process"):
        call(future)
    assert not future.done()


def test_a_forked_child_knows_what_was_over_before() -> None:
    batch, [sent, back] = taken(2)
    assert back.cancel()
    settle(batch)
    held_for_ever(batch.lock)
    told: list[object] = []
    assert sent.result() == Sent("t", 0, FIRST)
    assert not sent.cancel()
    sent.add_done_callback(told.append)
    assert told == [sent]
    assert {*as_completed([sent])} == {sent}
    with pytest.raises(futures.CancelledError):
        back.result()
