"""The verbs of jobs: push, pop, and how a job ends."""

import math
from typing import Annotated, Any

import attrs
from msgspec import Struct, field

from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.model.queue_service import QueueService
from txaware.model.queues import (
    MAX_DELAY_S,
    MAX_LEASE_S,
    MAX_PRIORITY,
    MOST_LENT,
    MOST_POPPED,
    LeasedJob,
    PipeShare,
    Popped,
    check_commits,
    checked_count,
    checked_delay_s,
    checked_item,
    checked_items,
    checked_lease,
    checked_leased,
    checked_priority,
    checked_seconds,
    checked_text,
)
from txaware.model.requests import MAX_TIME_MS, checked_pointer, checked_wait_s
from txaware.protocol import places
from txaware.protocol.fields import (
    FLAG,
    POINTER,
    SEEN_BY,
    Body,
    Field,
    Kind,
    array_of,
    by,
    plain,
    seconds_in_ms,
    text,
)
from txaware.protocol.formats import Format, PublishRequest, encode_publish
from txaware.protocol.json_schema import ref, whole
from txaware.protocol.json_values import load, milliseconds
from txaware.protocol.queues import QUEUE, TAG
from txaware.protocol.rights import on_queue
from txaware.protocol.shape import BodyFormats, Described
from txaware.protocol.values import popped_of_frame, popped_to_json, popped_to_pack
from txaware.protocol.verb import (
    GiveBack,
    In,
    Repeat,
    Verb,
    Work,
    verbs_in,
)


def _given_text(value: object, *, what: str) -> str:
    return checked_text(what, value)


def _tx(value: object, *, what: str) -> Transaction:
    return Transaction(POINTER.read(value, what=what), 0)


