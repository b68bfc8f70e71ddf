"""Only conflicts are tried again, a bounded number of times."""

import asyncio
import sys
import threading
from types import FrameType
from typing import Any

import pytest

from coordinator.errors import TransactionConflict, TransactionNotInProgress
from coordinator.retry import LONGEST_PAUSE_S, TRIES, retry_on_conflict


class Tries:
    """Fails with the given errors, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.count = 0

    def __call__(self, answer: int = 7) -> int:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return answer


def test_a_conflict_is_tried_again_after_growing_random_pauses() -> None:
    pauses: list[float] = []
    tries = Tries(*[TransactionConflict("k")] * (TRIES - 1))
    assert retry_on_conflict(sleep=pauses.append)(tries)(answer=8) == 8
    assert tries.count == TRIES
    assert len(set(pauses)) > 10
    assert all(0 <= pause <= LONGEST_PAUSE_S for pause in pauses)


def test_the_last_conflict_is_raised_as_it_is() -> None:
    last = TransactionConflict("last")
    tries = Tries(TransactionConflict("first"), TransactionConflict("second"), last)
    with pytest.raises(TransactionConflict) as caught:
        retry_on_conflict(tries=3, sleep=lambda _: None)(tries)()
    assert caught.value is last
    assert tries.count == 3


@pytest.mark.parametrize("error", [TransactionNotInProgress("t"), ValueError("v")])
def test_nothing_else_is_tried_again(error: Exception) -> None:
    tries = Tries(error)
    with pytest.raises(type(error)):
        retry_on_conflict(tries)()
    assert tries.count == 1


def test_it_decorates_functions_and_coroutine_functions_alike() -> None:
    calls: list[str] = []

    @retry_on_conflict
    def transfer(name: str) -> str:
        """Moves money."""
        calls.append(name)
        if len(calls) == 1:
            raise TransactionConflict("k")
        return name

    @retry_on_conflict
    async def transfer_later(name: str) -> str:
        calls.append(name)
        if len(calls) == 3:
            raise TransactionConflict("k")
        return name

    assert transfer("ann") == "ann"
    assert transfer.__doc__ == "Moves money."
    assert asyncio.run(transfer_later("bob")) == "bob"
    assert calls == ["ann", "ann", "bob", "bob"]


def test_threads_that_call_one_function_disturb_no_retry_of_each_other() -> None:
    """One has a conflict just as a call of another one begins."""
    is_beginning, has_retried = threading.Event(), threading.Event()
    first, answers = threading.Event(), list[str]()

    @retry_on_conflict(sleep=lambda _: None)
    def transfer(who: str) -> str:
        if who == "ann" and not first.is_set():
            first.set()
            assert is_beginning.wait(60)
            raise TransactionConflict("k")
        return who

    def pause(frame: FrameType, event: str, called: Any) -> None:
        """Stops where a call has forgotten what a call before counted."""
        if event == "c_return" and called.__name__ == "clear":
            sys.setprofile(None)
            is_beginning.set()
            assert has_retried.wait(60)

    def begin() -> None:
        assert first.wait(60)
        sys.setprofile(pause)
        try:
            answers.append(transfer("bob"))
        finally:
            sys.setprofile(None)

    other = threading.Thread(target=begin)
    other.start()
    try:
        assert transfer("ann") == "ann"
    finally:
        has_retried.set()
        other.join()
    assert answers == ["bob"]
