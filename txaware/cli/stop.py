"""Verbs that go on until they are told to stop, by Ctrl-C or SIGTERM."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)
TICK_S = 0.25


class Stop:
    """Whether a signal asked to stop.

    Not a `threading.Event`: setting one in a signal handler hangs, if the signal comes
    while the same thread holds the lock of that event.
    """

    def __init__(self) -> None:
        self.asked = False

    def wait(self, timeout_s: float) -> bool:
        """Waits until then at most; whether it was asked to stop."""
        until_s = time.monotonic() + timeout_s
        while not self.asked and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, TICK_S))
        return self.asked


@contextmanager
def stopped_by_signal() -> Iterator[Stop]:
    """The first signal asks to stop; the second one interrupts as usual."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals reach the main thread only
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def ask(number: int, _: object) -> None:
        signal.signal(number, before[signal.Signals(number)])
        stop.asked = True

    for number in SIGNALS:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
