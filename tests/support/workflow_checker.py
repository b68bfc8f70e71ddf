"""What has to hold of triggers, runs and effects, whatever was killed meanwhile."""

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from examples.workflow_scheduler.runs import Run


@attrs.frozen
class Found:
    """What there was, and what has become of it."""

    triggers: Mapping[str, Iterable[str]]
    """What triggered each workflow: the ids or values of its notes."""
    per_run: Mapping[str, int]
    """How many of them each of its runs has."""
    runs: Iterable[Run]
    effects: Iterable[tuple[str, str]]
    """The run and the step of each effect that was committed."""


def problems(found: Found) -> list[str]:
    """Returns what was lost, doubled or done wrongly; nothing where all is well."""
    runs = list(found.runs)
    had = Counter(
        (run.workflow, mark)
        for run in runs
        for note in run.triggers
        for mark in {note.id, note.value} & set(found.triggers.get(run.workflow, ()))
    )
    wanted = Counter(
        (workflow, mark) for workflow, marks in found.triggers.items() for mark in marks
    )
    said = [f"{workflow}: {mark} was lost" for workflow, mark in wanted - had]
    said += [f"{workflow}: {mark} came twice" for workflow, mark in had - wanted]
    said += [
        f"{run.run} has {len(run.triggers)} triggers"
        for run in runs
        if len(run.triggers) != found.per_run.get(run.workflow, 1)
    ]
    said += [
        f"{run.run} is {run.state}: {run.reason}"
        for run in runs
        if run.state != "succeeded"
    ]
    done = Counter(found.effects)
    steps = Counter((run.run, step) for run in runs for step in run.steps)
    said += [f"{run}: {step} had no effect" for run, step in steps - done]
    said += [f"{run}: {step} had two effects" for run, step in done - steps]
    return said
