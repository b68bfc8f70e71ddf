"""One turn of a workflow: what messages and the time make of its state, and no I/O."""

import json
from collections.abc import Callable
from itertools import takewhile
from typing import Any

import attrs

from examples.workflow_scheduler.definitions import Workflow
from examples.workflow_scheduler.runs import (
    CANCELLED,
    FAILED,
    OBSOLETE,
    PENDING_CONSTRAINT,
    PENDING_LAUNCH,
    QUEUED,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    WAITING,
    Launched,
    Pending,
    Run,
    StepItem,
    StepRun,
    Told,
    WorkflowState,
)
from examples.workflow_scheduler.triggers import (
    BACKFILL,
    MANUAL,
    MOST_NOTES,
    Cron,
    Every,
    Note,
    without,
)

# A turn makes and launches so many runs at most; the rest has another turn.
MOST_AT_ONCE = 100
# Times that were missed beyond these are not caught up.
MOST_MISSED = 1000
# A run that collects keeps so many triggers, and counts the others.
MOST_KEPT = 1000
# What the steps of a run return is handed to each later one.
MOST_TOKEN_BYTES = 1024 * 1024
# A clock that is set back further than this was wrong before.
MOST_BACK_MS = 26 * 3_600_000
FIRST_BACK_MS = 600_000


