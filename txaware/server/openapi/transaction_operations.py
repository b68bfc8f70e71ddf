"""The bodies and answers of the routes of the coordinator."""

from coordinator.remote import calls
from coordinator.remote.calls import RemoteCall
from txaware.protocol.json_schema import (
    TEXT,
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

_NOTHING = json_of({"type": "object", "maxProperties": 0})
_DESCRIBED: dict[RemoteCall, Operation] = {
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
