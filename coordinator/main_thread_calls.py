"""A thread that makes the calls of the main thread, where no interrupt comes."""

import threading
from collections.abc import Callable
from functools import partial, wraps
from queue import SimpleQueue
from typing import Any, TypeVar, cast

import attrs

from coordinator.threads import JoinableThread

T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])
Ended = tuple[Any, BaseException | None]


@attrs.define(eq=False)
class _Turn:
    """A call, and how it ended; `is_left` once its caller waits no more."""

    call: Callable[[], Any]
    undo: Callable[[Any], object] | None
    is_left: bool = False
    ends: "SimpleQueue[Ended]" = attrs.field(factory=SimpleQueue)

    def run(self) -> None:
        """Makes the call; undoes it where nobody waits for the answer any more."""
        answer, failure = None, None
        try:
            answer = self.call()
            if self.is_left and self.undo is not None:
                self.undo(answer)
        except BaseException as error:
            failure = error
        self.ends.put((answer, failure))


class MainThreadCalls:
    """Makes calls that an interrupt (Ctrl-C) cannot leave half done.

    Python raises interrupts in the main thread alone, at nearly any place. A call that
    changes much in one step is therefore made in a thread of its own when the main
    thread asks for it. An interrupt ends the wait for its answer, and not the call.
    Calls keep their order. Other threads make their calls themselves.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._turns: SimpleQueue[_Turn | None] = SimpleQueue()
        self._thread: JoinableThread | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        self.main_thread = threading.main_thread().ident

    def __call__(
        self, call: Callable[[], T], *, undo: Callable[[T], object] | None = None
    ) -> T:
        """Makes a call; `undo` gets the answer if the caller was interrupted before."""
        if threading.current_thread() is not threading.main_thread():
            return call()
        turn = _Turn(call, undo)
        try:
            if not self._takes(turn):
                return call()
            answer, failure = turn.ends.get()
        except BaseException:
            turn.is_left = True
            raise
        if failure is None:
            return answer  # type: ignore[no-any-return]  # it is what `call` returned
        try:
            raise failure
        finally:
            del failure  # it holds this frame

    def _takes(self, turn: _Turn) -> bool:
        """Hands a call over; False once this is closed."""
        with self._lock:
            if self._is_closed:
                return False
            if self._thread is None or not self._thread.is_alive():
                self._thread = JoinableThread(
                    target=self._run, name=self._name, daemon=True
                )
                self._thread.start()
            self._turns.put(turn)
            return True

    def _run(self) -> None:
        while (turn := self._turns.get()) is not None:
            turn.run()
            del turn  # and with it what it answered

    def close(self) -> None:
        """Returns when the last call has ended; callers make later ones themselves."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._turns.put(None)
        if self._thread is not None:
            self._thread.join()


def whole(method: M) -> M:
    """Has calls of a method go through the `calls` of its object."""

    @wraps(method)
    def made(self: Any, *args: Any, **options: Any) -> Any:
        if threading.get_ident() != self.calls.main_thread:  # and no call more
            return method(self, *args, **options)
        return self.calls(partial(method, self, *args, **options))

    return cast(M, made)
