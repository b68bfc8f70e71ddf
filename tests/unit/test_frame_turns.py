"""Connections that send very much take turns, and leave time for others."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from txaware.server.frame_connection import BUSY_S, REST_S, FrameTurns


@attrs.define
class Loop:
    """An event loop whose clock is set by what takes a turn."""

    now_s: float = 100.0
    due: list[tuple[float, Callable[[], object]]] = attrs.field(factory=list)

    def time(self) -> float:
        return self.now_s

    def call_soon(self, call: Callable[[], object]) -> None:
        self.call_later(0, call)

    def call_later(self, delay_s: float, call: Callable[[], object]) -> None:
        self.due.append((delay_s, call))

    def turns(self) -> list[float]:
        """Takes turns until none is left; returns how long each was waited for."""
        delays = []
        while self.due:
            delay_s, call = self.due.pop(0)
            delays.append(delay_s)
            call()
        return delays


@attrs.define
class Line:
    """A connection that has so many turns left, each of which takes so long."""

    loop: Any
    left: int
    turn_s: float

    def take_turn(self) -> bool:
        self.left -= 1
        self.loop.now_s += self.turn_s
        return self.left > 0


@pytest.mark.parametrize(
    ("turn_s", "rests"), [(BUSY_S / 100, []), (BUSY_S * 0.4, [REST_S] * 5)]
)
def test_a_row_that_does_not_end_leaves_time_to_others(
    turn_s: float, rests: list[float]
) -> None:
    loop, turns = Loop(), FrameTurns()
    for left in (3, 5):
        line: Any = Line(loop, left, turn_s)
        turns.wait(line)
    at_once = 8 - len(rests)
    assert loop.turns() == [0] * at_once + rests
    line = Line(loop, 2, turn_s)
    turns.wait(line)  # a row that begins anew
    assert loop.turns() == [0, 0]
