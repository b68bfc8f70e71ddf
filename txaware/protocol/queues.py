"""The verbs of queues themselves: create, describe, pause, empty, redrive, delete."""

from typing import Annotated, Any

from msgspec import UNSET, Struct

from coordinator.remote.wire import is_number, shown
from txaware.errors import BadRequest
from txaware.model.queue_service import QueueService
from txaware.model.queues import (
    ITEM_STATES,
    MAX_DELAY_S,
    MAX_LEASE_S,
    MOST_POPPED,
    ORDERS,
    ItemState,
    QueueDescriptor,
    QueueItem,
    QueueStats,
    Waiting,
    checked_count,
    checked_item_state,
)
from txaware.model.topics import MAX_TTL_S
from txaware.protocol import places
from txaware.protocol.fields import FLAG, Kind, by, plain, text
from txaware.protocol.json_schema import FULL_NAME, INT_MAX, whole
from txaware.protocol.json_values import load
from txaware.protocol.rights import on_queue, to_list, to_see_queue
from txaware.protocol.verb import In, Repeat, Verb, Work, verbs_in

QUEUES = "/v1/namespaces/{namespace}/queues"
QUEUE = QUEUES + "/{queue}"
TAG = "queues"


def _number(value: object, *, what: str) -> object:
    if value is None or not is_number(value):
        raise BadRequest(f"{what} is a number of seconds, not {shown(value)}")
    return value


def _seconds(most: int) -> Kind:
    return Kind(_number, {"type": "number", "exclusiveMinimum": 0, "maximum": most})


def _given_count(value: Any, *, what: str) -> int | None:
    return None if value is None else checked_count(what, value)


def _given_limit(value: Any, *, what: str) -> int:
    return checked_count(what, value, most=MOST_POPPED)


_Name = Annotated[str, places.QUEUE]
_COUNT = plain(1, INT_MAX, given=_given_count)


class Named(Struct):
    """Names a queue."""

    name: _Name


class QueueSettings(Struct, forbid_unknown_fields=True, rename="camel"):
    """Settings of a queue, those that are named; a client checks them together."""

    name: _Name
    lease_s: Annotated[Any, _seconds(MAX_LEASE_S)] = UNSET
    max_deliveries: Annotated[Any, plain(1, INT_MAX).or_null()] = UNSET
    dead_letter_queue: Annotated[Any, text(FULL_NAME).or_null()] = UNSET
    order: Annotated[Any, text({"enum": [*ORDERS]})] = UNSET
    max_pushes_per_pipe: Annotated[Any, plain(1, INT_MAX)] = UNSET
    max_push_time_of_pipe_s: Annotated[Any, _seconds(MAX_DELAY_S)] = UNSET
    max_pop_width: Annotated[Any, plain(1, INT_MAX)] = UNSET
    ttl_s: Annotated[Any, plain(1, MAX_TTL_S).or_null()] = UNSET


class NewQueue(QueueSettings, forbid_unknown_fields=True, rename="camel"):
    """Settings of a new queue, and whether it may exist."""

    exist_ok: Annotated[bool, FLAG] = False


class PeekItems(Struct):
    """Asks for some items."""

    name: _Name
    limit: Annotated[int, plain(1, MOST_POPPED, given=_given_limit)] = 10


class Browse(Struct, forbid_unknown_fields=True):
    """Asks for items in one state."""

    name: _Name
    state: Annotated[
        ItemState,
        text({"type": "string", "enum": [*ITEM_STATES]}, given=by(checked_item_state)),
    ] = "waiting"
    limit: Annotated[int, plain(1, MOST_POPPED, given=_given_limit)] = 10


class Redrive(Struct, forbid_unknown_fields=True):
    """Says how many letters go back at most."""

    name: _Name
    limit: Annotated[int | None, _COUNT.or_null()] = None


