"""Verbs that go on until they are told to stop, by Ctrl-C or SIGTERM."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
TICK_S = 0.25


class Stopped(Exception):
    """A signal asked to stop what cannot be looked at meanwhile."""


class Stop:
    """A note that a signal asked to stop, or to read files again.

    Not a `threading.Event`: setting one in a signal handler hangs, if the signal comes
    while the same thread holds the lock of that event.
    """

    def __init__(self) -> None:
        self.requested = False
        self.reload_requested = False

    def wait(self, timeout_s: float) -> bool:
        """Waits until then at most; tells whether it was asked to stop."""
        until_s = time.monotonic() + timeout_s
        while not (self.requested or self.reload_requested):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(left_s, TICK_S))
        return self.requested

    def pause(self, pause_s: float) -> None:
        """Waits so long; raises `Stopped` once it is asked to stop."""
        until_s = time.monotonic() + pause_s
        while True:
            if self.requested:
                raise Stopped
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, TICK_S))

    def must_reload(self) -> bool:
        """Tells whether SIGHUP came since this was last called."""
        requested, self.reload_requested = self.reload_requested, False
        return requested


@contextmanager
def stopped_by_signal(*, reloads: bool = False) -> Iterator[Stop]:
    """Catches signals: the first one asks to stop, the second one interrupts.

    The handlers stay until the end: a signal that has come, and whose handler is taken
    away before Python has called it, would be an `OSError`.

    With `reloads`, SIGHUP asks to read files again; else it ends the process.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals reach the main thread only
        return
    before: dict[int, Any] = {each: signal.getsignal(each) for each in SIGNALS}

    def ask(number: int, frame: FrameType | None) -> None:
        if not stop.requested:
            stop.requested = True
        elif callable(handler := before[number]):
            handler(number, frame)
        elif handler != signal.SIG_IGN:
            raise KeyboardInterrupt

    def reload(_: int, __: object) -> None:
        stop.reload_requested = True

    hangup = signal.signal(signal.SIGHUP, reload) if reloads else None
    for each in SIGNALS:
        signal.signal(each, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if reloads:
            signal.signal(signal.SIGHUP, hangup)
