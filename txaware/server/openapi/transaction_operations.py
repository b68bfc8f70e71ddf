"""The bodies and answers of the routes of the coordinator."""

from typing import Any

from coordinator.outcome import Outcome
from coordinator.remote import calls
from coordinator.remote.calls import RemoteCall
from coordinator.remote.client import BYTES as BYTES_TYPE
from coordinator.remote.server import DECIDABLE
from coordinator.transaction_status import ENDED, INVALID, NEVER, OPEN, STATES
from txaware.protocol.json_schema import (
    BASE64,
    BYTES,
    FLAG,
    NULL,
    TEXT,
    TIMEOUT_S,
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
    TAG,
)
from txaware.server.openapi.operation import Content, Operation, json_of
from txaware.server.routes.commits import CARRIED

NAMED: dict[str, Schema] = {
    "type": {"enum": ["short", "long"]},
    "checkpoints": POINTERS | {"description": "Its further write pointers."},
}
_TRANSACTION: Content = {
    BYTES_TYPE: {"schema": BYTES | {"description": "As Tephra's codec writes it."}}
}
_TRANSACTION |= json_of(
    fields(
        {
            "transactionId": whole(0),
            "writePointer": whole(0),
            "readPointer": whole(0),
            "type": {"enum": ["short", "long"]},
            "timeoutS": or_null({"type": "number"})
            | {"description": "null for a long one, and where it is not known here."},
            "transaction": BASE64 | {"description": "The bytes, as a poll takes them."},
        }
    )
)
_NOTHING = json_of({"type": "object", "maxProperties": 0})
_BEGIN = any_of(
    fields({}, {"type": {"const": "short"}, "timeoutS": or_null(TIMEOUT_S)}),
    fields({"type": {"const": "long"}}, {"timeoutS": NULL}),
)
_STANDING = fields(
    {
        "transactionId": whole(0),
        "state": {"enum": [OPEN, INVALID, ENDED, NEVER]},
        "pointers": POINTERS,
        "type": or_null({"enum": ["short", "long"]}),
        "stage": or_null(TEXT),
        "expiresMs": or_null(whole()),
        "changes": or_null(whole(0)),
        "beganMs": whole(0),
        "principal": or_null(TEXT) | {"description": "Who began it, where known."},
        "address": or_null(TEXT)
        | {"description": "From where: HOST:PORT, or the coordinator's own process."},
        "isHeld": FLAG | {"description": "Whether that client surely still has it."},
        "heardMs": or_null(whole(0))
        | {"description": "When that client last used it, where known."},
    }
)
_STATE = fields(
    {
        "status": TEXT,
        "open": whole(0),
        "oldestMs": or_null(whole(0)),
        "invalid": whole(0),
    }
)
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
    calls.START: Operation(
        summary="Begins a transaction.",
        tag=TAG,
        body=json_of(_BEGIN, example={"type": "short", "timeoutS": 30}),
        needs_body=False,
        answer=_TRANSACTION,
        refuses=(429,),
    ),
    calls.LIST: _look(
        "All that are open, or invalid.",
        array(_STANDING),
        state={"enum": [*STATES]},
    ),
    calls.FIND_HANGING: _look(
        "Those that are open for long, and that nobody has or has used since.",
        array(_STANDING),
        olderThanS={"type": "number", "minimum": 0},
    ),
    calls.STATE: _look("How many there are.", _STATE),
    calls.INVALID_SIZE: _look(
        "How many pointers are invalid.", fields({"invalidSize": whole(0)})
    ),
    calls.STATUS: _look(
        "OK, or a sentence about what is wrong.", fields({"status": TEXT})
    ),
    calls.SNAPSHOT: Operation(
        summary="A read-only transaction.", tag=TAG, answer=_TRANSACTION
    ),
    calls.TRUNCATE: Operation(
        summary="Forgets invalid pointers, those named or those begun before a time.",
        tag=TAG,
        body=json_of(_TRUNCATE, example={"pointers": []}),
        needs_body=False,
        answer=json_of(fields({"truncated": FLAG})),
        refuses=(409,),
    ),
    calls.DESCRIBE: _look("One transaction, whatever became of it.", _STANDING),
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
