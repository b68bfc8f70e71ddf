"""What is known of workflows and of their runs, as rows keep it."""

from typing import Any

import attrs

from examples.workflow_scheduler.triggers import Note

# The states of a run. Before it has one, its trigger is being waited for.
PENDING_CONSTRAINT, PENDING_LAUNCH = "pending constraint", "pending launch"
RUNNING, SUCCEEDED, FAILED = "running", "succeeded", "failed"
CANCELLED, OBSOLETE = "cancelled", "obsolete"
# And those of a step, beside RUNNING's end.
WAITING, QUEUED, SKIPPED = "waiting", "queued", "skipped"

# State that a scheduler of another version writes may mean something else.
FORMAT = 1
# The problem of a workflow that a scheduler cannot read begins so.
LEFT_OUT = "left out: "


@attrs.frozen
class StepRun:
    """One step of one run."""

    state: str = WAITING
    attempt: int = 0
    started_ms: int = 0
    ended_ms: int = 0
    worker: str = ""
    error: str = ""


@attrs.frozen
class Run:
    """One run of a workflow, from the trigger that made it to its end."""

    run: str
    workflow: str
    number: int
    state: str
    cause: str
    fingerprint: str
    created_ms: int
    triggers: list[Note] = attrs.field(factory=list)
    more_triggers: int = 0
    """Those that were collected beyond what is kept."""
    parameters: dict[str, str] = attrs.field(factory=dict)
    at_ms: int = 0
    """The time that it is for, where a time made it: 0 where none did."""
    pending_launch_ms: int = 0
    launched_ms: int = 0
    ended_ms: int = 0
    steps: dict[str, StepRun] = attrs.field(factory=dict)
    token: dict[str, Any] = attrs.field(factory=dict)
    """What its steps returned."""
    reason: str = ""

    @property
    def is_over(self) -> bool:
        """True when nothing will change its state."""
        return self.state in (SUCCEEDED, FAILED, CANCELLED, OBSOLETE)

    @property
    def first_causes(self) -> list[str]:
        """The first things that triggered it, for a line."""
        return [note.source for note in self.triggers[:3]]


@attrs.frozen
class Pending:
    """A run that has not begun, in short."""

    number: int
    created_ms: int
    collects: bool = False


@attrs.frozen
class Launched:
    """A run that goes on, in short; with 0 it may take any time."""

    number: int
    deadline_ms: int = 0


@attrs.frozen
class WorkflowState:
    """What is known of a workflow; the notes are its job that waits for its trigger."""

    name: str
    group: str
    fingerprint: str
    schedule_fingerprint: str
    began_ms: int
    looked_ms: int
    """The time up to which its times have been noted."""
    version: int = 0
    is_enabled: bool = True
    is_paused: bool = False
    last_number: int = 0
    notes: list[Note] = attrs.field(factory=list)
    pending: list[Pending] = attrs.field(factory=list)
    running: list[Launched] = attrs.field(factory=list)
    last_launch_ms: int = 0
    last_state: str = ""
    wake_ms: int = 0
    """When it has to be looked at next without a message; 0 for never."""
    problem: str = ""
    format: int = FORMAT

    @property
    def is_left_out(self) -> bool:
        """True while a scheduler cannot read what is written of it."""
        return self.problem.startswith(LEFT_OUT)


@attrs.frozen
class Told:
    """A message to the one who looks after a workflow."""

    kind: str
    workflow: str
    note: Note | None = None
    fingerprint: str = ""
    group: str = ""
    number: int = 0
    step: str = ""
    attempt: int = 0
    state: str = ""
    result: Any = None
    error: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    worker: str = ""
    parameters: dict[str, str] = attrs.field(factory=dict)
    times_ms: list[int] = attrs.field(factory=list)


@attrs.frozen
class StepItem:
    """A step to be carried out, as the queue hands it out."""

    run: str
    workflow: str
    number: int
    step: str
    attempt: int
    fingerprint: str
    at_ms: int = 0
    parameters: dict[str, str] = attrs.field(factory=dict)
    token: dict[str, Any] = attrs.field(factory=dict)

    def ended(self, state: str, error: str) -> Told:
        """Returns the message that this attempt of the step has ended so."""
        return Told(
            "ended",
            self.workflow,
            number=self.number,
            step=self.step,
            attempt=self.attempt,
            state=state,
            error=error,
        )
