"""Turns of workflows of the example: histories, and days with a moved clock."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from examples.workflow_scheduler.definitions import read_workflow
from examples.workflow_scheduler.runs import Run, StepItem, Told, WorkflowState
from examples.workflow_scheduler.triggers import Note
from examples.workflow_scheduler.turn import MOST_MISSED, Turn

BEGIN_MS = 1_700_000_000_000
STEPS = {
    "a": {"command": ["true"], "retries": 1},
    "b": {"command": ["true"], "after": ["a"]},
    "c": {"command": ["true"], "after": ["a"]},
    "d": {"command": ["true"], "after": ["b", "c"]},
}


class Desk:
    """One workflow without any store, and the steps that are handed out."""

    def __init__(self, told: Mapping[str, Any], now_ms: int = BEGIN_MS) -> None:
        self.now_ms = now_ms
        self.state: WorkflowState | None = None
        self.runs: dict[int, Run] = {}
        self.items: list[StepItem] = []
        self._workflow = read_workflow("w", told)
        self.turn(Told("deploy", "w", fingerprint=self._workflow.fingerprint))

    def turn(self, *messages: Told) -> WorkflowState:
        turn = Turn(
            "w",
            self.state,
            definition=lambda _: self._workflow,
            load=lambda _, number: self.runs[number],
            now_ms=self.now_ms,
        )
        for told in messages:
            turn.take(told)
        turn.look()
        assert turn.state is not None
        self.state = turn.state
        self.runs |= turn.runs
        self.items += [item for item, _ in turn.items]
        return turn.state

    def end(self, item: StepItem, state: str) -> None:
        self.turn(
            Told(
                "ended",
                "w",
                number=item.number,
                step=item.step,
                attempt=item.attempt,
                state=state,
            )
        )

    def finish(self) -> None:
        """Has all that is handed out succeed, until nothing is."""
        self.turn(Told("resume", "w"))
        while self.items:
            self.end(self.items.pop(0), "succeeded")


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("note"), st.just(0)),
        st.tuples(st.sampled_from(["pause", "resume"]), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(1, 8)),
        st.tuples(st.sampled_from(["succeeded", "failed", "dead"]), st.integers(0, 9)),
        st.tuples(st.just("twice"), st.integers(0, 9)),
    ),
    max_size=60,
)


@given(ACTS, st.integers(0, 3), st.integers(1, 3), st.booleans())
def test_whatever_happens_each_note_is_in_one_run_and_each_run_ends(
    acts: list[tuple[str, int]], concurrency: int, count: int, collect: bool
) -> None:
    on = {"event": "e", "count": count}
    options = {"concurrency": concurrency, "collect": collect}
    desk = Desk({"on": on, "steps": STEPS, **options})
    noted, done = 0, set[tuple[int, str]]()
    for act, number in acts:
        desk.now_ms += 1000
        if act == "note":
            note = Note("event e", desk.now_ms, id=str(noted))
            desk.turn(Told("note", "w", note))
            noted += 1
        elif act in ("pause", "resume", "cancel"):
            desk.turn(Told(act, "w", number=number))
        elif desk.items:
            item = desk.items.pop(number % len(desk.items))
            if act == "twice":
                desk.end(item, "succeeded")
                done.add((item.number, item.step))
            desk.end(item, "failed" if act == "twice" else act)
        state = desk.turn()
        going = [run for run in desk.runs.values() if run.state == "running"]
        assert {run.number for run in going} == {one.number for one in state.running}
        assert not concurrency or len(going) <= concurrency
        handed = [(item.number, item.step, item.attempt) for item in desk.items]
        assert len(set(handed)) == len(handed)
        for number, step in done:
            assert desk.runs[number].steps[step].state == "succeeded"
    desk.finish()
    assert all(run.is_over for run in desk.runs.values())
    triggers = [note.id for run in desk.runs.values() for note in run.triggers]
    left = [note.id for note in desk.turn().notes]
    assert sorted(triggers + left, key=int) == [str(each) for each in range(noted)]
    assert len(left) < count
    for run in desk.runs.values():
        wanted = (
            len(run.triggers) % count == 0 if collect else len(run.triggers) == count
        )
        assert wanted, run
        if run.state == "succeeded":
            assert {step.state for step in run.steps.values()} == {"succeeded"}


@pytest.mark.parametrize(
    ("begins", "expression"),
    [
        ("2026-03-05", "30 2 * * *"),
        ("2026-03-05", "0,30 * * * *"),
        ("2026-10-01", "30 2 * * *"),
        ("2026-10-01", "*/30 2 * * *"),
        ("2028-02-05", "0 12 29 2 *"),
        ("2028-02-05", "0 0 * * *"),
    ],
)
@pytest.mark.parametrize("catch_up", ["all", "last"])
def test_fifty_days_with_a_moved_clock_have_the_runs_of_the_cron_library(
    begins: str, expression: str, catch_up: str
) -> None:
    """The scheduler sleeps up to two days, and its clock is set back up to an hour."""
    zone, choice = ZoneInfo("Europe/Berlin"), Random(50)
    first = datetime.fromisoformat(begins).replace(tzinfo=zone)
    last = (first.astimezone(UTC) + timedelta(days=50)).astimezone(zone)
    now, latest = first.astimezone(UTC), first.astimezone(UTC)
    on = {"cron": expression, "zone": "Europe/Berlin"}
    steps = {"only": {"command": ["true"]}}
    desk = Desk(
        {"on": on, "steps": steps, "catch_up": catch_up},
        int(first.timestamp() * 1000),
    )
    library = {time.astimezone(UTC) for time in until(CronSim(expression, first), last)}
    wanted: set[datetime] = set()
    while latest < last:
        hours = choice.choice([0.2, 0.5, 1, 7, 48])
        if choice.random() < 0.2:
            now -= timedelta(minutes=choice.randint(1, 60))
        else:
            now = min(last.astimezone(UTC), now + timedelta(hours=hours))
        missed = {time for time in library if latest < time <= now}
        wanted |= missed if catch_up == "all" else {max(missed)} if missed else set()
        latest = max(latest, now)
        desk.now_ms = int(now.timestamp() * 1000)
        state = desk.turn()
        while state.wake_ms and state.wake_ms <= desk.now_ms:
            state = desk.turn()
        desk.finish()
    times = [
        datetime.fromtimestamp(run.at_ms / 1000, UTC) for run in desk.runs.values()
    ]
    assert times == sorted(wanted)
    assert {run.state for run in desk.runs.values()} <= {"succeeded"}


@pytest.mark.parametrize("on", [{"cron": "* * * * * *"}, {"every": "0.1s"}])
@pytest.mark.parametrize("catch_up", ["all", "last", "none"])
def test_a_clock_that_jumps_by_years_counts_no_seconds_of_them(
    on: dict[str, str], catch_up: str
) -> None:
    """Where all of them are counted, this does not end."""
    steps = {"only": {"command": ["true"]}}
    desk = Desk({"on": on, "steps": steps, "catch_up": catch_up})
    desk.now_ms += 20 * 365 * 86_400_000
    state = desk.turn()
    while state.wake_ms and state.wake_ms <= desk.now_ms:
        state = desk.turn()
    times_ms = [run.at_ms for run in desk.runs.values()]
    assert len(times_ms) == (MOST_MISSED if catch_up == "all" else 1)
    assert times_ms == sorted(set(times_ms))
    assert times_ms[-1] == desk.now_ms
    problem = f"times before the last {MOST_MISSED} were not caught up"
    assert state.problem == (problem if catch_up == "all" else "")
    desk.now_ms -= 20 * 365 * 86_400_000  # and back: it was wrong
    assert "the clock was" in desk.turn().problem
    desk.now_ms += 1000
    desk.turn()
    assert max(run.at_ms for run in list(desk.runs.values())[-1:]) == desk.now_ms


def test_a_workflow_that_is_removed_lets_its_run_end() -> None:
    desk = Desk({"on": {"event": "e"}, "steps": STEPS, "concurrency": 1})
    for mark in ("1", "2"):
        desk.turn(Told("note", "w", Note("event e", desk.now_ms, id=mark)))
    desk.turn(Told("remove", "w"))
    assert [run.state for run in desk.runs.values()] == ["running", "obsolete"]
    desk.turn(Told("note", "w", Note("event e", desk.now_ms, id="3")))
    desk.finish()
    assert [run.state for run in desk.runs.values()] == ["succeeded", "obsolete"]
    assert not desk.turn().running


def test_a_cancel_that_comes_behind_the_end_changes_nothing() -> None:
    desk = Desk({"steps": STEPS})
    desk.turn(Told("run", "w"))
    desk.finish()
    before = desk.runs[1]
    desk.turn(Told("cancel", "w", number=1), Told("cancel", "w", number=2))
    assert desk.runs == {1: before}
    assert before.state == "succeeded"


def test_a_cancel_in_the_turn_of_the_last_end_is_behind_it_or_before() -> None:
    for order in (1, -1):
        desk = Desk({"steps": {"a": {"command": ["true"]}}})
        desk.turn(Told("run", "w"))
        (item,) = desk.items
        ended = Told("ended", "w", number=1, step="a", attempt=1, state="succeeded")
        desk.turn(*[ended, Told("cancel", "w", number=item.number)][::order])
        assert desk.runs[1].state == ("succeeded" if order == 1 else "cancelled")
        assert not desk.turn().running


def until(times: CronSim, last: datetime) -> list[datetime]:
    found = []
    for time in times:
        if time > last:
            break
        found.append(time)
    return found
