"""What is described of the routes of queues."""

from txaware.model.queues import MAX_DELAY_S, MAX_PRIORITY
from txaware.protocol.json_schema import TEXT, array, fields, ref, whole
from txaware.protocol.queues import QUEUE
from txaware.server.openapi.operation import Operation, in_all_formats, json_of
from txaware.server.routes.queue_jobs import (
    CLOSE_PUSHER,
    COMMIT,
    END_HANDLED,
    PIPE_OF,
    PIPES_OF,
    POP,
    RELEASE,
    ROLLBACK,
)

_TAG = "queues"
_WITH_A_LEASE = (409,)

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", QUEUE + "/push"): Operation(
        summary="Pushes items in one piece, all or none; the body is that of a publish "
        "with messages alone.",
        tag=_TAG,
        body=in_all_formats(
            json_of(
                {
                    "allOf": [
                        ref("PublishRequest"),
                        {"properties": {"messages": {"minItems": 1}}},
                    ]
                },
                example={"messages": ["to ann", {"utf8": "to bob", "key": "bob"}]},
            ),
            body="PublishRequest",
        ),
        query={
            "pusher": TEXT,
            "delayMs": whole(0, MAX_DELAY_S * 1000),
            "priority": whole(0, MAX_PRIORITY),
        },
        refuses=(429,),
    ),
    ("POST", QUEUE + "/pipe"): Operation(
        summary="A pipe of the queue, whose name a publish in that transaction takes "
        "for a topic.",
        tag=_TAG,
        body=json_of(PIPE_OF.schema, example={"transaction": 5, "pusher": "till 3"}),
        answer=json_of(fields({"pipe": TEXT})),
        refuses=(409, 429),
    ),
    ("POST", QUEUE + "/pipes"): Operation(
        summary="Pipes of the queue with room for so many items or more, to publish to "
        "in that transaction, one after the other.",
        tag=_TAG,
        body=json_of(
            PIPES_OF.schema, example={"transaction": 5, "pusher": "till 3", "items": 8}
        ),
        answer=json_of(array(ref("PipeShare"))),
        refuses=(409, 429),
    ),
    ("POST", QUEUE + "/close-pusher"): Operation(
        summary="Has the pipes of a pusher take no more pushes.",
        tag=_TAG,
        body=json_of(CLOSE_PUSHER.schema, example={"pusher": "till 3"}),
    ),
    ("POST", QUEUE + "/pop"): Operation(
        summary="Leases items, and waits for the first where it is asked to; in a "
        "transaction they are final with its commit.",
        tag=_TAG,
        body=json_of(POP.schema, example={"limit": 10, "waitMs": 10}),
        answer=json_of(array(ref("Popped"))),
        refuses=(409,),
    ),
    ("POST", QUEUE + "/commit"): Operation(
        summary="Ends a job for good: now, or with the commit of a transaction.",
        tag=_TAG,
        body=json_of(COMMIT.schema),
        refuses=_WITH_A_LEASE,
    ),
    ("POST", QUEUE + "/end-handled"): Operation(
        summary="Ends items that were handled, as a database says, and that wait again "
        "or belong to that transaction; answers those that are still there.",
        tag=_TAG,
        body=json_of(END_HANDLED.schema),
        answer=json_of(fields({"left": array(TEXT)})),
        refuses=(409,),
    ),
    ("POST", QUEUE + "/rollback"): Operation(
        summary="Has a job wait again; the error goes to its dead letter.",
        tag=_TAG,
        body=json_of(ROLLBACK.schema),
        refuses=_WITH_A_LEASE,
    ),
    ("POST", QUEUE + "/release"): Operation(
        summary="Gives back what a transaction popped, before it is aborted.",
        tag=_TAG,
        body=json_of(RELEASE.schema, example={"transaction": 5}),
        refuses=(409,),
    ),
}
