"""What is described of the route of pushes."""

from txaware.model.queues import MAX_DELAY_S, MAX_PRIORITY
from txaware.protocol.json_schema import TEXT, ref, whole
from txaware.protocol.queues import QUEUE, TAG
from txaware.server.openapi.operation import Operation, in_all_formats, json_of

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", QUEUE + "/push"): Operation(
        summary="Pushes items in one piece, all or none; the body is that of a publish "
        "with messages alone.",
        tag=TAG,
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
}
