"""All verbs, family by family."""

from typing import Any

from txaware.protocol import operator, queues
from txaware.protocol.verb import Verb

VERBS: tuple[Verb[..., Any], ...] = (*operator.VERBS, *queues.VERBS)
