"""All verbs, family by family."""

from typing import Any

from txaware.protocol import (
    groups,
    jobs,
    messages,
    operator,
    producers,
    queues,
    tables,
    topics,
    transactional_ids,
)
from txaware.protocol.verb import Verb

VERBS: tuple[Verb[..., Any], ...] = (
    *groups.VERBS,
    *jobs.VERBS,
    *messages.VERBS,
    *operator.VERBS,
    *producers.VERBS,
    *queues.VERBS,
    *tables.VERBS,
    *topics.VERBS,
    *transactional_ids.VERBS,
)

# The verbs that go by frames, by method and path. The number of each is its place here,
# from 1 on, and never changes: new ones come last, and none is taken away.
NUMBERED = (
    "GET /v1/namespaces/{namespace}/groups/{group}/positions/{topic}",
    "POST /v1/namespaces/{namespace}/groups/{group}/positions/{topic}",
    "PUT /v1/namespaces/{namespace}/groups/{group}/positions/{topic}",
    "GET /v1/namespaces/{namespace}/groups/{group}/positions/{topic}/lag",
    "GET /v1/namespaces/{namespace}/topics/{topic}/peek",
    "GET /v1/namespaces/{namespace}/topics/{topic}/inspect",
    "GET /v1/namespaces/{namespace}/topics/{topic}/splits",
    "POST /v1/namespaces/{namespace}/topics/{topic}/first-undecided",
    "GET /v1/metrics",
    "POST /v1/admin/check",
    "POST /v1/admin/clean-up",
    "POST /v1/admin/clean-up/plan",
    "POST /v1/admin/clean-up/piece",
    "POST /v1/admin/clean-up/finish",
    "POST /v1/admin/prune",
    "GET /v1/keepers",
    "POST /v1/keepers",
    "POST /v1/keepers/forget",
    "POST /v1/producers",
    "GET /v1/producers",
    "GET /v1/producers/{producer}",
    "POST /v1/producers/forget",
    "GET /v1/namespaces/{namespace}/queues",
    "PUT /v1/namespaces/{namespace}/queues/{queue}",
    "PATCH /v1/namespaces/{namespace}/queues/{queue}",
    "GET /v1/namespaces/{namespace}/queues/{queue}",
    "DELETE /v1/namespaces/{namespace}/queues/{queue}",
    "GET /v1/namespaces/{namespace}/queues/{queue}/stats",
    "GET /v1/namespaces/{namespace}/queues/{queue}/peek",
    "POST /v1/namespaces/{namespace}/queues/{queue}/pause",
    "POST /v1/namespaces/{namespace}/queues/{queue}/resume",
    "POST /v1/namespaces/{namespace}/queues/{queue}/truncate",
    "POST /v1/namespaces/{namespace}/queues/{queue}/redrive",
    "POST /v1/namespaces/{namespace}/queues/{queue}/extend",
    "POST /v1/namespaces/{namespace}/queues/{queue}/pipe",
    "POST /v1/namespaces/{namespace}/queues/{queue}/pipes",
    "POST /v1/namespaces/{namespace}/queues/{queue}/close-pusher",
    "POST /v1/namespaces/{namespace}/queues/{queue}/commit",
    "POST /v1/namespaces/{namespace}/queues/{queue}/rollback",
    "POST /v1/namespaces/{namespace}/queues/{queue}/pop",
    "POST /v1/namespaces/{namespace}/queues/{queue}/end-handled",
    "POST /v1/namespaces/{namespace}/queues/{queue}/release",
    "GET /v1/namespaces/{namespace}/tables",
    "POST /v1/namespaces/{namespace}/tables/{table}/get",
    "POST /v1/namespaces/{namespace}/tables/{table}/scan",
    "POST /v1/namespaces/{namespace}/tables/{table}/save",
    "POST /v1/namespaces/{namespace}/tables/{table}/take-back",
    "PUT /v1/namespaces/{namespace}/topics/{topic}",
    "GET /v1/namespaces/{namespace}/topics/{topic}",
    "DELETE /v1/namespaces/{namespace}/topics/{topic}",
    "PUT /v1/namespaces/{namespace}/topics/{topic}/properties",
    "PATCH /v1/namespaces/{namespace}/topics/{topic}/properties",
    "GET /v1/namespaces/{namespace}/topics",
    "GET /v1/namespaces",
    "POST /v1/namespaces/{namespace}/queues/{queue}/push",
    "POST /v1/transactional-ids/{transactional_id}/commits",
    "POST /v1/transactional-ids/{transactional_id}/begin",
    "POST /v1/transactional-ids/{transactional_id}/enter",
    "POST /v1/transactional-ids/{transactional_id}/leave",
    "POST /v1/namespaces/{namespace}/topics/{topic}/wait",
    "GET /v1/namespaces/{namespace}/topics/{topic}/bounds",
    "POST /v1/namespaces/{namespace}/topics/{topic}/latest",
    "GET /v1/namespaces/{namespace}/queues/{queue}/items",
)
NUMBERS = {name: number for number, name in enumerate(NUMBERED, 1)}


def number_of(verb: Verb[..., Any]) -> int | None:
    """Returns the number by which frames name a verb; None where they do not."""
    return NUMBERS.get(f"{verb.method} {verb.path}")
