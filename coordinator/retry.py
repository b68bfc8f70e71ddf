"""Runs a function again when its transaction met a conflict."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar, overload

import tenacity

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
    again = retry(
        retry=tenacity.retry_if_exception_type(TransactionConflict),
        stop=tenacity.stop_after_attempt(tries),
        wait=tenacity.wait_random_exponential(multiplier=0.005, max=LONGEST_PAUSE_S),
        reraise=True,
    )
    return again if function is None else again(function)
