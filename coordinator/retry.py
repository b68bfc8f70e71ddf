"""Runs a function again when its transaction met a conflict."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast, overload

import tenacity

from coordinator.callbacks import check_function
from coordinator.errors import TransactionConflict

TRIES = 20
LONGEST_PAUSE_S = 1.0

P = ParamSpec("P")
R = TypeVar("R")


@overload
def retry_on_conflict(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def retry_on_conflict(
    *, tries: int = TRIES, sleep: Callable[[float], object] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def retry_on_conflict(
    function: Callable[P, R] | None = None,
    /,
    *,
    tries: int = TRIES,
    sleep: Callable[[float], object] | None = None,
) -> Callable[P, R] | Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function that runs a whole transaction, its start included.

    Only a `TransactionConflict` is tried again, `tries` times in all, after a random
    pause that grows to a second. The last conflict is raised as it is. A coroutine
    function is awaited, and `sleep` is then one too.
    """
    retry = (
        tenacity.retry
        if sleep is None
        else functools.partial(tenacity.retry, sleep=sleep)
    )
    decorate = retry(
        retry=tenacity.retry_if_exception_type(TransactionConflict),
        stop=tenacity.stop_after_attempt(tries),
        wait=tenacity.wait_random_exponential(multiplier=0.005, max=LONGEST_PAUSE_S),
        reraise=True,
    )

    def again(function: Callable[P, R]) -> Callable[P, R]:
        check_function(function, may_await=True)
        retried = decorate(function)
        tries_anew: Callable[[], Any] = retried.retry.copy

        # Calls of what `decorate` returns share what they count: a thread that begins
        # one clears it under another that has a conflict. Here each call has its own.
        @functools.wraps(function)
        def called(*args: P.args, **options: P.kwargs) -> Any:
            return tries_anew()(function, *args, **options)

        @functools.wraps(function)
        async def awaited(*args: P.args, **options: P.kwargs) -> Any:
            return await tries_anew()(function, *args, **options)

        return cast(
            Callable[P, R], awaited if inspect.iscoroutinefunction(retried) else called
        )

    return again if function is None else again(function)
