"""What is described of the routes of prepared transactions."""

from coordinator.prepared_transactions import LONGEST_NAME, NAME
from txaware.protocol.json_schema import (
    TEXT,
    Schema,
    array,
    fields,
    or_null,
    whole,
)
from txaware.server.openapi.operation import Operation, json_of
from txaware.server.openapi.transaction_operations import NAMED, TAG
from txaware.server.routes.prepared import COMMIT, PREPARE, PREPARED, ROLL_BACK

_NAME: Schema = TEXT | {"pattern": NAME, "maxLength": LONGEST_NAME}
_NOTHING = json_of({"type": "object", "maxProperties": 0})
_POINTER: Schema = or_null(whole(0)) | {
    "description": "Its id, where the call is repeated: it may have ended already."
}
_ENTRY = fields(
    {
        "name": _NAME,
        "transactionId": whole(0),
        "sinceMs": whole(0),
        "principal": or_null(TEXT)
        | {"description": "Who prepared it; null for the program with the data."},
    }
)


def _end(summary: str, name: str) -> Operation:
    return Operation(
        summary=summary,
        tag=TAG,
        body=json_of(
            fields({"name": _NAME}, {"transactionId": _POINTER}),
            example={"name": name},
        ),
        answer=_NOTHING,
        refuses=(404, 409),
    )


OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", PREPARE): Operation(
        summary="Prepares it: it never times out, and only its name ends it.",
        tag=TAG,
        body=json_of(fields({"name": _NAME}, NAMED), example={"name": "order-7"}),
        answer=_NOTHING,
        refuses=(409,),
    ),
    ("GET", PREPARED): Operation(
        summary="Those that are prepared, and that the caller may end.",
        tag=TAG,
        answer=json_of(array(_ENTRY)),
    ),
    ("POST", COMMIT): _end("Commits a prepared transaction.", "order-7"),
    ("POST", ROLL_BACK): _end("Rolls one back: nobody ever sees it.", "order-8"),
}
