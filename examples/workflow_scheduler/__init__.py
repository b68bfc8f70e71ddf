"""Workflows started by time, data and events: each trigger exactly one run.

A Python file defines them with `Workflows` and these triggers; README.md shows how.
"""

from examples.workflow_scheduler.definition_file import Workflows
from examples.workflow_scheduler.triggers import (
    cron,
    dataset,
    event,
    every,
    file,
    run_of,
    topic,
)
from examples.workflow_scheduler.worker import StepContext

__all__ = [
    "StepContext",
    "Workflows",
    "cron",
    "dataset",
    "event",
    "every",
    "file",
    "run_of",
    "topic",
]
