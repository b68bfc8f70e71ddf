"""All verbs, family by family."""

from typing import Any

from txaware.protocol import groups, operator, producers, queues
from txaware.protocol.verb import Verb

VERBS: tuple[Verb[..., Any], ...] = (
    *groups.VERBS,
    *operator.VERBS,
    *producers.VERBS,
    *queues.VERBS,
)
