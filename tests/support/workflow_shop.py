"""Workflows of all kinds of triggers, whose steps leave one trace each."""

import txaware
from examples.workflow_scheduler import (
    StepContext,
    Workflows,
    dataset,
    event,
    every,
    run_of,
    topic,
)

TRACES = "traces"

workflows = Workflows()
by_event = workflows.workflow("by-event", on=event("arrived"))
by_topic = workflows.workflow("by-topic", on=topic("orders"))
by_count = workflows.workflow("by-count", on=topic("orders", count=4))
by_pair = workflows.workflow("by-pair", on=event("left") & event("right"))
by_either = workflows.workflow("by-either", on=event("this") | event("that"))
by_data = workflows.workflow("by-data", on=dataset("clicks"))
by_hand = workflows.workflow("by-hand")
by_time = workflows.workflow("by-time", on=every("1s"))
after_event = workflows.workflow("after-event", on=run_of("by-event"))


def first(step: StepContext) -> str:
    """Reads and writes one row for all, so that steps conflict; and publishes."""
    total = step.messaging.table("totals")
    total.put(b"all", b"%d" % (int(total.get(b"all") or 0) + 1))
    leave_trace(step)
    return step.run


async def second(step: StepContext) -> None:
    assert step.token["first"] == step.run
    leave_trace(step)


def leave_trace(step: StepContext) -> None:
    trace = txaware.to_json([step.run, step.step])
    step.messaging.publisher(TRACES).publish(trace)


for workflow in (
    *(by_event, by_topic, by_count, by_pair, by_either, by_data, by_hand, by_time),
    after_event,
):
    workflow.step(retries=3)(first)
    workflow.step(after=["first"], retries=3)(second)
