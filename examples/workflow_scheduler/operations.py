"""What people do to workflows from the command line, each in one transaction."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

import attrs

import txaware
from examples.workflow_scheduler.definitions import Workflow
from examples.workflow_scheduler.runs import (
    CANCELLED,
    FAILED,
    LEFT_OUT,
    OBSOLETE,
    Run,
    Told,
    WorkflowState,
)
from examples.workflow_scheduler.store import Store
from examples.workflow_scheduler.triggers import (
    MANUAL,
    Cron,
    DefinitionError,
    Note,
    zone_of,
)
from examples.workflow_scheduler.worker import AWAY

T = TypeVar("T")

# A workflow whose scheduler begins just now is waited for.
KNOWN_TRIES_S = 10.0
# A call whose answer is lost is made again for so long.
TRIES_S = 30.0
LOOK_S = 0.2
MOST_BACKFILLED = 10_000
MOST_DIGITS = 10


class Refused(Exception):
    """What was asked for cannot be done; the text says why."""


class Opens(Protocol):
    """A place whose data can be opened."""

    def opened(self) -> AbstractContextManager[txaware.Messaging]:
        """Opens the data for a block."""


@attrs.frozen
class Operations:
    """The operations on the workflows of a place."""

    place: Opens

    def names(self) -> list[str]:
        """Returns the names of all workflows that are defined."""
        return sorted(
            one.name for one in self.states() if one.fingerprint or one.is_left_out
        )

    def states(self) -> list[WorkflowState]:
        """Returns what is known of all workflows."""
        return self._ask(lambda store: list(store.states()))

    def damaged(self) -> list[str]:
        """Returns which rows cannot be read, and why."""
        return self._ask(lambda store: [str(row) for row in store.damaged()])

    def runs(self, name: str, first: int = 1) -> list[Run]:
        """Returns the runs of a workflow from a number on, the oldest first."""

        def read(store: Store) -> list[Run]:
            if store.state(name) is None:
                raise Refused(_unknown(name))
            return list(store.runs(name, first))

        return self._ask(read)

    def workflow(self, name: str) -> tuple[WorkflowState, Workflow | None] | None:
        """Returns what is known of a workflow and its definition, or None."""

        def read(store: Store) -> tuple[WorkflowState, Workflow | None] | None:
            state = store.state(name)
            if state is None:
                return None
            if not state.fingerprint:
                return state, None
            try:
                return state, store.definition(name, state.fingerprint)
            except DefinitionError as error:
                return attrs.evolve(state, problem=f"{LEFT_OUT}{error}"), None

        return self._ask(read)

    def run(self, name: str) -> Run:
        """Returns a run by its id."""
        return self._ask(lambda store: _run(store, name))

    def definition(self, run: Run) -> Workflow | None:
        """Returns the definition that a run goes by, if it is kept."""
        try:
            return self._ask(
                lambda store: store.definition(run.workflow, run.fingerprint)
            )
        except DefinitionError:
            return None

    def logs(self, run: str) -> dict[str, str]:
        """Returns what the steps of a run said."""
        logs = self._ask(lambda store: store.logs(run))
        return {name: log.text for name, log in logs.items()}

    def trigger(
        self,
        name: str,
        *,
        event: str | None = None,
        parameters: dict[str, str] | None = None,
        once: str | None = None,
    ) -> str:
        """Triggers a workflow once, also where an answer is lost; returns its id.

        With `event` it is as if the event came for this workflow alone. With `once` a
        second call of that id does nothing.
        """
        known = self._wait_until_known(name)
        mark = once or uuid.uuid4().hex
        if event is None:
            kind, source = "run", MANUAL
        else:
            kind, source = "note", f"event {event}"
            events = sorted({leaf.source for leaf in known.leaves})
            if source not in events:
                waits = ", ".join(events) or "nothing"
                raise Refused(
                    f"workflow {name} does not wait for event {event}; it waits for "
                    f"{waits}"
                )
        if event is not None and parameters:
            raise Refused("parameters are given to a run by hand, without --event")

        def told(store: Store) -> Told | None:
            if not store.is_new(name, mark):
                return None
            note = Note(source, store.messaging.clock_ms(), id=mark)
            return Told(kind, name, note, parameters=parameters or {})

        self._tell(told)
        return mark

    def wait_for(self, name: str, mark: str, *, timeout_s: float) -> Run | None:
        """Waits until the run of a trigger is over; None if it is not in time."""
        until_s, first = time.monotonic() + timeout_s, 1
        while time.monotonic() < until_s:
            for run in self._ask(partial(_runs_from, name=name, first=first)):
                if any(note.id == mark for note in run.triggers):
                    if run.is_over:
                        return run
                    first = run.number
                    break
            time.sleep(LOOK_S)
        return None

    def pause(self, name: str) -> None:
        """Has no run of a workflow begin."""
        self._wait_until_known(name)
        self._tell(lambda _: Told("pause", name))

    def resume(self, name: str) -> None:
        """Has runs of a workflow begin again."""
        self._wait_until_known(name)
        self._tell(lambda _: Told("resume", name))

    def cancel(self, name: str) -> None:
        """Ends a run that is pending or goes on."""
        run = self.run(name)
        if run.is_over:
            raise Refused(f"run {name} is {run.state} already")
        self._tell(lambda _: Told("cancel", run.workflow, number=run.number))

    def backfill(
        self,
        name: str,
        begins: datetime,
        ends: datetime,
        *,
        again: bool = False,
        parameters: dict[str, str] | None = None,
    ) -> int:
        """Runs a workflow for its times from `begins` on and before `ends`.

        Times that have a good run, or one that is under way, are left out unless
        `again` is true. Returns how many runs there will be.
        """
        workflow = self._wait_until_known(name)
        times = times_within(workflow, begins, ends)
        if not again:
            bad = (FAILED, CANCELLED, OBSOLETE)
            done = {run.at_ms for run in self.runs(name) if run.state not in bad}
            times = [time_ms for time_ms in times if time_ms not in done]
        for start in range(0, len(times), 100):
            some = times[start : start + 100]
            told = Told("backfill", name, parameters=parameters or {}, times_ms=some)
            self._tell(partial(_always, told=told))
        return len(times)

    def _wait_until_known(self, name: str) -> Workflow:
        until_s = time.monotonic() + KNOWN_TRIES_S
        while True:
            found = self.workflow(name)
            if found is not None and found[1] is not None:
                return found[1]
            if found is not None and found[0].is_left_out:
                raise Refused(f"workflow {name} is {found[0].problem}")
            if time.monotonic() > until_s:
                raise Refused(_unknown(name))
            time.sleep(LOOK_S)

    def _tell(self, told: Callable[[Store], Told | None]) -> None:
        def tell(store: Store) -> None:
            with store.messaging.transaction():
                message = told(store)
                if message is not None:
                    store.tell(message)

        self._ask(txaware.retry_on_conflict(tell), tries_s=TRIES_S)

    def _ask(self, ask: Callable[[Store], T], *, tries_s: float = 5.0) -> T:
        until_s = time.monotonic() + tries_s
        while True:
            try:
                with self.place.opened() as messaging:
                    return ask(Store(messaging))
            except AWAY:
                if time.monotonic() > until_s:
                    raise
                time.sleep(LOOK_S)


def times_within(workflow: Workflow, begins: datetime, ends: datetime) -> list[int]:
    """Returns the times of a workflow from one moment on and before another, in ms."""
    if not workflow.clocks:
        raise Refused(f"workflow {workflow.name} has no schedule by time")
    found: set[int] = set()
    for clock in workflow.clocks:
        zone = zone_of(clock.zone if isinstance(clock, Cron) else "UTC")
        from_ms, until_ms = (
            int(_aware(moment, zone).timestamp() * 1000) for moment in (begins, ends)
        )
        for time_ms in clock.times(from_ms - 1, began_ms=0):
            if time_ms >= until_ms:
                break
            if time_ms >= from_ms:
                found.add(time_ms)
            if len(found) > MOST_BACKFILLED:
                raise Refused(f"there are more than {MOST_BACKFILLED} times in between")
    return sorted(found)


def plain_run(run: Run) -> dict[str, Any]:
    """Returns a run as JSON tells it."""
    return attrs.asdict(run)


def _runs_from(store: Store, name: str, first: int) -> list[Run]:
    return list(store.runs(name, first))


def _always(store: Store, told: Told) -> Told:
    return told


def _aware(moment: datetime, zone: Any) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


def _run(store: Store, name: str) -> Run:
    workflow, _, number = name.rpartition("-")
    is_number = number.isdecimal() and len(number) <= MOST_DIGITS
    run = store.run(workflow, int(number)) if is_number else None
    if run is None:
        raise Refused(f"no run is called {name}")
    return run


def _unknown(name: str) -> str:
    return (
        f"no workflow is called {name}; `list` names those that a scheduler was "
        f"started with"
    )


def lines_of(text: str) -> Iterator[str]:
    """Yields lines, indented for a terminal."""
    for line in text.splitlines():
        yield f"    {line}"
