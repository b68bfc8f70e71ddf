"""Threads, conditions and events that Ctrl-C does not tear.

Python raises an interrupt in the main thread where a function begins, where one that is
written in C returns, and in waits. `with lock:` is safe: nothing of it is written in
Python. But the `__enter__` of `threading.Condition` is, so an interrupt may come when
it has the lock and the block has not begun: nobody ever gives it back.
"""

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import repeat
from queue import Empty, SimpleQueue
from types import MethodType
from typing import Any, TypeVar

T = TypeVar("T")
Exits = Callable[[type[BaseException] | None, BaseException | None, object], None]


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
        timeout = None if timeout is None else max(0.0, timeout)
        try:
            self._waiters.append(turn)
            self.outside(partial(turn.get, timeout=timeout))
            return True
        except Empty:
            return False
        finally:
            if turn in self._waiters:
                self._waiters.remove(turn)

    def outside(self, act: Callable[[], object]) -> None:
        """Acts without the lock, and has it again afterwards, whatever interrupts."""
        saved: list[Any] = []
        try:
            try:
                # One step: an interrupt would otherwise lose how often it was taken.
                saved.extend(map(_RELEASE_SAVE, (self,)))
                act()
            finally:
                self._take_back(saved)
        except BaseException:
            self._take_back(saved)  # where an interrupt came too early just now
            raise

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


class BlockExit:
    """The method `__exit__`; a `with` statement holds on to it until its block is over.

    An interrupt may come where the method begins, which then never runs. That the block
    is over is known all the same: nobody holds the method any more. Its owner has
    `_block`, a weak reference to the method, until it is `_within` the block.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, owner: Any, kind: object = None) -> Exits:
        if owner is None:
            return self._function
        method = MethodType(self._function, owner)
        if not owner._within:
            owner._block = weakref.ref(method)
        return method


class JoinableThread(threading.Thread):
    """A `join` that Ctrl-C has interrupted can be repeated, and waits.

    Python takes a thread for ended once its `join`, or `is_alive`, was interrupted
    (bpo-45274): the next one does not wait, nor does the end of the program, which then
    crashes in the libraries of the thread.
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

    def is_alive(self) -> bool:
        """Tells whether it runs; in a forked child it does not."""
        begun = self._process == os.getpid() and self._started.is_set()
        return begun and not self._over.is_set()

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
