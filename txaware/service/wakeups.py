"""Wakes readers that wait for something in a topic; tells where a loop would wait."""

import threading
from collections.abc import Callable, Iterable
from itertools import islice

from coordinator.threads import Condition

Listener = Callable[[], object]


class WouldWait(Exception):
    """An event loop would have to wait here, as for the disk: a thread does it all."""


class Signal:
    """A count of what happened; a wait ends when the count is not the seen one.

    Those who wait take whatever is there, unless they say that they choose. `also` is
    told as well, if there is one.
    """

    also: "Signal | None" = None

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting = 0
        self._choosing = 0
        self._listeners: dict[Listener, bool] = {}
        self.count = 0

    @property
    def is_awaited(self) -> bool:
        """True while anybody waits."""
        return bool(self._waiting or self._listeners)

    def notify(self, most: int | None = None) -> None:
        """Counts one more, and wakes everybody who waits, or `most` of them.

        Whoever chooses may not take what is there, so while one does, all are woken.
        """
        self.count += 1  # read without the lock; a waiter looks again after taking it
        if self.also is not None:
            self.also.notify()
        if not self.is_awaited:
            return
        with self._changed:
            if most is None or self._choosing or any(self._listeners.values()):
                self._changed.notify_all()
                listeners, self._listeners = list(self._listeners), {}
            else:
                left = most - self._changed.notify(most)
                listeners = list(islice(self._listeners, left))
                for listener in listeners:
                    del self._listeners[listener]
        for listener in listeners:
            listener()

    def listen(self, seen: int, listener: Listener, *, chooses: bool = False) -> bool:
        """Has `listener` called once, when something happens; for an event loop.

        It may be called in any thread, so it must be quick. Returns False where the
        count is no longer `seen`.
        """
        with self._changed:
            self._listeners[listener] = chooses
        if self.count == seen:
            return True
        self.forget(listener)
        return False

    def forget(self, listener: Listener) -> None:
        """Forgets a listener; it is not called any more."""
        with self._changed:
            self._listeners.pop(listener, None)

    def wait(self, seen: int, timeout_s: float, *, chooses: bool = False) -> None:
        """Waits until the count is no longer `seen`, or until the time-out."""
        with self._changed:
            self._waiting += 1
            self._choosing += chooses
            try:
                if self.count == seen:
                    self._changed.wait(timeout_s)
            finally:
                self._waiting -= 1
                self._choosing -= chooses


class Endings:
    """The signals of the topics that each transaction wrote to, told when it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.signals: dict[int, list[Signal]] = {}

    def expect(self, pointer: int, signal: Signal) -> None:
        """Adds a signal to tell when a transaction ends."""
        with self._lock:
            signals = self.signals.setdefault(pointer, [])
            if signal not in signals:
                signals.append(signal)

    def ended(self, pointers: Iterable[int]) -> None:
        """Tells the signals of transactions that are over, when all can see that."""
        for pointer in pointers:
            for signal in self.signals.pop(pointer, ()):
                signal.notify()
