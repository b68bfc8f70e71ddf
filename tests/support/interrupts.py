"""Interrupts, as by Ctrl-C: after a while, at a place, and wherever a call waits."""

import gc
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

SOON_S = 0.1
FIRST_S, LATER = 0.0012, 1.1
AGAIN_S = 60
PATIENCE_S = 20  # less than the 30 after which a drain looks again by itself
OURS = (
    *("/txaware/", "/coordinator/", "threading.py", "contextlib.py"),
    "futures/_base.py",
)


class Interrupted(BaseException):
    """What a signal's handler raises in the main thread."""


def interrupted_after(seconds: float, call: Callable[[], object]) -> bool:
    """Makes a call, and interrupts it once, wherever it is by then.

    Answers whether that came before its end.
    """
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted:
        return True
    return False


class Moments:
    """Moments to interrupt calls of one kind at: about half come before their end.

    What a call takes is learned from what became of those before, on any machine.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._latest_s = chance, FIRST_S

    def interrupt(self, call: Callable[[], object]) -> None:
        """Makes a call, and interrupts it at one of them."""
        early = interrupted_after(self._chance.uniform(1e-5, self._latest_s), call)
        self._latest_s *= LATER if early else 1 / LATER


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Has an alarm raise `Interrupted` in the main thread."""

    def handler(signal_number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def interrupted_at(place: int, call: Callable[[], object]) -> bool:
    """Interrupts a call at a place, and answers whether it had so many."""
    left = [place]

    def profile(frame: Any, event: str, _: object) -> None:
        if event in ("call", "c_return") and any(
            part in frame.f_code.co_filename for part in OURS
        ):
            left[0] -= 1
            if left[0] == 0:
                sys.setprofile(None)
                raise Interrupted

    gc.disable()  # a finalizer of what other tests left would take the interrupt
    sys.setprofile(profile)
    try:
        call()
    except Interrupted:
        pass
    finally:
        sys.setprofile(None)
        gc.enable()
    return left[0] <= 0


def elsewhere(call: Callable[[], Any]) -> Any:
    """What another thread gets, which must not wait."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "another thread hangs"
    return answers[0]


def places(
    make: Callable[[int], bool], every: Callable[[int], Iterator[int]] = count
) -> int:
    """Has a call interrupted at each of its places, or at those that `every` numbers.

    Answers how many there are.
    """
    return next(place for place in every(1) if not make(place))


def interrupted(call: Callable[[], object]) -> None:
    """Makes a call that waits, and interrupts it; later again, where it still waits."""

    def waits() -> None:
        with pytest.raises(Interrupted):
            call()

    again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGALRM))
    again.start()
    try:
        interrupted_after(SOON_S, waits)
    finally:
        again.cancel()
