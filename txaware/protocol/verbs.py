"""All verbs, family by family."""

from typing import Any

from txaware.protocol import (
    commits,
    entries,
    groups,
    jobs,
    members,
    messages,
    operator,
    producers,
    publishes,
    queues,
    tables,
    topics,
    transactional_ids,
    transactions,
)
from txaware.protocol.verb import Verb

VERBS: tuple[Verb[..., Any], ...] = (
    *commits.VERBS,
    *entries.VERBS,
    *groups.VERBS,
    *jobs.VERBS,
    *members.VERBS,
    *messages.VERBS,
    *operator.VERBS,
    *producers.VERBS,
    *publishes.VERBS,
    *queues.VERBS,
    *tables.VERBS,
    *topics.VERBS,
    *transactional_ids.VERBS,
    *transactions.VERBS,
)

# The verbs that go by frames, by their numbers.
NUMBERED = {verb.number: verb for verb in VERBS if verb.number is not None}
