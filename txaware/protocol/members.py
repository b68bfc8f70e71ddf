"""The verbs of groups that share topics: their members, heartbeats and settings."""

from collections.abc import Mapping
from typing import Annotated, Any

import attrs
from msgspec import Struct, field

from coordinator.remote.wire import shown
from txaware.errors import BadRequest
from txaware.model.group_service import GroupService
from txaware.model.groups import (
    ASSIGNMENTS,
    LEAST_SESSION_MS,
    MOST_PARTITION,
    MOST_SESSION_MS,
    Beat,
    GroupDescription,
    Joined,
    NamedPartition,
    PartitionPosition,
    checked_assignment,
    checked_client,
    checked_counter,
    checked_group_place,
    checked_group_start,
    checked_group_topic,
    checked_map,
    checked_member,
    checked_member_topics,
    checked_named,
    checked_session_s,
)
from txaware.model.messages import MessageId
from txaware.model.requests import MAX_TIME_MS, checked_wait_s
from txaware.protocol import places
from txaware.protocol.fields import (
    FLAG,
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
from txaware.protocol.groups import TAG
from txaware.protocol.json_schema import FLAG as FLAG_SCHEMA
from txaware.protocol.json_schema import (
    GROUP,
    HEX_ID,
    INT_MAX,
    LONG_MAX,
    NULL,
    Schema,
    any_of,
    array,
    fields,
    or_null,
    whole,
)
from txaware.protocol.json_schema import TEXT as TEXT_SCHEMA
from txaware.protocol.json_schema import TOPIC as TOPIC_PATTERN
from txaware.protocol.json_values import checked_object, milliseconds
from txaware.protocol.rights import in_group_alone, to_list
from txaware.protocol.values import structured, unstructured
from txaware.protocol.verb import Form, Repeat, Verb, Work, verbs_in

GROUPS = "/v1/namespaces/{namespace}/groups"
GROUP_PATH = GROUPS + "/{group}"
MEMBERS = GROUP_PATH + "/members"
MEMBER = MEMBERS + "/{member}"
# The one version that there is of these requests.
VERSION = 0


# ---- kinds of fields
_MEMBER_SCHEMA: Schema = {"type": "string", "pattern": GROUP, "maxLength": 255}
_MEMBER_NAME = text(_MEMBER_SCHEMA, given=by(checked_member))
_TOPIC_NAME = text({"type": "string", "pattern": TOPIC_PATTERN})
_PARTITION = Body(
    "a partition",
    (Field("topic", _TOPIC_NAME), Field("partition", plain(0, MOST_PARTITION))),
    of="a partition",
)


def _read_partition(value: object, *, what: str) -> NamedPartition:
    sent = _PARTITION.read(value, what=what)
    return NamedPartition(sent["topic"], sent["partition"])


def _given_partitions(partitions: Any, *, what: str) -> Any:
    checked_named(partitions)
    return partitions


_PARTITIONS = attrs.evolve(
    array_of(Kind(_read_partition, _PARTITION.schema, write=unstructured)),
    given=_given_partitions,
)
_TOPICS = attrs.evolve(array_of(_TOPIC_NAME), given=by(checked_member_topics))


def _in_ms(what: str) -> Kind:
    """Returns the kind of times in seconds that travel in ms, or are null."""
    return seconds_in_ms(
        MOST_SESSION_MS,
        least_ms=LEAST_SESSION_MS,
        given=by(lambda seconds: checked_session_s(seconds, what=what)),
        write=milliseconds,
    ).or_null()


_SESSION, _HEARTBEAT = _in_ms("session_s"), _in_ms("heartbeat_s")
_WAIT = seconds_in_ms(MAX_TIME_MS // 2, given=by(checked_wait_s), write=milliseconds)
_NUMBER = plain(0, LONG_MAX, given=checked_counter)
_OPTIONAL = attrs.evolve(_NUMBER, given=_NUMBER.or_null().given)
_CLIENT = text(given=by(checked_client)).or_null()
_WORDS = ("first", "last", "next")
_START_SCHEMA = any_of({"enum": [*_WORDS]}, HEX_ID, whole(0))


def _written_start(start: Any) -> Any:
    return str(start) if isinstance(start, MessageId) else start


def _read_start(value: object, *, what: str) -> Any:
    if isinstance(value, str) and value not in _WORDS:
        return MessageId.parse(value)
    if isinstance(value, str):
        return value
    return plain(0, LONG_MAX).read(value, what=what)


_START = Kind(
    _read_start,
    _START_SCHEMA,
    given=by(checked_group_start),
    write=_written_start,
).or_null()


def _given_to(to: object, *, what: str) -> object:
    if isinstance(to, Mapping):
        return {str(n): checked_group_place(one) for n, one in to.items()}
    return checked_group_place(to)


def _read_to(value: object, *, what: str) -> object:
    if isinstance(value, dict):
        return {
            name: _read_start(one, what=f"partition {name} of {what}")
            for name, one in value.items()
        }
    return _read_start(value, what=what)


def _written_to(to: Any) -> Any:
    if isinstance(to, Mapping):
        return {n: _written_start(one) for n, one in to.items()}
    return _written_start(to)


_TO = Kind(
    _read_to,
    any_of(_START_SCHEMA, fields({}, others=_START_SCHEMA)),
    given=_given_to,
    write=_written_to,
)


def _read_static(value: object, *, what: str) -> bool | str:
    """Reads a flag, or the name of a static member in place of it."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str):
        return checked_member(value)
    raise BadRequest(
        f"{what} is true, false or the name of a member, not {shown(value)}"
    )


_STATIC = Kind(
    _read_static, any_of(FLAG_SCHEMA, _MEMBER_SCHEMA, NULL), given=FLAG.given
)


_NUMBERS = array_of(plain(0, MOST_PARTITION))


def _read_map(value: object, *, what: str) -> dict[str, Any]:
    return {
        member: {
            topic: _NUMBERS.read(numbers, what=f"{topic} of {member}")
            for topic, numbers in checked_object(topics, what=member).items()
        }
        for member, topics in checked_object(value, what=what).items()
    }


_MAP = Kind(
    _read_map,
    fields({}, others=fields({}, others=array(whole(0, MOST_PARTITION)))),
    given=by(checked_map),
    write=lambda members: {
        name: {topic: list(numbers) for topic, numbers in topics.items()}
        for name, topics in members.items()
    },
)


# ---- what an answer has beside its value
@attrs.frozen
class Correlated:
    """An answer that names the request which it answers, as that one was told to."""

    value: Any
    correlation_id: int


class Correlates(Struct, kw_only=True):
    """The version of a request, and a number that its answer repeats."""

    version: Annotated[int, plain(VERSION, VERSION)] = VERSION
    correlation_id: Annotated[Any, plain(0, LONG_MAX).or_null()] = field(
        default=None, name="correlationId"
    )


def correlated(request: Correlates, value: Any) -> Any:
    """Returns an answer with the number of its request, if that has one."""
    number = request.correlation_id
    return value if number is None else Correlated(value, number)


def _answer(kind: type, schema: Schema, *, many: str | None = None) -> Form:
    """Returns an answer that may name its request; `many` is the field of a list."""

    def write(value: Any) -> Any:
        more = {}
        if isinstance(value, Correlated):
            more = {"version": VERSION, "correlationId": value.correlation_id}
            value = value.value
        found = unstructured(value)
        return {**more, **(found if many is None else {many: found})}

    def read(_: Any, sent: Any) -> Any:
        if many is None:
            return structured(kind, sent)
        return structured(list[kind], checked_object(sent, what=many)[many])  # type: ignore[valid-type]

    named = {"version": whole(VERSION, VERSION), "correlationId": whole(0)}
    properties = {**schema["properties"], **named}
    return Form(write, read, {**schema, "properties": properties})


_POSITION_SCHEMA = fields(
    {
        "topic": TEXT_SCHEMA,
        "partition": whole(0, MOST_PARTITION),
        "position": or_null(HEX_ID),
    }
)
_GENERATION = whole(0)
_JOINED = _answer(
    Joined,
    fields(
        {
            "member": TEXT_SCHEMA,
            "incarnation": whole(1),
            "generation": _GENERATION,
            "heartbeatMs": whole(1, INT_MAX),
            "partitions": array(_POSITION_SCHEMA),
        }
    ),
)
_BEAT = _answer(
    Beat,
    fields(
        {
            "generation": _GENERATION,
            "assign": array(_POSITION_SCHEMA),
            "revoke": array(_PARTITION.schema),
            "rewound": array(_POSITION_SCHEMA),
        }
    ),
)


def _beat_to_pack(beat: Any) -> dict[str, Any]:
    """Returns what `_BEAT` writes, in a tenth of its time where there is no news."""
    if beat.__class__ is Beat and not (beat.assign or beat.revoke or beat.rewound):
        return {
            "generation": beat.generation,
            "assign": [],
            "revoke": [],
            "rewound": [],
        }
    written: dict[str, Any] = unstructured(_BEAT.write(beat))
    return written


_DESCRIBED = _answer(
    GroupDescription,
    fields(
        {
            "group": TEXT_SCHEMA,
            "sessionMs": whole(1, INT_MAX),
            "heartbeatMs": whole(1, INT_MAX),
            "ephemeral": FLAG_SCHEMA,
            "assignment": {"enum": [*ASSIGNMENTS]},
            "generation": _GENERATION,
            "generationMs": whole(0),
            "why": TEXT_SCHEMA,
            "topics": fields({}, others=whole(0, MOST_PARTITION + 1)),
            "members": array(
                fields(
                    {
                        "member": TEXT_SCHEMA,
                        "incarnation": whole(1),
                        "static": FLAG_SCHEMA,
                        "sinceMs": whole(0),
                        "sessionMs": whole(1, INT_MAX),
                        "topics": array(TEXT_SCHEMA),
                        "partitions": array(_PARTITION.schema),
                        "client": or_null(TEXT_SCHEMA),
                    }
                )
            ),
        }
    ),
)
_POSITIONS = _answer(
    PartitionPosition,
    fields({"positions": array(_POSITION_SCHEMA)}),
    many="positions",
)

_Group = Annotated[str, places.GROUP_NAME]
_Member = Annotated[str, places.MEMBER]


class OfGroup(Struct):
    """Names a group."""

    group: _Group


class NewGroup(Correlates, forbid_unknown_fields=True, rename="camel"):
    """The settings of a group, those that are named."""

    group: _Group
    session_s: Annotated[Any, _SESSION] = field(default=None, name="sessionMs")
    heartbeat_s: Annotated[Any, _HEARTBEAT] = field(default=None, name="heartbeatMs")
    ephemeral: Annotated[Any, FLAG.or_null()] = None
    assignment: Annotated[
        Any, text({"enum": [*ASSIGNMENTS]}, given=by(checked_assignment)).or_null()
    ] = None


class Join(Correlates, forbid_unknown_fields=True, rename="camel"):
    """Says who joins a group, and what it wants of which topics."""

    group: _Group
    member: Annotated[Any, _MEMBER_NAME.or_null()] = None
    static: Annotated[Any, _STATIC] = False
    topics: Annotated[Any, _TOPICS] = ()
    partitions: Annotated[Any, _PARTITIONS] = ()
    start: Annotated[Any, _START] = None
    session_s: Annotated[Any, _SESSION] = field(default=None, name="sessionMs")
    client: Annotated[Any, _CLIENT] = field(default=None, name="clientId")
    own_positions: Annotated[bool, FLAG] = False


class Heartbeat(Correlates, forbid_unknown_fields=True, rename="camel"):
    """Says who is there, what it has heard of, and what it holds."""

    group: _Group
    member: _Member
    incarnation: Annotated[int, _NUMBER]
    generation: Annotated[int, _NUMBER]
    owned: Annotated[Any, _PARTITIONS] = ()
    wait_s: Annotated[float, _WAIT] = field(default=0, name="waitMs")


class Leave(Struct):
    """Says who leaves."""

    group: _Group
    member: _Member
    incarnation: Annotated[Any, _OPTIONAL] = None


class OfMember(Struct, forbid_unknown_fields=True, rename="camel"):
    """Names partitions of a member, and what sees their positions."""

    group: _Group
    member: _Member
    incarnation: Annotated[int, _NUMBER]
    partitions: Annotated[Any, _PARTITIONS]
    transaction: Annotated[Any, SEEN_BY] = None


class Rewind(Correlates, forbid_unknown_fields=True, rename="camel"):
    """Says where a group goes on in a topic, or in partitions of it."""

    group: _Group
    topic: Annotated[
        str,
        text(
            {"type": "string", "pattern": TOPIC_PATTERN}, given=by(checked_group_topic)
        ),
    ]
    to: Annotated[Any, _TO]


class Assign(Struct, forbid_unknown_fields=True):
    """Says which member has which partitions, by topic."""

    group: _Group
    members: Annotated[Any, _MAP]


LIST_GROUPS = Verb(
    does=GroupService.groups,
    method="GET",
    path=GROUPS,
    number=64,
    request=places.InNamespace,
    answer=list[GroupDescription],
    right=to_list,
    work=Work.COORDINATOR,
    summary="The groups of a namespace that the caller may see, with their members.",
    tag=TAG,
)
CREATE_GROUP = Verb(
    does=GroupService.create_group,
    method="PUT",
    path=GROUP_PATH,
    number=65,
    request=NewGroup,
    answer=_DESCRIBED,
    right=in_group_alone,
    repeat=Repeat.KEYED,
    work=Work.GROUP,
    summary="Creates a group, or changes what is named of one that exists.",
    tag=TAG,
    example={"sessionMs": 10_000, "ephemeral": False, "assignment": "sticky"},
    refuses=(429,),
)
DESCRIBE_GROUP = Verb(
    does=GroupService.group,
    method="GET",
    path=GROUP_PATH,
    number=66,
    request=OfGroup,
    answer=GroupDescription,
    right=in_group_alone,
    work=Work.COORDINATOR,
    summary="The settings of a group, its generation, its members and what they have.",
    tag=TAG,
    refuses=(404,),
)
DELETE_GROUP = Verb(
    does=GroupService.delete_group,
    method="DELETE",
    path=GROUP_PATH,
    number=67,
    request=OfGroup,
    right=in_group_alone,
    repeat=Repeat.KEYED,
    work=Work.GROUP,
    summary="Deletes a group that has no members; its positions stay.",
    tag=TAG,
    refuses=(404, 409),
)
JOIN_GROUP = Verb(
    does=GroupService.join_group,
    method="POST",
    path=MEMBERS,
    number=68,
    request=Join,
    answer=_JOINED,
    right=in_group_alone,
    repeat=Repeat.KEYED,
    work=Work.GROUP,
    summary="Makes a member, or the next incarnation of one; creates the group.",
    tag=TAG,
    example={"member": "worker-1", "topics": ["orders"], "start": "first"},
    refuses=(404, 429),
)
HEARTBEAT = Verb(
    does=GroupService.heartbeat,
    method="POST",
    path=MEMBER + "/heartbeat",
    number=69,
    request=Heartbeat,
    answer=_BEAT,
    pack=_beat_to_pack,
    right=in_group_alone,
    work=Work.COORDINATOR,
    waits="wait_s",
    summary="Keeps a session, and waits for what the member is to take or to leave.",
    tag=TAG,
    refuses=(404, 409),
)
LEAVE_GROUP = Verb(
    does=GroupService.leave_group,
    method="DELETE",
    path=MEMBER,
    number=70,
    request=Leave,
    right=in_group_alone,
    repeat=Repeat.KEYED,
    work=Work.GROUP,
    summary="Ends a membership at once.",
    tag=TAG,
    refuses=(404, 409),
)
MEMBER_POSITIONS = Verb(
    does=GroupService.member_positions,
    method="POST",
    path=MEMBER + "/positions",
    number=71,
    request=OfMember,
    answer=_POSITIONS,
    right=in_group_alone,
    work=Work.COORDINATOR,
    summary="How far a group has read partitions that a member has; refused where "
    "it has them no more.",
    tag=TAG,
    refuses=(404, 409),
)
REWIND_GROUP = Verb(
    does=GroupService.rewind_group,
    method="POST",
    path=GROUP_PATH + "/rewind",
    number=72,
    request=Rewind,
    answer=_POSITIONS,
    right=in_group_alone,
    repeat=Repeat.KEYED,
    work=Work.GROUP,
    summary="Moves a group in a topic, or in partitions of it; members go on there.",
    tag=TAG,
    example={"topic": "orders", "to": "first"},
    refuses=(404, 409),
)
ASSIGN_GROUP = Verb(
    does=GroupService.assign_group,
    method="PUT",
    path=GROUP_PATH + "/assignment",
    number=73,
    request=Assign,
    answer=GroupDescription,
    right=in_group_alone,
    repeat=Repeat.KEYED,
    work=Work.GROUP,
    summary="Assigns partitions to members; the assignment becomes `own`.",
    tag=TAG,
    example={"members": {"worker-1": {"orders": [0]}}},
    refuses=(429,),
)

VERBS = verbs_in(globals())
