"""Threads, locks, blocks and shared calls that Ctrl-C cannot leave half done.

Python raises an interrupt in the main thread when a Python function begins, when a C
function returns, and in waits. `with lock:` is safe, because a lock is written in C.
The `__enter__` of `threading.Condition` is written in Python. An interrupt may come
there after it has taken the lock and before the block begins. Then nobody ever
releases the lock.
"""

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import repeat
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Condition(type(threading.RLock())):  # type: ignore[misc]
    """A reentrant lock with `wait` and `notify_all`, entered in C as plain locks are.

    A `wait` holds the lock when it ends, also when it is interrupted. A thread that
    changes something calls `notify_all` first and makes the change after it, both
    under the lock. Nobody can look in between. An interrupt between the two wakes the
    waiting threads for nothing, which does no harm.
    """

    def __init__(self) -> None:
        self._waiters: list[SimpleQueue[None]] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Releases the lock until `notify_all`; returns False after the time-out."""
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
        """Calls `act` without the lock, and takes it again, even after an interrupt."""
        saved: list[Any] = []
        try:
            try:
                # One step in C: an interrupt between two would lose the lock's count.
                saved.extend(map(_RELEASE_SAVE, (self,)))
                act()
            finally:
                self._take_back(saved)
        except BaseException:
            self._take_back(saved)  # an interrupt may have stopped the first try
            raise

    def notify_all(self) -> None:
        """Wakes all that wait, in one C call, so that no interrupt leaves some out."""
        if self._waiters:
            deque(map(_PUT, self._waiters, repeat(None)), maxlen=0)

    def notify(self, most: int) -> int:
        """Wakes those that have waited longest, and returns how many there were.

        An interrupt may leave some to be woken twice, which does no harm.
        """
        woken = self._waiters[:most]
        deque(map(_PUT, woken, repeat(None)), maxlen=0)
        del self._waiters[: len(woken)]
        return len(woken)

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
    """An event over a `Condition` that an interrupt cannot leave locked."""

    _cond: Any
    _flag: bool

    def __init__(self) -> None:
        super().__init__()
        self._cond = Condition()

    def set(self) -> None:
        """Wakes all that wait; later calls of `wait` return at once."""
        with self._cond:
            self._cond.notify_all()
            self._flag = True


class SafeFuture(Future[T]):
    """A future whose result the main thread may wait for.

    With a plain future, an interrupt could leave its lock taken, and the thread that
    sets the result would wait for ever.
    """

    _condition: Any

    def __init__(self) -> None:
        super().__init__()
        self._condition = Condition()


class JoinableThread(threading.Thread):
    """A thread whose `join` can be repeated after Ctrl-C interrupted it, and waits.

    Python takes a thread for ended once its `join` or `is_alive` was interrupted
    (bpo-45274). The next `join` then does not wait, and neither does the end of the
    program, which crashes in libraries that the thread still uses.
    """

    _started: threading.Event

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._started = Event()  # or a start that is interrupted hangs the thread
        self._over = Event()
        self._process: int | None = None

    def start(self) -> None:
        """Starts the thread, and remembers the process that it runs in."""
        self._process = os.getpid()
        super().start()

    def run(self) -> None:
        """Runs the thread's function, and notes its end."""
        try:
            super().run()
        finally:
            self._over.set()

    def is_alive(self) -> bool:
        """Tells whether the thread runs; in a forked child it does not."""
        begun = self._process == os.getpid() and self._started.is_set()
        return begun and not self._over.is_set()

    def join(self, timeout: float | None = None) -> None:
        """Waits for the end; in a forked child there is nothing to wait for."""
        is_another = threading.current_thread() is not self
        begun = self._process == os.getpid() and self._started.is_set()
        if timeout is None and is_another and begun:
            self._over.wait()
        super().join(timeout)


class LoopTurn(threading.local):
    """The event loop of this thread, if it never waits for what it hands over.

    `call_soon` calls a function when the turn of the loop is over. Another thread that
    is woken before that only queues for the interpreter, again and again: a loop gives
    it up between any two of its callbacks.
    """

    call_soon: Callable[..., object] | None = None


turns = LoopTurn()


def try_lock(lock: Any, acquired: list[bool]) -> bool:
    """Acquires a lock if it is free; `acquired` gets whether it did, in one step."""
    acquired.extend(map(lock.acquire, (False,)))
    return acquired[-1]


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
