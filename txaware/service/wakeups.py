"""Wakes whoever waits for something to happen in a topic."""

import threading
from collections.abc import Callable, Iterable

from coordinator.threads import Condition

Listener = Callable[[], object]


class Signal:
    """Counts what happened; a wait returns when that went beyond what one had seen."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting = 0
        self._listeners: dict[Listener, None] = {}
        self.count = 0

    def tell(self) -> None:
        """Something happened."""
        self.count += 1  # read without the lock; whoever waits looks again after it
        if self._waiting:
            with self._changed:
                self._changed.notify_all()
        if self._listeners:
            with self._changed:
                listeners, self._listeners = self._listeners, {}
            for listener in listeners:
                listener()

    def listen(self, seen: int, listener: Listener) -> bool:
        """Has `listener` called once, when something happens; for an event loop.

        In whatever thread: it must be quick. False where the count is no longer `seen`.
        """
        with self._changed:
            self._listeners[listener] = None
        if self.count == seen:
            return True
        self.forget(listener)
        return False

    def forget(self, listener: Listener) -> None:
        """It need not be called any more."""
        with self._changed:
            self._listeners.pop(listener, None)

    def wait(self, seen: int, timeout_s: float) -> None:
        """Returns when the count is no longer `seen`, or after the time-out."""
        with self._changed:
            self._waiting += 1
            try:
                if self.count == seen:
                    self._changed.wait(timeout_s)
            finally:
                self._waiting -= 1


class Endings:
    """Which topics to wake when a transaction ends: those that it wrote to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._signals: dict[int, list[Signal]] = {}

    def expect(self, pointer: int, signal: Signal) -> None:
        """Wakes these too when that transaction ends."""
        with self._lock:
            signals = self._signals.setdefault(pointer, [])
            if signal not in signals:
                signals.append(signal)

    def ended(self, pointers: Iterable[int]) -> None:
        """These transactions are over, and everybody can see it."""
        for pointer in pointers:
            for signal in self._signals.pop(pointer, ()):
                signal.tell()
