"""Verbs that go on until they are told to stop, by Ctrl-C or SIGTERM."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopped_by_signal() -> Iterator[threading.Event]:
    """An event that the first signal sets; the second one interrupts as usual."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals reach the main thread only
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def set_stop(number: int, _: object) -> None:
        signal.signal(number, before[number])
        stop.set()

    for number in SIGNALS:
        signal.signal(number, set_stop)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
