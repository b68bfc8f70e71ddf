"""The bodies and answers of the routes of messages."""

from txaware.protocol.formats.publish_once import ONCE
from txaware.protocol.json_schema import HEX_ID, any_of, array, fields, ref
from txaware.protocol.producers import TAG as PRODUCERS
from txaware.protocol.topics import TOPIC
from txaware.server.openapi.operation import (
    Operation,
    in_all_formats,
    in_msgpack,
    json_of,
)
from txaware.server.routes.producers import PUBLISH_ONCE

TAG = "messages"
_WRITES = (404, 409)
_EXAMPLE_POINTER = 1_700_000_000_000_000_000
_RESPONSE = {
    "transactionWritePointer": _EXAMPLE_POINTER,
    "startTimestamp": 1_700_000_000_000,
    "startSequenceId": 0,
    "endTimestamp": 1_700_000_000_000,
    "endSequenceId": 1,
}


_PUBLISH = in_all_formats(
    json_of(
        ref("PublishRequest"),
        example={
            "messages": [
                "ann paid 5",
                {"utf8": "grüße", "key": "ann", "headers": {"source": "till 3"}},
                {"base64": "AAEC", "expireAfterMs": 60_000},
            ]
        },
    ),
    body="PublishRequest",
)
_STORE = in_all_formats(
    json_of(
        ref("PublishRequest"),
        example={"transactionWritePointer": _EXAMPLE_POINTER, "messages": ["a", "b"]},
    ),
    body="PublishRequest",
)
_RECEIPT = json_of(ref("Receipt")) | in_msgpack("Receipt")
_POLL = in_all_formats(
    json_of(
        ref("ConsumeRequest"),
        example={"startFrom": None, "limit": 10, "page": True},
    ),
    body="ConsumeRequest",
    own="PollRequest",
)
_PAGE = in_all_formats(
    json_of(any_of(ref("ConsumeResponse"), ref("Page"))),
    body="ConsumeResponse",
    own="PollResponse",
)

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", TOPIC + "/publish"): Operation(
        summary="Publishes messages; in a transaction answers what rollback takes, and "
        "else nothing: {} in JSON.",
        tag=TAG,
        body=_PUBLISH,
        answer=in_all_formats(
            json_of(any_of(ref("PublishResponse"), fields({}))), body="PublishResponse"
        ),
        refuses=_WRITES,
    ),
    ("POST", TOPIC + "/store"): Operation(
        summary="Stores messages ahead of the commit that a publish refers to.",
        tag=TAG,
        body=_STORE,
        answer=_RECEIPT,
        refuses=_WRITES,
    ),
    ("POST", TOPIC + "/rollback"): Operation(
        summary="Takes back what a publish in a transaction answered.",
        tag=TAG,
        body=in_all_formats(
            json_of(
                any_of(ref("PublishResponse"), ref("NestedPublishResponse")),
                example=_RESPONSE,
            ),
            body="PublishResponse",
        ),
        refuses=_WRITES,
    ),
    ("POST", TOPIC + "/poll"): Operation(
        summary="Reads messages, and waits for some where it is asked to.",
        tag=TAG,
        body=_POLL,
        answer=_PAGE,
    ),
    ("POST", PUBLISH_ONCE): Operation(
        summary="Publishes messages of a producer, unless it did already, and answers "
        "their ids.",
        tag=PRODUCERS,
        body=json_of(ONCE.schema) | in_msgpack("PublishOnceRequest"),
        answer=json_of(any_of(fields({"ids": array(HEX_ID)}), fields({})))
        | in_msgpack("PublishedIds"),
        refuses=_WRITES,
    ),
}
