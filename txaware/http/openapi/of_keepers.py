"""What the routes of participants with rows of their own take and answer."""

from coordinator.remote.wire import LONGEST_NAME
from txaware.http.openapi.operation import Operation, json_of
from txaware.http.openapi.schema import TEXT, Schema, array, fields, or_null, ref, whole
from txaware.http.openapi.server_operations import OPERATORS
from txaware.http.routes.keepers import FORGET, KEEPERS

_NAME: Schema = TEXT | {"minLength": 1, "maxLength": LONGEST_NAME}

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", KEEPERS): Operation(
        summary="Participants that keep rows of their own, registered or not.",
        tag=OPERATORS,
        answer=json_of(array(ref("Keeper"))),
    ),
    ("POST", KEEPERS): Operation(
        summary="Registers one, or raises the least pointer that its rows may hold: "
        "nothing from there on is forgotten.",
        tag=OPERATORS,
        body=json_of(
            fields({"name": _NAME}, {"smallestPointer": or_null(whole(0))}),
            example={"name": "notes", "smallestPointer": None},
        ),
        answer=json_of(ref("Keeper")),
    ),
    ("POST", FORGET): Operation(
        summary="Forgets one whose rows are gone.",
        tag=OPERATORS,
        body=json_of(fields({"name": _NAME})),
        refuses=(404,),
    ),
}
