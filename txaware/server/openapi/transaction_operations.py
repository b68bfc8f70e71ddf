"""The bodies and answers of the routes of the coordinator."""

from typing import Any

from coordinator.remote import calls
from coordinator.remote.calls import RemoteCall
from txaware.protocol.json_schema import (
    BASE64,
    TEXT,
    Schema,
    array,
    fields,
    or_null,
    whole,
)
from txaware.protocol.transactions import (
    PARTICIPANT,
    POINTERS,
    TAG,
)
from txaware.server.openapi.operation import Operation, json_of
from txaware.server.routes.commits import CARRIED

NAMED: dict[str, Schema] = {
    "type": {"enum": ["short", "long"]},
    "checkpoints": POINTERS | {"description": "Its further write pointers."},
}
_NOTHING = json_of({"type": "object", "maxProperties": 0})
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
