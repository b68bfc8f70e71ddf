"""Keeps the plans of clean-ups whose pieces other processes ask for, one by one."""

import secrets
import threading

import attrs

from coordinator.transaction import ClockMs, elapsed_of
from txaware.errors import BadRequest, PlanForgotten
from txaware.model.reports import CleanUp, OpenPlan
from txaware.model.requests import checked_piece, checked_pieces, checked_plan
from txaware.service.retention.clean_up import Retention
from txaware.service.retention.clean_up_plan import PieceResult, Plan

MOST_PLANS = 8
FORGOTTEN_AFTER_MS = 3_600_000


@attrs.define(eq=False)
class _Open:
    """A plan with the time of its last use and the results of its pieces."""

    plan: Plan
    used_ms: int
    results: dict[int, PieceResult] = attrs.field(factory=dict)
    turns: dict[int, threading.Lock] = attrs.field(factory=dict)


class OpenPlans:
    """The open plans; callers name a plan's id and a piece's number, nothing else.

    So nobody can have rows removed that were not planned here, and a piece counts as
    done only when it was done here. A plan that nobody uses for an hour is forgotten.
    When there are too many, the least recently used one is forgotten.
    """

    def __init__(self, retention: Retention, clock_ms: ClockMs) -> None:
        self._retention = retention
        self._elapsed_ms = elapsed_of(clock_ms)
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}

    def plan(self, pieces: int) -> OpenPlan:
        """Plans a clean-up: at most so many pieces of each topic for each rule."""
        plan = self._retention.plan(pieces=checked_pieces(pieces))
        name = secrets.token_hex(16)
        with self._lock:
            self._forget_old()
            while len(self._open) >= MOST_PLANS:
                del self._open[min(self._open, key=lambda one: self._open[one].used_ms)]
            self._open[name] = _Open(plan, self._elapsed_ms())
        return OpenPlan(name, len(plan.topics), len(plan.pieces))

    def clean_piece(self, name: str, number: int) -> int:
        """Does a piece, and returns how many rows it removed or marked.

        For a piece that was done before, it returns the same and does nothing. It waits
        for a piece that is under way.
        """
        opened = self._used(name)
        plan, results = opened.plan, opened.results
        if not 0 <= checked_piece(number) < len(plan.pieces):
            raise BadRequest(f"the plan has {len(plan.pieces)} pieces, from 0 on")
        with opened.turns.setdefault(number, threading.Lock()):
            if number not in results:
                piece = plan.pieces[number]
                results[number] = self._retention.clean_piece(plan, piece)
        opened.used_ms = self._elapsed_ms()
        return results[number].rows

    def finish(self, name: str) -> CleanUp:
        """Ends a plan with the pieces that were done."""
        self._used(name)
        with self._lock:
            opened = self._open.pop(name, None)
        if opened is None:
            raise _forgotten(name)
        return self._retention.finish(opened.plan, dict(opened.results))

    def _used(self, name: str) -> _Open:
        with self._lock:
            self._forget_old()
            opened = self._open.get(checked_plan(name))
            if opened is None:
                raise _forgotten(name)
            opened.used_ms = self._elapsed_ms()
            return opened

    def _forget_old(self) -> None:
        oldest_ms = self._elapsed_ms() - FORGOTTEN_AFTER_MS
        for name in [n for n, one in self._open.items() if one.used_ms < oldest_ms]:
            del self._open[name]


def _forgotten(name: str) -> PlanForgotten:
    return PlanForgotten(
        f"there is no open plan {name!r:.100} of a clean-up: it is finished, or nobody "
        f"used it for an hour, or {MOST_PLANS} others were made, or the server was "
        f"started again; make a new one"
    )