LIST_QUEUES = Verb(
    does=QueueService.queues,
    method="GET",
    path=QUEUES,
    number=23,
    request=places.InNamespace,
    answer=list[str],
    right=to_list,
    summary="The queues of a namespace that the caller may see.",
    tag=TAG,
    spaced=True,
)
CREATE_QUEUE = Verb(
    does=QueueService.create_queue,
    method="PUT",
    path=QUEUE,
    number=24,
    request=NewQueue,
    query=("exist_ok",),
    answer=QueueDescriptor,
    right=on_queue("manage"),
    repeat=Repeat.KEYED,
    work=Work.COORDINATOR,
    summary="Creates a queue. With `existOk` one that exists is answered where "
    "it is as the body says; what the body leaves out may differ.",
    tag=TAG,
    example={"leaseS": 30, "maxDeliveries": 5},
    refuses=(409,),
)
# It is keyed, so that a first try that comes late undoes no later update.
UPDATE_QUEUE = Verb(
    does=QueueService.update_queue,
    method="PATCH",
    path=QUEUE,
    number=25,
    request=QueueSettings,
    without_body="the body is a JSON object of what to change",
    answer=QueueDescriptor,
    right=on_queue("manage"),
    repeat=Repeat.KEYED,
    work=Work.COORDINATOR,
    summary="Changes what is named and leaves the rest; the order stays.",
    tag=TAG,
    example={"leaseS": 60, "maxDeliveries": None},
)
DESCRIBE_QUEUE = Verb(
    does=QueueService.queue_descriptor,
    method="GET",
    path=QUEUE,
    number=26,
    request=Named,
    answer=QueueDescriptor,
    right=to_see_queue,
    work=Work.COORDINATOR,
    summary="The settings of a queue.",
    tag=TAG,
)
DELETE_QUEUE = Verb(
    does=QueueService.delete_queue,
    method="DELETE",
    path=QUEUE,
    number=27,
    request=Named,
    right=on_queue("manage"),
    repeat=Repeat.KEYED,
    summary="Deletes a queue with all that waits in it.",
    tag=TAG,
)
QUEUE_STATS = Verb(
    does=QueueService.queue_stats,
    method="GET",
    path=QUEUE + "/stats",
    number=28,
    request=Named,
    answer=QueueStats,
    right=to_see_queue,
    work=Work.COORDINATOR,
    summary="The counts of a queue, and how it stands now.",
    tag=TAG,
)
PEEK_QUEUE = Verb(
    does=QueueService.peek_queue,
    method="GET",
    path=QUEUE + "/peek",
    number=29,
    request=PeekItems,
    answer=list[Waiting],
    right=on_queue("pop"),
    work=Work.COORDINATOR,
    summary="Items that wait and are due, the oldest first; none is popped.",
    tag=TAG,
)
BROWSE_QUEUE = Verb(
    does=QueueService.browse_queue,
    method="GET",
    path=QUEUE + "/items",
    number=63,
    request=Browse,
    answer=list[QueueItem],
    right=on_queue("pop"),
    work=Work.COORDINATOR,
    summary="Items that wait, are in work, are delayed or are dead, with who has them "
    "and why they came back; none is popped. For dead ones their queue has to allow "
    "pops, too.",
    tag=TAG,
)
PAUSE_QUEUE = Verb(
    does=QueueService.pause_queue,
    method="POST",
    path=QUEUE + "/pause",
    number=30,
    request=Named,
    fixed={"paused": True},
    right=on_queue("manage"),
    summary="Has pops get nothing; pushes go on.",
    tag=TAG,
)
RESUME_QUEUE = Verb(
    does=QueueService.pause_queue,
    method="POST",
    path=QUEUE + "/resume",
    number=31,
    request=Named,
    fixed={"paused": False},
    right=on_queue("manage"),
    summary="Lets pops go on.",
    tag=TAG,
)
# It is keyed, so that a first try that comes late removes nothing that is new.
TRUNCATE_QUEUE = Verb(
    does=QueueService.truncate_queue,
    method="POST",
    path=QUEUE + "/truncate",
    number=32,
    request=Named,
    right=on_queue("manage"),
    repeat=Repeat.KEYED,
    summary="Removes all items, in work or not, and sets all counts to zero.",
    tag=TAG,
)
REDRIVE = Verb(
    does=QueueService.redrive,
    method="POST",
    path=QUEUE + "/redrive",
    number=33,
    request=Redrive,
    answer=In("moved", Annotated[int, whole(0)]),
    right=on_queue("manage"),
    repeat=Repeat.KEYED,
    work=Work.SLOW,
    summary="Moves dead letters back to where they came from.",
    tag=TAG,
    example={"limit": 100},
    load=load,
)

VERBS = verbs_in(globals())
