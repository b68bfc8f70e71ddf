"""Answers all threads that asked before a call began with that one call."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from coordinator.threads import Event

T = TypeVar("T")


class _Round(Generic[T]):
    """A call that several threads wait for, and its answer or error."""

    def __init__(self) -> None:
        self.done = Event()
        self.answer: tuple[T] | None = None
        self.error: Exception | None = None


class SharedCall(Generic[T]):
    """Calls a function once for all threads that asked before the call began.

    A thread that asks during a call must not have its answer, which could be older
    than the question. It shares the next call. A call that raises an `Exception` raises
    it for all threads that wait for it.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._lock = threading.Lock()  # guards the round that is being joined
        self._sending = threading.Lock()
        self._joinable: _Round[T] | None = None

    def __call__(self) -> T:
        while True:
            new: _Round[T] = _Round()
            try:
                with self._lock:
                    joined = self._joinable
                    if joined is None:
                        joined = self._joinable = new
                if joined is new:
                    self._lead(new)
            finally:
                try:
                    self._end(new)
                except BaseException:  # an interrupt, and others may wait for this
                    self._end(new)
                    raise
            joined.done.wait()
            if joined.error is not None:
                raise type(joined.error)(*joined.error.args) from joined.error
            if joined.answer is not None:
                return joined.answer[0]
            # The thread that made the call was interrupted, so ask again.

    def _lead(self, round_: _Round[T]) -> None:
        try:
            with self._sending:
                with self._lock:
                    self._joinable = None
                round_.answer = (self._call(),)
        except Exception as error:
            round_.error = error

    def _end(self, round_: _Round[T]) -> None:
        with self._lock:
            if self._joinable is round_:  # interrupted before it was sent
                self._joinable = None
        round_.done.set()
