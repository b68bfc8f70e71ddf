"""Threads, conditions and events that Ctrl-C does not tear.

Python raises an interrupt in the main thread where a function begins, where one that is
written in C returns, and in waits. `with lock:` is safe: nothing of it is written in
Python. But the `__enter__` of `threading.Condition` is, so an interrupt may come when
it has the lock and the block has not begun: nobody ever gives it back.
"""

import os
import threading
from collections import deque
from concurrent.futures import Future
from itertools import repeat
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Condition(type(threading.RLock())):  # type: ignore[misc]
    """A reentrant lock that can be waited with; entered in C, as locks are.

    A `wait` has the lock when it ends, also when it is interrupted. Whoever changes
    something calls `notify_all` first and changes it then, both under the lock: nobody
    looks in between, and an interrupt there wakes in vain, which does no harm.
    """

    def __init__(self) -> None:
        self._waiters: list[SimpleQueue[None]] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Lets go of the lock until somebody notifies; False after the time-out."""
        turn: SimpleQueue[None] = SimpleQueue()
        saved: list[Any] = []
        try:
            try:
                self._waiters.append(turn)
                # One step: an interrupt would otherwise lose how often it was taken.
                saved.extend(map(_RELEASE_SAVE, (self,)))
                turn.get(timeout=None if timeout is None else max(0.0, timeout))
                return True
            except Empty:
                return False
            finally:
                self._take_back(saved)
        except BaseException:
            self._take_back(saved)  # where an interrupt came too early just now
            raise
        finally:
            if turn in self._waiters:
                self._waiters.remove(turn)

    def notify_all(self) -> None:
        """Wakes all that wait, in one call written in C: not only some of them."""
        if self._waiters:
            deque(map(_PUT, self._waiters, repeat(None)), maxlen=0)

    def _take_back(self, saved: list[Any]) -> None:
        interrupt: BaseException | None = None
        while saved:
            try:
                if not self._is_owned():
                    self._acquire_restore(saved[0])
                break
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt


_RELEASE_SAVE = Condition._release_save
_PUT = SimpleQueue.put


class Event(threading.Event):
    """An event over such a condition."""

    _cond: Any
    _flag: bool

    def __init__(self) -> None:
        super().__init__()
        self._cond = Condition()

    def set(self) -> None:
        """Wakes all that wait, and whoever waits later does not."""
        with self._cond:
            self._cond.notify_all()
            self._flag = True


class SafeFuture(Future[T]):
    """A future whose result may be waited for by the main thread.

    Where an interrupt kept the lock, whoever sets the result would wait for ever.
    """

    _condition: Any

    def __init__(self) -> None:
        super().__init__()
        self._condition = Condition()


class JoinableThread(threading.Thread):
    """A `join` that Ctrl-C has interrupted can be repeated, and waits.

    Python takes a thread for ended once its `join` was interrupted (bpo-45274): the
    next one does not wait, nor does the end of the program, which then crashes in the
    libraries of the thread.
    """

    _started: threading.Event

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._started = Event()  # or a start that is interrupted hangs the thread
        self._over = Event()
        self._process: int | None = None

    def start(self) -> None:
        """Begins to run."""
        self._process = os.getpid()
        super().start()

    def run(self) -> None:
        """Runs to its end."""
        try:
            super().run()
        finally:
            self._over.set()

    def join(self, timeout: float | None = None) -> None:
        """Waits for the end; in a forked child there is nothing to wait for."""
        is_another = threading.current_thread() is not self
        begun = self._process == os.getpid() and self._started.is_set()
        if timeout is None and is_another and begun:
            self._over.wait()
        super().join(timeout)


def try_lock(lock: Any, taken: list[bool]) -> bool:
    """Takes a lock where nobody has it, and notes in `taken` that it did: one step."""
    taken.extend(map(lock.acquire, (False,)))
    return taken[-1]
