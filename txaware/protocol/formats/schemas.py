"""The Avro schemas of all media types, as the server publishes them."""

import json
from typing import Any

AVRO_TYPE = "avro/binary"
OWN_TYPE = "application/vnd.txaware+avro"
COLUMNS_TYPE = "application/vnd.txaware.columns+avro"
# The same with keys and headers, for readers and writers that know of them.
LABELLED_TYPE = "application/vnd.txaware.v2+avro"
LABELLED_COLUMNS_TYPE = "application/vnd.txaware.columns.v2+avro"
# The same again, whose pages have the last stable position.
STABLE_TYPE = "application/vnd.txaware.v3+avro"
OWN_TYPES = (
    OWN_TYPE,
    COLUMNS_TYPE,
    LABELLED_TYPE,
    STABLE_TYPE,
    LABELLED_COLUMNS_TYPE,
)

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
_OWN_PUBLISH = {
    **_PUBLISH,
    "expireAfterMs": ["null", _array(["null", "long"])],
    "attempt": ["null", "bytes"],
    "receipts": ["null", _array(_RECEIPT)],
}
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
        "PublishRequest": _record("PublishRequest", **_OWN_PUBLISH),
        "PublishResponse": _PUBLISH_RESPONSE,
        "Receipt": _RECEIPT,
        "PollRequest": _record(
            "PollRequest", **_POLL, isolation="string", waitMs="long"
        ),
        "PollResponse": _record("PollResponse", messages=_MESSAGES, **_PAGE_END),
        "RowChanges": _record(
            "RowChanges",
            transaction="long",
            changes=_array(
                _record(
                    "RowChange",
                    key="bytes",
                    value=["null", "bytes"],
                    expireAfterMs=["null", "long"],
                )
            ),
        ),
    },
}


def _once(publish: Schema) -> dict[str, Schema]:
    return {
        "PublishOnceRequest": _record(
            "PublishOnceRequest",
            producerId="long",
            epoch="int",
            byClient="boolean",
            sequence="int",
            request=publish,
        ),
        "PublishedIds": _array("bytes"),
    }


_SCHEMAS[OWN_TYPE] |= _once(_SCHEMAS[OWN_TYPE]["PublishRequest"])
_PIECE = {"ids": "bytes", "places": "bytes", "payloads": "bytes"}
_LABELS = _record(
    "Labels",
    hasKey="bytes",
    keyPlaces="bytes",
    keys="bytes",
    headerPlaces="bytes",
    headers="bytes",
)


def _in_pieces(end: dict[str, Any] = _PAGE_END, /, **piece: Any) -> dict[str, Schema]:
    pieces = _array(_record("Piece", **piece))
    return {"PollResponse": _record("PollResponse", pieces=pieces, **end)}


_SCHEMAS[COLUMNS_TYPE] = _SCHEMAS[OWN_TYPE] | _in_pieces(**_PIECE)
_OPTIONAL = {"labels": ["null", _LABELS]}
_LABELLED_PUBLISH = _record("PublishRequest", **_OWN_PUBLISH, **_OPTIONAL)
_SCHEMAS[LABELLED_TYPE] = {
    **_SCHEMAS[OWN_TYPE],
    "PublishRequest": _LABELLED_PUBLISH,
    **_once(_LABELLED_PUBLISH),
    **_in_pieces(messages=_MESSAGES, **_OPTIONAL),
}
_STABLE_END = {**_PAGE_END, "lastStable": ["null", "bytes"]}
_SCHEMAS[STABLE_TYPE] = {
    **_SCHEMAS[LABELLED_TYPE],
    **_in_pieces(_STABLE_END, messages=_MESSAGES, **_OPTIONAL),
}
_SCHEMAS[LABELLED_COLUMNS_TYPE] = {
    **_SCHEMAS[LABELLED_TYPE],
    **_in_pieces(**_PIECE, **_OPTIONAL),
}
