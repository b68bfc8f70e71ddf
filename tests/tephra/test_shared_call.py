"""Who shares a call with whom."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from coordinator.errors import Unavailable
from coordinator.threads import SharedCall

PATIENCE_S = 20.0


class Slow:
    """A call that begins and ends when the test says so, and answers its number."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.calls = 0
        self.error: Exception | None = None

    def __call__(self) -> int:
        self.calls += 1
        number = self.calls
        self.begun.release()
        assert self.may_end.acquire(timeout=PATIENCE_S)
        if self.error is not None:
            raise self.error
        return number


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


def begun(pool: ThreadPoolExecutor) -> tuple[Slow, SharedCall[int], Future[int]]:
    """Shares a call, the first of which is under way."""
    slow = Slow()
    shared = SharedCall(slow)
    first = pool.submit(shared)
    assert slow.begun.acquire(timeout=PATIENCE_S)
    return slow, shared, first


def wait_for_askers(shared: SharedCall[int], count: int) -> None:
    """Returns when so many wait for the next round; they cannot be seen otherwise."""
    for _ in range(2000):
        joinable = shared._joinable
        waiting = joinable.done._cond._waiters if joinable else ()
        if joinable is not None and len(waiting) >= count:
            return
        threading.Event().wait(0.005)
    raise AssertionError("they did not come to wait")


def test_who_asks_after_the_call_was_sent_gets_a_later_one(
    pool: ThreadPoolExecutor,
) -> None:
    slow, shared, first = begun(pool)
    late = pool.submit(shared)
    slow.may_end.release()
    assert first.result(PATIENCE_S) == 1
    slow.may_end.release()
    assert late.result(PATIENCE_S) == 2


def test_all_who_asked_before_the_call_was_sent_share_it(
    pool: ThreadPoolExecutor,
) -> None:
    slow, shared, first = begun(pool)
    later = [pool.submit(shared) for _ in range(5)]
    wait_for_askers(shared, 4)  # the fifth leads
    slow.may_end.release(2)
    assert first.result(PATIENCE_S) == 1
    assert [one.result(PATIENCE_S) for one in later] == [2] * 5
    assert slow.calls == 2


def test_an_error_is_raised_for_all_of_its_round_and_the_next_one_works(
    pool: ThreadPoolExecutor,
) -> None:
    slow, shared, first = begun(pool)
    later = [pool.submit(shared) for _ in range(3)]
    wait_for_askers(shared, 2)
    slow.error = Unavailable("away")
    slow.may_end.release(2)
    for one in (first, *later):
        with pytest.raises(Unavailable, match="away"):
            one.result(PATIENCE_S)
    slow.error = None
    slow.may_end.release()
    assert shared() == 3


def test_an_interrupted_leader_leaves_the_others_to_ask_again(
    pool: ThreadPoolExecutor,
) -> None:
    begun, interrupt = threading.Event(), threading.Event()
    answers = iter(["interrupted", "answered"])

    def call() -> str:
        answer = next(answers)
        if answer == "interrupted":
            begun.set()
            assert interrupt.wait(PATIENCE_S)
            raise KeyboardInterrupt
        return answer

    shared = SharedCall(call)
    leader = pool.submit(shared)
    assert begun.wait(PATIENCE_S)
    other = pool.submit(shared)
    interrupt.set()
    with pytest.raises(KeyboardInterrupt):
        leader.result(PATIENCE_S)
    assert other.result(PATIENCE_S) == "answered"
