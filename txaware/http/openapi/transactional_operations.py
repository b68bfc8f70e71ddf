"""The bodies and answers of the routes of transactional ids."""

from txaware.http.openapi.operation import Operation, json_of
from txaware.http.routes.transactional_ids import (
    ENTER,
    LEAVE,
    SEEN_COMMITS,
    TRANSACTIONAL_ID,
)
from txaware.http.wire.json_schema import FLAG, fields, whole

TAG = "producers"
_COMMITS = {"commits": whole(0)}

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", TRANSACTIONAL_ID + "/commits"): Operation(
        summary="How many of its transactions have committed; refused to an instance "
        "that is named and was replaced.",
        tag=TAG,
        body=json_of(SEEN_COMMITS.schema, example={}),
        answer=json_of(fields(_COMMITS)),
        refuses=(409,),
    ),
    ("POST", TRANSACTIONAL_ID + "/enter"): Operation(
        summary="Makes a transaction that of an instance; with a key, unless that was "
        "committed before.",
        tag=TAG,
        body=json_of(ENTER.schema),
        answer=json_of(fields(_COMMITS | {"isDone": FLAG, "isWritten": FLAG})),
        refuses=(409,),
    ),
    ("POST", TRANSACTIONAL_ID + "/leave"): Operation(
        summary="Takes that back, for a transaction that is rolled back.",
        tag=TAG,
        body=json_of(LEAVE.schema, example={"transaction": 1}),
        refuses=(409,),
    ),
}
