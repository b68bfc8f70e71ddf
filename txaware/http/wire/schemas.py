"""The Avro schemas of all media types, as the server publishes them."""

import json
from typing import Any

AVRO_TYPE = "avro/binary"
OWN_TYPE = "application/vnd.txaware+avro"
COLUMNS_TYPE = "application/vnd.txaware.columns+avro"

Schema = dict[str, Any]


def schemas() -> dict[str, dict[str, Schema]]:
    """Returns schemas by media type and name of a body; a copy of the caller's own."""
    copy: dict[str, dict[str, Schema]] = json.loads(json.dumps(_SCHEMAS))
    return copy


def _record(name: str, **fields: Any) -> Schema:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


def _array(items: Any) -> Schema:
    return {"type": "array", "items": items}


_MESSAGES = _array(_record("Message", id="bytes", payload="bytes"))
_RECEIPT = _record(
    "Receipt", pointer="long", topic="string", attempt="bytes", count="int"
)
_PUBLISH = {"transactionWritePointer": ["long", "null"], "messages": _array("bytes")}
_PUBLISH_RESPONSE = _record(
    "PublishResponse",
    transactionWritePointer=["long", "null"],
    startTimestamp="long",
    startSequenceId="int",
    endTimestamp="long",
    endSequenceId="int",
)
_POLL = {
    "startFrom": ["bytes", "long", "null"],
    "inclusive": "boolean",
    "limit": ["int", "null"],
    "transaction": ["bytes", "null"],
}
_PAGE_END = {
    "next": "bytes",
    "blockedBy": ["null", _record("BlockedBy", pointer="long", sinceMs="long")],
    "skippedBefore": ["null", "long"],
}
_CONSUME_REQUEST = _record("ConsumeRequest", **_POLL)
_CONSUME_REQUEST["fields"][1]["default"] = True
_SCHEMAS: dict[str, dict[str, Schema]] = {
    AVRO_TYPE: {
        "PublishRequest": _record("PublishRequest", **_PUBLISH),
        "PublishResponse": _PUBLISH_RESPONSE,
        "ConsumeRequest": _CONSUME_REQUEST,
        "ConsumeResponse": _MESSAGES,
    },
    OWN_TYPE: {
        "PublishRequest": _record(
            "PublishRequest",
            **_PUBLISH,
            expireAfterMs=["null", _array(["null", "long"])],
            attempt=["null", "bytes"],
            receipts=["null", _array(_RECEIPT)],
        ),
        "PublishResponse": _PUBLISH_RESPONSE,
        "Receipt": _RECEIPT,
        "PollRequest": _record(
            "PollRequest", **_POLL, isolation="string", waitMs="long"
        ),
        "PollResponse": _record("PollResponse", messages=_MESSAGES, **_PAGE_END),
    },
}
_SCHEMAS[OWN_TYPE] |= {
    "PublishOnceRequest": _record(
        "PublishOnceRequest",
        producerId="long",
        epoch="int",
        byClient="boolean",
        sequence="int",
        request=_SCHEMAS[OWN_TYPE]["PublishRequest"],
    ),
    "PublishedIds": _array("bytes"),
}
_PIECE = _record("Piece", ids="bytes", places="bytes", payloads="bytes")
_SCHEMAS[COLUMNS_TYPE] = _SCHEMAS[OWN_TYPE] | {
    "PollResponse": _record("PollResponse", pieces=_array(_PIECE), **_PAGE_END)
}
