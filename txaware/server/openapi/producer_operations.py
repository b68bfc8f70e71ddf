"""The bodies and answers of the routes of a publish that is known again."""

from txaware.protocol.formats.publish_once import ONCE
from txaware.protocol.json_schema import (
    HEX_ID,
    any_of,
    array,
    fields,
)
from txaware.server.openapi.operation import Operation, in_msgpack, json_of
from txaware.server.routes.producers import PUBLISH_ONCE

TAG = "producers"
_BODY = json_of(ONCE.schema) | in_msgpack("PublishOnceRequest")
_IDS = json_of(any_of(fields({"ids": array(HEX_ID)}), fields({}))) | in_msgpack(
    "PublishedIds"
)

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", PUBLISH_ONCE): Operation(
        summary="Publishes messages of a producer, unless it did already, and answers "
        "their ids.",
        tag=TAG,
        body=_BODY,
        answer=_IDS,
        refuses=(404, 409),
    ),
}
