"""All verbs, family by family."""

from typing import Any

from txaware.protocol import groups, jobs, operator, producers, queues, tables, topics
from txaware.protocol.verb import Verb

VERBS: tuple[Verb[..., Any], ...] = (
    *groups.VERBS,
    *jobs.VERBS,
    *operator.VERBS,
    *producers.VERBS,
    *queues.VERBS,
    *tables.VERBS,
    *topics.VERBS,
)
