"""Signals: who waits is woken, all or as many as there is something for."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from tests.support.concurrency import until
from txaware.service.wakeups import Signal

LONG_S = 60.0


@pytest.fixture
def signal() -> Signal:
    return Signal()


def waiters(
    signal: Signal, count: int, *, chooses: bool = False
) -> list[threading.Thread]:
    """So many threads that wait now."""
    wait = partial(signal.wait, signal.count, LONG_S, chooses=chooses)
    before = signal._waiting
    threads = [threading.Thread(target=wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    assert until(lambda: signal._waiting == before + count)
    return threads


def over(threads: list[threading.Thread]) -> int:
    """How many of them wait no more."""
    return sum(not thread.is_alive() for thread in threads)


def test_so_many_are_woken_as_is_told(signal: Signal) -> None:
    threads = waiters(signal, 5)
    for told, woken in ((1, 1), (2, 3), (9, 5)):
        signal.notify(told)
        assert until(lambda woken=woken: over(threads) == woken)  # type: ignore
        assert signal._waiting == 5 - woken


def test_listeners_are_woken_where_no_thread_is_left(signal: Signal) -> None:
    called: list[str] = []
    thread = waiters(signal, 1)
    listeners: list[Callable[[], object]] = [
        partial(called.append, one) for one in "abc"
    ]
    for listener in listeners:
        assert signal.listen(signal.count, listener)
    signal.notify(2)
    assert called == ["a"]
    assert until(lambda: over(thread) == 1)
    signal.notify()
    assert called == ["a", "b", "c"]


def test_all_are_woken_while_one_chooses(signal: Signal) -> None:
    threads = waiters(signal, 2) + waiters(signal, 1, chooses=True)
    signal.notify(1)
    assert until(lambda: over(threads) == 3)
    called: list[str] = []
    signal.listen(signal.count, partial(called.append, "a"), chooses=True)
    signal.listen(signal.count, partial(called.append, "b"))
    signal.notify(1)
    assert called == ["a", "b"]