class Turn:
    """The owner of a workflow's state during one transaction.

    `take` is called with each message and then `look` once. After that `state`, `runs`
    (those that changed), `items` (steps to be handed out, with their delays) and `told`
    (runs whose state changed) are what the transaction has to write.
    """

    def __init__(
        self,
        name: str,
        state: WorkflowState | None,
        *,
        definition: Callable[[str], Workflow],
        load: Callable[[str, int], Run],
        now_ms: int,
    ) -> None:
        self.name = name
        self.state = state
        self.runs: dict[int, Run] = {}
        self.items: list[tuple[StepItem, float]] = []
        self.told: list[Run] = []
        self._definition = definition
        self._load = load
        self._now_ms = now_ms
        self._made = 0

    def take(self, told: Told) -> None:
        """Takes one message; what is no longer true has no effect."""
        if told.kind == "deploy":
            self._deploy(told)
        elif self.state is not None:
            handle: Callable[[Told], None] | None = {
                "note": self._note,
                "run": self._run_by_hand,
                "backfill": self._backfill,
                "ended": self._step_ended,
                "pause": self._pause,
                "resume": self._resume,
                "cancel": self._cancel,
                "remove": self._remove,
                "problem": self._problem,
            }.get(told.kind)
            if handle is not None:
                handle(told)

    def look(self) -> None:
        """Does what the time and the state ask for now."""
        if self.state is None:
            return
        self._time_out_running()
        if not self._known.is_enabled:
            self._make_obsolete("the schedule is disabled")
            self._set(notes=[])
        else:
            self._note_times()
            self._match()
            self._time_out_pending()
            self._launch()
        self._set(wake_ms=self._next_look_ms())

    # Messages

    def _deploy(self, told: Told) -> None:
        """Adopts a definition; a pending job of another schedule is obsolete."""
        new = self._definition(told.fingerprint)
        state = self.state
        if state is None:
            self.state = WorkflowState(
                self.name,
                told.group,
                new.fingerprint,
                new.schedule_fingerprint,
                began_ms=self._now_ms,
                looked_ms=self._now_ms,
            )
        elif new.version < state.version:
            return
        elif new.schedule_fingerprint != state.schedule_fingerprint:
            self._make_obsolete("the schedule has changed")
            self._set(notes=[], began_ms=self._now_ms, looked_ms=self._now_ms)
        self._set(
            fingerprint=new.fingerprint,
            schedule_fingerprint=new.schedule_fingerprint,
            group=told.group,
            version=new.version,
            is_enabled=new.enabled,
            problem="",
        )

    def _remove(self, told: Told) -> None:
        self._set(is_enabled=False, fingerprint="", schedule_fingerprint="", version=0)

    def _note(self, told: Told) -> None:
        sources = {leaf.source for leaf in self._current.leaves}
        if told.note is not None and told.note.source in sources:
            notes = [*self._known.notes, told.note]
            self._set(notes=notes[-2 * MOST_NOTES :])
            if len(notes) > 2 * MOST_NOTES:
                self._set(problem="what it waits for does not come: notes are dropped")

    def _run_by_hand(self, told: Told) -> None:
        if self._known.fingerprint:
            note = told.note or Note(MANUAL, self._now_ms)
            self._create([note], MANUAL, parameters=told.parameters)

    def _backfill(self, told: Told) -> None:
        if self._known.fingerprint:
            for at_ms in told.times_ms:
                note = Note(BACKFILL, self._now_ms, value=str(at_ms), id=str(at_ms))
                self._create([note], BACKFILL, parameters=told.parameters, at_ms=at_ms)

    def _pause(self, told: Told) -> None:
        self._set(is_paused=True)

    def _resume(self, told: Told) -> None:
        self._set(is_paused=False)

    def _problem(self, told: Told) -> None:
        self._set(problem=told.error)

    def _cancel(self, told: Told) -> None:
        run = self._run(told.number)
        if run is None or run.is_over:
            return
        pending = [one for one in self._known.pending if one.number != run.number]
        self._set(pending=pending)
        self._end(self._stopped(run), CANCELLED, told.error or "cancelled by hand")

    def _step_ended(self, told: Told) -> None:
        run = self._run(told.number)
        step = None if run is None else run.steps.get(told.step)
        if run is None or step is None or step.attempt != told.attempt:
            return
        if step.state not in (QUEUED, CANCELLED):
            return
        ended = attrs.evolve(
            step,
            state=told.state,
            started_ms=told.started_ms,
            ended_ms=told.ended_ms or self._now_ms,
            worker=told.worker,
            error=told.error,
        )
        if run.is_over:
            self._put(attrs.evolve(run, steps={**run.steps, told.step: ended}))
            return
        defined = self._definition(run.fingerprint).steps[told.step]
        token = {**run.token, told.step: told.result}
        if told.state == SUCCEEDED and len(json.dumps(token)) > MOST_TOKEN_BYTES:
            error = f"the steps return more than {MOST_TOKEN_BYTES} bytes in all"
            ended = attrs.evolve(ended, state=FAILED, error=error)
        elif told.state == SUCCEEDED:
            run = attrs.evolve(run, token=token)
        elif told.state == FAILED and told.attempt <= defined.retries:
            if not any(one.state == FAILED for one in run.steps.values()):
                ended = attrs.evolve(ended, state=QUEUED, attempt=told.attempt + 1)
                pause_s = defined.pause_s(told.attempt)
                self._push(run, told.step, ended.attempt, pause_s)
        elif told.state != FAILED:  # it killed its workers
            ended = attrs.evolve(ended, state=FAILED)
        self._advance(attrs.evolve(run, steps={**run.steps, told.step: ended}))

    # Time and state

    def _note_times(self) -> None:
        """Notes the times since the last look, those missed as the definition says."""
        state, clocks = self._known, self._current.clocks
        if not clocks or state.is_paused:
            return
        if state.looked_ms > self._now_ms + MOST_BACK_MS:
            back_s = (state.looked_ms - self._now_ms) // 1000
            problem = f"the clock was {back_s} s ahead; times are counted anew"
            self._set(looked_ms=self._now_ms, problem=problem)
            return
        notes: list[Note] = []
        looked_ms = state.looked_ms
        for clock in clocks:
            times_ms = self._missed(clock)
            looked_ms = max([looked_ms, *times_ms])
            missed = [Note(clock.source, time, id=str(time)) for time in times_ms]
            notes += self._caught_up(missed)
        notes.sort(key=lambda note: note.time_ms)
        self._set(notes=[*state.notes, *notes], looked_ms=looked_ms)

    def _missed(self, clock: Cron | Every) -> list[int]:
        """Returns the times since the last look, of very many the last ones.

        It looks back further and further, as a clock that was far behind would have it
        count the seconds of years.
        """
        looked_ms, back_ms = self._known.looked_ms, FIRST_BACK_MS
        while True:
            after_ms = max(looked_ms, self._now_ms - back_ms)
            times = clock.times(after_ms, began_ms=self._known.began_ms)
            found = list(takewhile(lambda time: time <= self._now_ms, times))
            if after_ms == looked_ms or len(found) > MOST_MISSED:
                return found[-MOST_MISSED - 1 :]
            back_ms *= 4

    def _caught_up(self, missed: list[Note]) -> list[Note]:
        """Returns the times that lead to runs; the newest is none that was missed."""
        if self._current.catch_up == "all":
            if len(missed) > MOST_MISSED:
                gone = f"times before the last {MOST_MISSED} were not caught up"
                self._set(problem=gone)
            return missed[-MOST_MISSED:]
        last = missed[-1:]
        if self._current.catch_up == "none" and last:
            # What is later than a minute was missed.
            return [one for one in last if self._now_ms - one.time_ms < 60_000]
        return last

    def _match(self) -> None:
        """Makes jobs of notes that suffice; what a job has is used up."""
        trigger = self._current.trigger
        while trigger is not None and self._made < MOST_AT_ONCE:
            chosen = trigger.chosen(self._known.notes)
            if chosen is None:
                return
            self._set(notes=without(self._known.notes, chosen))
            if self._current.collect and self._collect(chosen):
                continue
            clocks = {clock.source for clock in self._current.clocks}
            times = [note.time_ms for note in chosen if note.source in clocks]
            self._create(chosen, "trigger", at_ms=max(times, default=0))

    def _collect(self, chosen: list[Note]) -> bool:
        """Adds notes to a job that waits for its launch; False if there is none."""
        for pending in self._known.pending:
            if pending.collects:
                run = self._loaded(pending.number)
                kept = chosen[: max(0, MOST_KEPT - len(run.triggers))]
                more = run.more_triggers + len(chosen) - len(kept)
                triggers = [*run.triggers, *kept]
                self._put(attrs.evolve(run, triggers=triggers, more_triggers=more))
                return True
        return False

    def _create(
        self,
        notes: list[Note],
        cause: str,
        *,
        parameters: dict[str, str] | None = None,
        at_ms: int = 0,
    ) -> None:
        number = self._known.last_number + 1
        run = Run(
            f"{self.name}-{number}",
            self.name,
            number,
            PENDING_CONSTRAINT,
            cause,
            self._known.fingerprint,
            self._now_ms,
            triggers=notes,
            parameters={**self._current.parameters, **(parameters or {})},
            at_ms=at_ms,
        )
        collects = self._current.collect and cause == "trigger"
        pending = Pending(number, self._now_ms, collects)
        self._set(last_number=number, pending=[*self._known.pending, pending])
        self._put(run)
        self._made += 1

    def _make_obsolete(self, reason: str, *, before_ms: int | None = None) -> None:
        left: list[Pending] = []
        for pending in self._known.pending:
            if before_ms is not None and pending.created_ms > before_ms:
                left.append(pending)
            else:
                self._end(self._loaded(pending.number), OBSOLETE, reason)
        self._set(pending=left)

    def _time_out_pending(self) -> None:
        limit_s = self._current.pending_timeout_s
        if limit_s:
            before_ms = self._now_ms - int(limit_s * 1000)
            reason = f"it was not launched within {limit_s:g} s"
            self._make_obsolete(reason, before_ms=before_ms)

    def _launch(self) -> None:
        """Launches what the constraints allow, the oldest first."""
        launched = 0
        while self._known.pending and launched < MOST_AT_ONCE:
            if self._holds_from_ms() != self._now_ms:
                return
            first, *rest = self._known.pending
            run = attrs.evolve(
                self._loaded(first.number),
                state=PENDING_LAUNCH,
                pending_launch_ms=self._now_ms,
            )
            self._set(pending=rest)
            self._begin(run)
            launched += 1

    def _begin(self, run: Run) -> None:
        current = self._current
        limit_ms = int(current.timeout_s * 1000)
        deadline_ms = self._now_ms + limit_ms if limit_ms else 0
        going = [*self._known.running, Launched(run.number, deadline_ms)]
        self._set(running=going, last_launch_ms=self._now_ms)
        run = attrs.evolve(
            run,
            state=RUNNING,
            launched_ms=self._now_ms,
            fingerprint=current.fingerprint,
            steps=dict.fromkeys(current.steps, StepRun()),
        )
        self.told.append(run)
        self._advance(run)

    def _advance(self, run: Run) -> None:
        """Hands out the steps that are ready, or ends the run."""
        defined = self._definition(run.fingerprint).steps
        steps = dict(run.steps)
        failed = [name for name, step in steps.items() if step.state == FAILED]
        for name, step in run.steps.items():
            if step.state != WAITING:
                continue
            if failed:
                steps[name] = StepRun(SKIPPED)
            elif all(steps[one].state == SUCCEEDED for one in defined[name].after):
                steps[name] = StepRun(QUEUED, attempt=1)
                self._push(run, name, 1, 0)
        run = attrs.evolve(run, steps=steps)
        if any(step.state in (QUEUED, WAITING) for step in steps.values()):
            self._put(run)
        elif failed:
            first = steps[failed[0]]
            self._end(run, FAILED, f"step {failed[0]}: {first.error}")
        else:
            self._end(run, SUCCEEDED, "")

    def _push(self, run: Run, step: str, attempt: int, pause_s: float) -> None:
        item = StepItem(
            run.run,
            self.name,
            run.number,
            step,
            attempt,
            run.fingerprint,
            run.at_ms,
            run.parameters,
            run.token,
        )
        self.items.append((item, pause_s))

    def _time_out_running(self) -> None:
        for going in self._known.running:
            if going.deadline_ms and going.deadline_ms <= self._now_ms:
                run = self._loaded(going.number)
                took_s = (self._now_ms - run.launched_ms) / 1000
                reason = f"it took longer than its time-out: {took_s:.0f} s"
                self._end(self._stopped(run), FAILED, reason)

    def _stopped(self, run: Run) -> Run:
        """Returns a run whose steps do not go on; workers see it in its row."""
        steps = {
            name: attrs.evolve(step, state=CANCELLED)
            if step.state in (QUEUED, WAITING)
            else step
            for name, step in run.steps.items()
        }
        return attrs.evolve(run, steps=steps)

    def _end(self, run: Run, state: str, reason: str) -> None:
        ended = attrs.evolve(run, state=state, reason=reason, ended_ms=self._now_ms)
        self._put(ended)
        self.told.append(ended)
        going = [one for one in self._known.running if one.number != run.number]
        if len(going) < len(self._known.running):
            self._set(running=going, last_state=state)

    def _holds_from_ms(self) -> int | None:
        state = self._known
        if state.is_paused:
            return None
        return self._current.constraints.holds_from_ms(
            self._now_ms,
            running=len(state.running),
            last_launch_ms=state.last_launch_ms,
            last_state=state.last_state,
        )

    def _next_look_ms(self) -> int:
        state = self._known
        times = [one.deadline_ms for one in state.running if one.deadline_ms]
        if state.is_enabled:
            current = self._current
            if self._made >= MOST_AT_ONCE:
                times.append(self._now_ms)
            if state.pending:
                if (holds_ms := self._holds_from_ms()) is not None:
                    times.append(holds_ms)
                if current.pending_timeout_s:
                    limit_ms = int(current.pending_timeout_s * 1000)
                    times.append(state.pending[0].created_ms + limit_ms)
            if not state.is_paused:
                looked_ms, began_ms = state.looked_ms, state.began_ms
                for clock in current.clocks:
                    times += [next(clock.times(looked_ms, began_ms=began_ms))]
        return min(times, default=0)

    # Rows

    @property
    def _known(self) -> WorkflowState:
        assert self.state is not None
        return self.state

    @property
    def _current(self) -> Workflow:
        fingerprint = self._known.fingerprint
        if not fingerprint:
            return Workflow(self.name, {})
        return self._definition(fingerprint)

    def _set(self, **changes: Any) -> None:
        self.state = attrs.evolve(self._known, **changes)

    def _put(self, run: Run) -> None:
        self.runs[run.number] = run

    def _run(self, number: int) -> Run | None:
        if not 0 < number <= self._known.last_number:
            return None
        return self._loaded(number)

    def _loaded(self, number: int) -> Run:
        return (
            self.runs[number] if number in self.runs else self._load(self.name, number)
        )
