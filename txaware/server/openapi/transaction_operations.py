"""The bodies and answers of the routes of the coordinator."""

from typing import Any

from coordinator.outcome import Outcome
from coordinator.remote import calls
from coordinator.remote.calls import RemoteCall
from coordinator.remote.server import DECIDABLE
from txaware.protocol.json_schema import (
    BASE64,
    FLAG,
    TEXT,
    Schema,
    any_of,
    array,
    fields,
    or_null,
    whole,
)
from txaware.protocol.transactions import (
    LIFE,
    PARTICIPANT,
    POINTERS,
    STANDING,
    TAG,
)
from txaware.server.openapi.operation import Operation, json_of
from txaware.server.routes.commits import CARRIED

NAMED: dict[str, Schema] = {
    "type": {"enum": ["short", "long"]},
    "checkpoints": POINTERS | {"description": "Its further write pointers."},
}
_NOTHING = json_of({"type": "object", "maxProperties": 0})
_TRUNCATE = any_of(
    fields({"beforeMs": whole(0)}),
    fields({}, {"pointers": POINTERS}),
)


def _look(summary: str, schema: Schema, **query: Schema) -> Operation:
    return Operation(summary=summary, tag=TAG, answer=json_of(schema), query=query)


_CHECK: dict[str, Any] = {
    "type": ["boolean", "null"],
    "description": "True where can-commit was not asked: it is now, for the changes.",
}
_REPEAT: dict[str, Any] = {
    "type": ["boolean", "null"],
    "description": "True where it is asked again after a lost answer, and what became "
    "of it the first time is to be told.",
}


_DESCRIBED: dict[RemoteCall, Operation] = {
    calls.FIND_HANGING: _look(
        "Those that are open for long, and that nobody has or has used since.",
        array(STANDING),
        olderThanS={"type": "number", "minimum": 0},
    ),
    calls.INVALID_SIZE: _look(
        "How many pointers are invalid.", fields({"invalidSize": whole(0)})
    ),
    calls.TRUNCATE: Operation(
        summary="Forgets invalid pointers, those named or those begun before a time.",
        tag=TAG,
        body=json_of(_TRUNCATE, example={"pointers": []}),
        needs_body=False,
        answer=json_of(fields({"truncated": FLAG})),
        refuses=(409,),
    ),
    calls.OUTCOME: _look(
        "What became of what was written with a pointer.",
        fields({"outcome": {"enum": [one.value for one in Outcome]}, "life": LIFE}),
        life=LIFE,
    ),
    calls.DECIDE: Operation(
        summary="Writes down the outcome of a pointer that nobody knows.",
        tag=TAG,
        body=json_of(fields({"outcome": {"enum": [*DECIDABLE]}}, {"life": LIFE})),
        answer=_NOTHING,
        refuses=(409,),
    ),
    calls.COMMIT: Operation(
        summary="Makes its writes visible, and what comes with the commit: all of it "
        "or nothing.",
        tag=TAG,
        body=json_of(
            fields(
                {},
                NAMED
                | {"check": _CHECK, "changes": array(BASE64), "repeat": _REPEAT}
                | CARRIED.schema["properties"],
            ),
            example={
                "check": True,
                "publishes": [{"topic": "orders", "messages": [{"utf8": "paid"}]}],
            },
        ),
        needs_body=False,
        answer=_NOTHING,
        refuses=(404, 409),
    ),
    calls.ENTER: Operation(
        summary="Has a write of another store enter the write barrier: its end waits "
        "for that. Refused once it ends.",
        tag=TAG,
        body=json_of(
            fields(
                {"writer": PARTICIPANT, "write": whole(0)},
                {
                    "principal": or_null(TEXT)
                    | {"description": "Who writes there, if not the caller itself."}
                },
            )
        ),
        answer=json_of(fields({"since": TEXT})),
        refuses=(409,),
    ),
    calls.HELLO: Operation(
        summary="Tells that of these shards nothing is under way that entered at an "
        "earlier server. Until then no transaction of before ends.",
        tag=TAG,
        body=json_of(fields({"writer": PARTICIPANT}, {"shards": array(whole(0))})),
        answer=_NOTHING,
    ),
    calls.LEAVE: Operation(
        summary="Has writes of another store leave the write barrier.",
        tag=TAG,
        body=json_of(fields({"writer": PARTICIPANT}, {"writes": array(whole(0))})),
        answer=_NOTHING,
    ),
    calls.ENDS: Operation(
        summary="Waits for ends of transactions in which another store wrote.",
        tag=TAG,
        body=json_of(
            fields(
                {
                    **{"writer": PARTICIPANT, "since": TEXT},
                    **{"after": whole(0), "waitMs": whole(0)},
                }
            ),
            example={"writer": "5f0c", "since": "", "after": 0, "waitMs": 0},
        ),
        answer=json_of(fields({"since": TEXT, "next": whole(0), "ended": POINTERS})),
    ),
}
OPERATIONS = {
    (call.method, call.path("{transaction}")): operation
    for call, operation in _DESCRIBED.items()
}
