"""The verbs of jobs: push, pop, and how a job ends."""

from typing import Annotated, Any

from msgspec import Struct, field

from txaware.model.queue_service import QueueService
from txaware.model.queues import (
    MAX_LEASE_S,
    checked_item,
    checked_lease,
    checked_seconds,
)
from txaware.protocol import places
from txaware.protocol.fields import Kind, by, plain, text
from txaware.protocol.json_schema import whole
from txaware.protocol.json_values import load
from txaware.protocol.queues import QUEUE, TAG
from txaware.protocol.rights import on_queue
from txaware.protocol.verb import In, Verb, Work, verbs_in


def _seconds(most_s: int, *, least_ms: int, given: Any, write: Any) -> Kind:
    """Returns the kind of times in seconds that travel in whole ms."""
    ms = plain(least_ms, most_s * 1000)
    return Kind(
        lambda value, *, what: ms.read(value, what=what) / 1000,
        ms.schema,
        given=given,
        write=write,
        form=ms.form,
        made=lambda value: value / 1000,
    )


def _given_lease_s(value: object, *, what: str) -> float:
    return checked_seconds("the time of a lease", value, most=MAX_LEASE_S)


# The second part, which an earlier version left out, is a generation.
_ITEM = text(
    {"type": "string", "pattern": "^[0-9a-f]{56}([0-9a-f]{8})?$"},
    given=by(checked_item),
)
_LEASE = text({"type": "string", "pattern": "^[0-9a-f]{16}$"}, given=by(checked_lease))
_LASTS = _seconds(
    MAX_LEASE_S,
    least_ms=1,
    given=_given_lease_s,
    write=lambda seconds: max(1, int(seconds * 1000)),
)


class Job(Struct, forbid_unknown_fields=True):
    """Names a job of a queue, by its item and its lease."""

    name: Annotated[str, places.QUEUE]
    item: Annotated[str, _ITEM] = field(name="id")
    lease: Annotated[str, _LEASE]


class Extend(Job, forbid_unknown_fields=True):
    """Says how long a lease lasts from now on."""

    seconds: Annotated[float, _LASTS] = field(name="forMs")


EXTEND_JOB = Verb(
    does=QueueService.extend_job,
    method="POST",
    path=QUEUE + "/extend",
    request=Extend,
    answer=In("leaseUntilMs", Annotated[int, whole(0)]),
    right=on_queue("pop"),
    work=Work.COORDINATOR,
    summary="Has a lease end so many ms from now.",
    tag=TAG,
    refuses=(409,),
    load=load,
)

VERBS = verbs_in(globals())
