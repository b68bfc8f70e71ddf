"""Runs calls at once, in the background or in a loop, and waits for what they do."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial, wraps
from typing import Any, TypeVar

PATIENCE_S = 60

Test = Callable[..., Coroutine[Any, Any, None]]
Found = TypeVar("Found")


def until(look: Callable[[], Found], *, timeout_s: float = PATIENCE_S) -> Found:
    """Looks until there is something, or the time is over; returns the last answer."""
    end_s = time.monotonic() + timeout_s
    while not (found := look()) and time.monotonic() <= end_s:
        time.sleep(0.01)
    return found


def at_once(*calls: Callable[[], object], patience_s: float = 30) -> list[object]:
    """Runs the calls in threads that begin together; an error is its answer."""
    answers: list[object] = [None] * len(calls)
    ready = threading.Barrier(len(calls))

    def run(place: int, call: Callable[[], object]) -> None:
        ready.wait(60)
        try:
            answers[place] = call()
        except Exception as error:
            answers[place] = error

    threads = [
        threading.Thread(target=run, args=(place, call))
        for place, call in enumerate(calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience_s)
        assert not thread.is_alive(), "a call hangs"
    return answers


def in_threads(call: Callable[[Any], object], each: Iterable[Any]) -> None:
    """Makes the call for each in a thread of its own, all at once; raises an error."""
    for answer in at_once(*(partial(call, one) for one in each), patience_s=600):
        if isinstance(answer, Exception):
            raise answer


def in_background(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def in_loop(test: Test) -> Callable[..., None]:
    """Runs a coroutine function in a loop of its own."""

    @wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **fixtures), 2 * PATIENCE_S))

    return run