_NO_ZERO = text({"type": "string", "pattern": "^[^\\u0000]*$"}, given=_given_text)
# The second part, which an earlier version left out, is a generation.
_ITEM = text(
    {"type": "string", "pattern": "^[0-9a-f]{56}([0-9a-f]{8})?$"},
    given=by(checked_item),
)
_LEASE = text({"type": "string", "pattern": "^[0-9a-f]{16}$"}, given=by(checked_lease))
_LASTS = seconds_in_ms(
    MAX_LEASE_S * 1000,
    least_ms=1,
    given=lambda value, *, what: checked_seconds(
        "the time of a lease", value, most=MAX_LEASE_S
    ),
    write=lambda seconds: max(1, int(seconds * 1000)),
)
_DELAY = seconds_in_ms(
    MAX_DELAY_S * 1000,
    given=by(checked_delay_s),
    write=lambda seconds: math.ceil(seconds * 1000),
)
_WAIT = seconds_in_ms(MAX_TIME_MS // 2, given=by(checked_wait_s), write=milliseconds)
_PRIORITY = plain(0, MAX_PRIORITY, given=by(checked_priority))
_LENT = plain(
    1, MOST_LENT, given=by(lambda n: checked_count("items", n, most=MOST_LENT))
)
_LIMIT = plain(
    1, MOST_POPPED, given=by(lambda n: checked_count("n", n, most=MOST_POPPED))
)
# Jobs are popped in a transaction as it sees them, and end with it by its pointer.
_SEEN_BY_OWN = attrs.evolve(SEEN_BY, is_own=True)
_BY_POINTER = Kind(
    _tx,
    POINTER.schema,
    write=checked_pointer,
    form=POINTER.form,
    made=_tx,
    is_own=True,
)
_ENDS_WITH = attrs.evolve(_BY_POINTER.or_null(), given=SEEN_BY.given)

_JOB = Body("the job", (Field("id", _ITEM), Field("lease", _LEASE)))


class _JobForm(Struct, forbid_unknown_fields=True):
    """Names a job in JSON."""

    id: str
    lease: str


def _read_job(value: object, *, what: str) -> LeasedJob:
    return LeasedJob(**_JOB.read(value, what=what))


_COMMITS = attrs.evolve(
    Kind(
        _read_job,
        _JOB.schema,
        write=lambda job: {"id": job.id, "lease": job.lease},
        form=_JobForm,
        made=lambda form, *, what: LeasedJob(form.id, form.lease),
    ).or_null(),
    given=by(checked_leased),
)

_Name = Annotated[str, places.QUEUE]


def _read_push(format_: Format, body: bytes) -> dict[str, Any]:
    """Reads the items; a push has nothing else."""
    request = format_.publish_request(body)
    if (request.pointer, request.receipts, request.attempt) != (None, None, None):
        raise BadRequest(
            "a push has messages and nothing else; in a transaction they are "
            "published to a pipe"
        )
    return {"messages": request.messages}


# They are checked with the limit of the server.
_ITEMS = Kind(lambda value, *, what: value, {})
_FORMATS = BodyFormats(
    body=Described(
        schema={
            "allOf": [
                ref("PublishRequest"),
                {"properties": {"messages": {"minItems": 1}}},
            ],
        },
        avro="PublishRequest",
        msgpack="PublishRequest",
    ),
    read=_read_push,
    pack=lambda request: encode_publish(PublishRequest(None, request.messages)),
    has_messages=True,
    none="a push has items",
)
_PUSHER = text(given=_given_text)


class Push(Struct, rename="camel"):
    """Says who pushes items, and when they are due. All but the items is asked for."""

    name: _Name
    messages: Annotated[Any, _ITEMS]
    pusher: Annotated[str, _PUSHER] = ""
    delay_s: Annotated[float, _DELAY] = field(default=0, name="delayMs")
    priority: Annotated[int, _PRIORITY] = 0


class OfPusher(Struct, forbid_unknown_fields=True):
    """Names a pusher."""

    name: _Name
    pusher: Annotated[str, _NO_ZERO]


class PushedWith(Struct, kw_only=True):
    """The options of a push, which come last."""

    pusher: Annotated[str, _NO_ZERO] = ""
    delay_s: Annotated[float, _DELAY] = field(default=0, name="delayMs")
    priority: Annotated[int, _PRIORITY] = 0


class PipeOf(PushedWith, forbid_unknown_fields=True):
    """Asks for a pipe to push to in a transaction."""

    name: _Name
    transaction: Annotated[int, POINTER]


class PipesOf(PushedWith, forbid_unknown_fields=True):
    """Asks for pipes with room for items."""

    name: _Name
    items: Annotated[int, _LENT]
    transaction: Annotated[int, POINTER]


class Pop(Struct, forbid_unknown_fields=True, rename="camel"):
    """Asks for items, and says who pops them and how."""

    name: _Name
    limit: Annotated[int, _LIMIT] = 1
    wait_s: Annotated[float, _WAIT] = field(default=0, name="waitMs")
    popper: Annotated[str, _NO_ZERO] = ""
    owns_pipe: Annotated[bool, FLAG] = False
    transaction: Annotated[Transaction | None, _SEEN_BY_OWN] = None
    has_inbox: Annotated[bool, FLAG] = False
    commits: Annotated[LeasedJob | None, _COMMITS] = None


class OfJob(Struct, forbid_unknown_fields=True):
    """Names a job of a queue, by its item and its lease."""

    name: _Name
    item: Annotated[str, _ITEM] = field(name="id")
    lease: Annotated[str, _LEASE]


class Commit(OfJob, forbid_unknown_fields=True, rename="camel"):
    """Says what a job ends with."""

    transaction: Annotated[Transaction | None, _ENDS_WITH] = None
    has_inbox: Annotated[bool, FLAG] = False


class OfHandled(Struct, forbid_unknown_fields=True):
    """Names items that were handled."""

    name: _Name
    items: Annotated[Any, attrs.evolve(array_of(_ITEM), given=by(checked_items))] = (
        field(name="ids")
    )
    transaction: Annotated[int | None, POINTER.or_null()] = None


class RollbackJob(OfJob, forbid_unknown_fields=True):
    """Says when a job waits again, and why."""

    delay_s: Annotated[float, _DELAY] = field(default=0, name="delayMs")
    error: Annotated[str, _NO_ZERO] = ""


class Extend(OfJob, forbid_unknown_fields=True):
    """Says how long a lease lasts from now on."""

    seconds: Annotated[float, _LASTS] = field(name="forMs")


class Release(Struct, forbid_unknown_fields=True):
    """Names a transaction."""

    name: _Name
    transaction: Annotated[int, POINTER]


# It is keyed, so that a repeat pushes nothing twice.
PUSH = Verb(
    does=QueueService.push,
    method="POST",
    path=QUEUE + "/push",
    number=55,
    request=Push,
    query=("pusher", "delay_s", "priority"),
    formats=_FORMATS,
    right=on_queue("push"),
    repeat=Repeat.KEYED,
    work=Work.COORDINATOR,
    summary="Pushes items in one piece, all or none; the body is that of a publish "
    "with messages alone.",
    tag=TAG,
    example={"messages": ["to ann", {"utf8": "to bob", "key": "bob"}]},
    refuses=(429,),
)
PIPE_FOR = Verb(
    does=QueueService.pipe_for,
    method="POST",
    path=QUEUE + "/pipe",
    number=35,
    request=PipeOf,
    answer=In("pipe", str),
    right=on_queue("push", transactions=True),
    summary="A pipe of the queue, whose name a publish in that transaction takes "
    "for a topic.",
    tag=TAG,
    example={"transaction": 5, "pusher": "till 3"},
    refuses=(409, 429),
    load=load,
)
PIPES_FOR = Verb(
    does=QueueService.pipes_for,
    method="POST",
    path=QUEUE + "/pipes",
    number=36,
    request=PipesOf,
    answer=list[PipeShare],
    right=on_queue("push", transactions=True),
    summary="Pipes of the queue with room for so many items or more, to publish to "
    "in that transaction, one after the other.",
    tag=TAG,
    example={"transaction": 5, "pusher": "till 3", "items": 8},
    refuses=(409, 429),
    load=load,
)
CLOSE_PUSHER = Verb(
    does=QueueService.close_pusher,
    method="POST",
    path=QUEUE + "/close-pusher",
    number=37,
    request=OfPusher,
    right=on_queue("push"),
    summary="Has the pipes of a pusher take no more pushes.",
    tag=TAG,
    example={"pusher": "till 3"},
    load=load,
)
# They are keyed, so that a first try that comes late changes nothing.
COMMIT_JOB = Verb(
    does=QueueService.commit_job,
    method="POST",
    path=QUEUE + "/commit",
    number=38,
    request=Commit,
    right=on_queue("pop"),
    repeat=Repeat.KEYED,
    work=Work.COORDINATOR,
    summary="Ends a job for good: now, or with the commit of a transaction.",
    tag=TAG,
    refuses=(409,),
    load=load,
)
ROLLBACK_JOB = Verb(
    does=QueueService.rollback_job,
    method="POST",
    path=QUEUE + "/rollback",
    number=39,
    request=RollbackJob,
    right=on_queue("pop"),
    repeat=Repeat.KEYED,
    work=Work.COORDINATOR,
    summary="Has a job wait again; the error goes to its dead letter.",
    tag=TAG,
    refuses=(409,),
    load=load,
)


def check_pop(request: Pop) -> None:
    """Refuses a pop that commits a job and waits, or is in a transaction."""
    check_commits(
        request.commits, wait_s=request.wait_s, transaction=request.transaction
    )


def _gives_back(request: Pop) -> GiveBack[list[Popped]] | None:
    """Has jobs wait again; those of a transaction wait for its end."""
    if request.transaction is not None:
        return None
    return lambda popped: [
        (
            ROLLBACK_JOB,
            RollbackJob(request.name, one.id, one.lease, error="its pop was cancelled"),
        )
        for one in popped
    ]


# It is keyed, so that a repeat gets the same jobs, and not some more.
POP = Verb(
    does=QueueService.pop,
    method="POST",
    path=QUEUE + "/pop",
    number=40,
    request=Pop,
    needs_body=True,
    answer=list[Popped],
    right=on_queue("pop"),
    repeat=Repeat.KEYED,
    work=Work.COORDINATOR,
    waits="wait_s",
    check=check_pop,
    summary="Leases items, and waits for the first where it is asked to; in a "
    "transaction they are final with its commit. A job that it commits ends with it: "
    "such a pop does not wait.",
    tag=TAG,
    example={"limit": 10, "waitMs": 10},
    refuses=(409,),
    load=load,
    write=popped_to_json,
    pack=popped_to_pack,
    unpack=popped_of_frame,
    gives_back=_gives_back,
)
END_HANDLED = Verb(
    does=QueueService.end_handled,
    method="POST",
    path=QUEUE + "/end-handled",
    number=41,
    request=OfHandled,
    answer=In("left", list[str]),
    right=on_queue("pop"),
    work=Work.COORDINATOR,
    summary="Ends items that were handled, as a database says, and that wait again "
    "or belong to that transaction; answers those that are still there.",
    tag=TAG,
    refuses=(409,),
    load=load,
)
EXTEND_JOB = Verb(
    does=QueueService.extend_job,
    method="POST",
    path=QUEUE + "/extend",
    number=34,
    request=Extend,
    answer=In("leaseUntilMs", Annotated[int, whole(0)]),
    right=on_queue("pop"),
    work=Work.COORDINATOR,
    summary="Has a lease end so many ms from now.",
    tag=TAG,
    refuses=(409,),
    load=load,
)
# A transaction gives back what it popped before it is aborted.
RELEASE_JOBS = Verb(
    does=QueueService.release_jobs,
    method="POST",
    path=QUEUE + "/release",
    number=42,
    request=Release,
    right=on_queue("pop", transactions=True),
    work=Work.COORDINATOR,
    summary="Gives back what a transaction popped, before it is aborted.",
    tag=TAG,
    example={"transaction": 5},
    refuses=(409,),
    load=load,
)

VERBS = verbs_in(globals())
