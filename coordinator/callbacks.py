"""Functions that are called when a transaction has ended, one way or the other."""

import functools
import inspect
from collections import deque
from collections.abc import Callable

from coordinator.errors import BadRequest

Callback = Callable[[], object]


class Callbacks:
    """The functions of one transaction, each called once, in the order of their coming.

    All are called, also when one of them raises. After an interrupt a second call goes
    on with those that are left.
    """

    def __init__(self) -> None:
        self._waiting: dict[bool, deque[Callback]] = {True: deque(), False: deque()}

    def add(self, function: Callback, *, committed: bool) -> None:
        """Takes a function for a commit, or for a rollback."""
        self._waiting[committed].append(function)

    def take(self, *, committed: bool) -> Callback | None:
        """Returns the next one to call; None after the last."""
        waiting = self._waiting[committed]
        return waiting.popleft() if waiting else None

    def run(self, *, committed: bool) -> list[BaseException]:
        """Calls them; returns interrupts, and all errors as one group."""
        errors: list[BaseException] = []
        while (function := self.take(committed=committed)) is not None:
            try:
                function()
            except BaseException as error:
                errors.append(error)
        return grouped(errors, committed=committed)


def grouped(errors: list[BaseException], *, committed: bool) -> list[BaseException]:
    """Returns interrupts, and the errors as one group behind them.

    Nobody takes a group for a refusal of the transaction that has ended, although a
    function in it may have had one of its own refused.
    """
    interrupts = [one for one in errors if not isinstance(one, Exception)]
    failures = [one for one in errors if isinstance(one, Exception)]
    if not failures:
        return interrupts
    hook = "on_commit" if committed else "on_rollback"
    count = len(failures)
    text = f"{count} function{'s' * (count > 1)} given to {hook} failed"
    return [*interrupts, ExceptionGroup(text, failures)]


class CallsBack:
    """A block that calls functions when its transaction has ended."""

    _callbacks: Callbacks | None = None
    _may_await = False

    def on_commit(self, function: Callback) -> None:
        """Has a function called, without arguments, once the transaction is committed.

        It is called in this thread or task, after all participants were told. All are
        called, in the order of their coming. What they raise undoes nothing: the end of
        the block raises it, as one `ExceptionGroup`. In an asyncio block, what a
        function returns is awaited if that can be.
        """
        self._require_active("on_commit")
        self._add(function, committed=True)

    def on_rollback(self, function: Callback) -> None:
        """Has a function called, without arguments, once all is rolled back.

        What they raise is a note of the error that ended the block. Where the outcome
        is unknown, neither these nor those of `on_commit` are called.
        """
        self._require_active("on_rollback")
        self._add(function, committed=False)

    def _require_active(self, call: str) -> None:
        """Raises `MisusedTransaction` unless the block is open."""
        raise NotImplementedError

    def _add(self, function: Callback, *, committed: bool) -> None:
        what = "on_commit" if committed else "on_rollback"
        _check(function, what=what, may_await=self._may_await)
        self._keep(function, committed=committed)

    def _keep(self, function: Callback, *, committed: bool) -> None:
        if self._callbacks is None:
            self._callbacks = Callbacks()
        self._callbacks.add(function, committed=committed)

    def _call_back(self, *, committed: bool) -> list[BaseException]:
        callbacks = self._callbacks
        return [] if callbacks is None else callbacks.run(committed=committed)


def check_function(
    function: object, *, what: str = "", may_await: bool = False
) -> None:
    """Raises `BadRequest` for what is no function, or would have to be awaited.

    `what` says in the error what it was given as.
    """
    named = f"{what} = " if what else ""
    if not callable(function):
        raise BadRequest(f"{named}{function!r:.200} is no function to call")
    if is_async(function) and not may_await:
        raise BadRequest(
            f"{named}{function!r:.200} is a coroutine function, which nobody awaits "
            f"here: give one that is def, not async def"
        )
    if _is_any(function, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        raise BadRequest(
            f"{named}{function!r:.200} is a generator function, and nothing of it runs "
            f"when it is called: give one without yield"
        )


def is_async(function: object) -> bool:
    """Tells whether a call would make a coroutine, also of an object's `__call__`."""
    return _is_any(function, inspect.iscoroutinefunction)


def _is_any(function: object, *kinds: Callable[[object], bool]) -> bool:
    """Tells whether a function, or an object's `__call__`, is of one of these kinds."""
    while isinstance(function, functools.partial):
        function = function.func
    called = function
    if not inspect.isroutine(function) and not isinstance(function, type):
        called = getattr(function, "__call__", None)  # noqa: B004
    return any(is_kind(function) or is_kind(called) for is_kind in kinds)


def check_answer(answer: object) -> None:
    """Raises `BadRequest` for what a function answers that has run nothing yet."""
    if answer is None:
        return
    if inspect.iscoroutine(answer):
        answer.close()
        raise BadRequest(f"{answer!r:.200} is a coroutine, which nobody awaits here")
    if inspect.isgenerator(answer) or inspect.isasyncgen(answer):
        raise BadRequest(
            f"{answer!r:.200} is a generator, of which nothing has run: the function "
            f"has a yield, or answers what has one"
        )


def _check(function: Callback, *, what: str, may_await: bool) -> None:
    """Raises `BadRequest` for what cannot be called without arguments."""
    check_function(function, what=what, may_await=may_await)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # not every callable has a signature
    try:
        signature.bind()
    except TypeError as error:
        raise BadRequest(
            f"{function!r:.200} is called without arguments, and: {error}"
        ) from error
