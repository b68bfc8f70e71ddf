"""The bodies and answers of the routes of producers and transactional ids."""

from txaware.protocol.formats.publish_once import ONCE
from txaware.protocol.json_schema import (
    BASE64,
    FLAG,
    HEX_ID,
    any_of,
    array,
    fields,
    whole,
)
from txaware.server.openapi.operation import Operation, in_msgpack, json_of
from txaware.server.routes.producers import PUBLISH_ONCE
from txaware.server.routes.transactional_ids import (
    BEGIN,
    ENTER,
    LEAVE,
    SEEN_COMMITS,
    TRANSACTIONAL_ID,
)

TAG = "producers"
_COMMITS = {"commits": whole(0)}
_ENTERED = _COMMITS | {"isDone": FLAG, "isWritten": FLAG}

_BODY = json_of(ONCE.schema) | in_msgpack("PublishOnceRequest")
_IDS = json_of(any_of(fields({"ids": array(HEX_ID)}), fields({}))) | in_msgpack(
    "PublishedIds"
)

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", PUBLISH_ONCE): Operation(
        summary="Publishes messages of a producer, unless it did already, and answers "
        "their ids.",
        tag=TAG,
        body=_BODY,
        answer=_IDS,
        refuses=(404, 409),
    ),
    ("POST", TRANSACTIONAL_ID + "/commits"): Operation(
        summary="How many of its transactions have committed; refused to an instance "
        "that is named and was replaced.",
        tag=TAG,
        body=json_of(SEEN_COMMITS.schema, example={}),
        answer=json_of(fields(_COMMITS)),
        refuses=(409,),
    ),
    ("POST", TRANSACTIONAL_ID + "/begin"): Operation(
        summary="Begins a short transaction, and makes it that of an instance.",
        tag=TAG,
        body=json_of(BEGIN.schema),
        answer=json_of(fields(_ENTERED | {"transaction": BASE64})),
        refuses=(409, 429),
    ),
    ("POST", TRANSACTIONAL_ID + "/enter"): Operation(
        summary="Makes a transaction that of an instance; with a key, unless that was "
        "committed before.",
        tag=TAG,
        body=json_of(ENTER.schema),
        answer=json_of(fields(_ENTERED)),
        refuses=(409,),
    ),
    ("POST", TRANSACTIONAL_ID + "/leave"): Operation(
        summary="Takes that back, for a transaction that is rolled back.",
        tag=TAG,
        body=json_of(LEAVE.schema, example={"transaction": 1}),
        refuses=(409,),
    ),
}
