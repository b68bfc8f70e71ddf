"""Signals that ask a verb to stop, also when they come at the same time."""

import os
import signal
import threading

import pytest

from txaware.cli.stop import SIGNALS, stopped_by_signal


def at_once(*numbers: int) -> None:
    """Has all of them come before Python looks at the first."""
    me = threading.get_ident()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for number in numbers:
        signal.pthread_kill(me, number)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.parametrize("numbers", [SIGNALS, SIGNALS[::-1]])
def test_two_signals_at_once_stop_and_interrupt(numbers: tuple[int, ...]) -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    with pytest.raises(KeyboardInterrupt), stopped_by_signal() as stop:
        at_once(*numbers)
    assert stop.requested
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


@pytest.mark.parametrize("number", SIGNALS)
def test_the_same_signal_twice_interrupts(number: int) -> None:
    with stopped_by_signal() as stop:
        os.kill(os.getpid(), number)
        assert stop.wait(60)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)


def test_a_signal_that_was_ignored_is_so_the_second_time() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopped_by_signal() as stop:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
    finally:
        signal.signal(signal.SIGINT, before)
