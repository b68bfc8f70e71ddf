"""The verbs of consumer groups: their positions, and how far behind they are."""

from typing import Annotated

import attrs
from msgspec import Struct

from coordinator.transaction import Transaction
from txaware.model.interfaces import MessagingService, OperatorService
from txaware.model.messages import MessageId
from txaware.model.requests import checked_position
from txaware.protocol import places
from txaware.protocol.fields import ID, POINTER, SEEN_BY, SNAPSHOT, by
from txaware.protocol.json_schema import fields, or_null, whole
from txaware.protocol.rights import in_group
from txaware.protocol.verb import In, Repeat, Verb, Work, verbs_in

POSITION_PATH = "/v1/namespaces/{namespace}/groups/{group}/positions/{topic}"
TAG = "groups"

_Group = Annotated[str, places.GROUP]
_Topic = Annotated[str, places.TOPIC]
_ID = {"type": "string", "pattern": "^[0-9a-f]{40}$"}
_ANSWER = In(
    "position", Annotated[MessageId | None, or_null(_ID)], schema_name="Position"
)
_POSITION = attrs.evolve(ID, given=by(checked_position)).or_null()


class GroupInTopic(Struct):
    """Names a group and a topic."""

    group: _Group
    topic: _Topic


class SeenBy(GroupInTopic, forbid_unknown_fields=True):
    """Says what sees the position."""

    transaction: Annotated[Transaction, attrs.evolve(SNAPSHOT, given=SEEN_BY.given)]


class NewPosition(GroupInTopic, forbid_unknown_fields=True):
    """Says where a group goes, and with which transaction."""

    position: Annotated[MessageId | None, _POSITION]
    transaction: Annotated[int, POINTER]


POSITION = Verb(
    does=MessagingService.position,
    method="GET",
    path=POSITION_PATH,
    number=1,
    request=GroupInTopic,
    fixed={"transaction": None},
    answer=_ANSWER,
    right=in_group(),
    work=Work.COORDINATOR,
    summary="How far a group has come, as a fresh snapshot sees it.",
    tag=TAG,
)
POSITION_SEEN = Verb(
    does=MessagingService.position,
    method="POST",
    path=POSITION_PATH,
    number=2,
    request=SeenBy,
    answer=_ANSWER,
    right=in_group(),
    summary="How far a group has come, as a transaction sees it.",
    tag=TAG,
    schema_name="PositionSeenBy",
)
# It is keyed, so that a first try that comes late does not move it back again.
SAVE_POSITION = Verb(
    does=MessagingService.save_position,
    method="PUT",
    path=POSITION_PATH,
    number=3,
    request=NewPosition,
    right=in_group(transactions=True),
    repeat=Repeat.KEYED,
    summary="Moves a group with the commit of a transaction.",
    tag=TAG,
    refuses=(409,),
    schema_name="NewPosition",
)
# It answers what two methods do; a client takes the one or the other.
LAG = Verb(
    does=OperatorService.lag_ms,
    method="GET",
    path=POSITION_PATH + "/lag",
    number=4,
    request=GroupInTopic,
    answer=Annotated[
        dict[str, int], fields({"lagMs": whole(0), "oldestUnreadMs": whole(0)})
    ],
    right=in_group(),
    work=Work.COORDINATOR,
    summary="How far a group is behind, and how old what it has to read is.",
    tag=TAG,
    spaced=True,
)

VERBS = verbs_in(globals())
