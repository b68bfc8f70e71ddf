"""What the routes of topics and of consumer groups take and answer."""

from txaware.http.openapi.operation import Operation, json_of
from txaware.http.openapi.schema import fields, ref, whole
from txaware.http.routes.groups import POSITION
from txaware.http.routes.topics import TOPIC, TOPICS

TAG, GROUPS = "topics", "groups"
_EXAMPLE = {"ttl": 86_400, "publishing": "any", "owner": "billing"}
_NAMES = json_of(ref("Names"))

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("PUT", TOPIC): Operation(
        summary="Creates a topic.",
        tag=TAG,
        body=json_of(ref("Properties"), example=_EXAMPLE),
        needs_body=False,
        refuses=(409,),
    ),
    ("GET", TOPIC): Operation(
        summary="A topic as it stands.", tag=TAG, answer=json_of(ref("Topic"))
    ),
    ("DELETE", TOPIC): Operation(summary="Deletes a topic with its messages.", tag=TAG),
    ("PUT", TOPIC + "/properties"): Operation(
        summary="Replaces all properties of a topic.",
        tag=TAG,
        body=json_of(ref("Properties"), example=_EXAMPLE),
    ),
    ("PATCH", TOPIC + "/properties"): Operation(
        summary="Changes what is named and leaves the rest; null takes away.",
        tag=TAG,
        body=json_of(ref("PropertyChanges"), example={"ttl": 86_400, "owner": None}),
    ),
    ("GET", TOPICS): Operation(
        summary="The topics of a namespace, as far as the caller may see them.",
        tag=TAG,
        answer=_NAMES,
    ),
    ("GET", "/v1/namespaces"): Operation(
        summary="Namespaces with a topic that the caller may see.",
        tag=TAG,
        answer=_NAMES,
    ),
    ("GET", POSITION): Operation(
        summary="How far a group has come, as a fresh snapshot sees it.",
        tag=GROUPS,
        answer=json_of(ref("Position")),
    ),
    ("POST", POSITION): Operation(
        summary="How far a group has come, as a transaction sees it.",
        tag=GROUPS,
        body=json_of(ref("PositionSeenBy")),
        answer=json_of(ref("Position")),
    ),
    ("PUT", POSITION): Operation(
        summary="Moves a group with the commit of a transaction.",
        tag=GROUPS,
        body=json_of(ref("NewPosition")),
        refuses=(409,),
    ),
    ("GET", POSITION + "/lag"): Operation(
        summary="How far a group is behind, and how old what it has to read is.",
        tag=GROUPS,
        answer=json_of(fields({"lagMs": whole(0), "oldestUnreadMs": whole(0)})),
    ),
}
