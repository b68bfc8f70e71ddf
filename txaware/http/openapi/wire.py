"""Schemas of what travels as JSON: topics, messages, polls, positions, transactions."""

from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import attrs

from txaware.http.openapi.schema import (
    BASE64,
    FLAG,
    HEX_ID,
    INT_MAX,
    LATIN_1,
    NULL,
    POINTER,
    TEXT,
    Schema,
    any_of,
    array,
    fields,
    or_null,
    ref,
    tagged,
    whole,
)
from txaware.http.wire.json_format import PAYLOAD_AS
from txaware.http.wire.requests import MAX_MESSAGES
from txaware.http.wire.values import camel
from txaware.interfaces import COMMITTED, UNCOMMITTED
from txaware.keeper import Keeper
from txaware.messages import MessageId
from txaware.metrics import Metrics
from txaware.reports import CleanUp, OpenPlan, Peeked, Pruned, Report, TopicReport
from txaware.requests import MAX_ATTEMPT_BYTES, MAX_TIME_MS
from txaware.service.monitor.overview_report import OverviewReport
from txaware.topics import DEFAULT_TTL_S, MAX_TTL_S, PUBLISHING

_COUNT = tagged("int", whole(1, INT_MAX))
_POINTER = tagged("long", POINTER)
# Fixed-size text of base64 is 4 characters for 3 bytes.
_ATTEMPT = BASE64 | {"maxLength": (MAX_ATTEMPT_BYTES + 2) // 3 * 4}
_TRANSACTION = or_null(any_of(BASE64, fields({"bytes": LATIN_1})))
_EXPIRY = {
    "expireAfterMs": or_null(tagged("long", whole(1, MAX_TIME_MS // 2))),
}
_ENDS: dict[str, Schema] = {
    "startTimestamp": tagged("long", whole(0)),
    "startSequenceId": tagged("int", whole(0, 65_535)),
    "endTimestamp": tagged("long", whole(0)),
    "endSequenceId": tagged("int", whole(0, 65_535)),
}
_PAYLOAD = any_of(TEXT, fields({"base64": BASE64}))
_HEX = {"type": "string", "pattern": "^[0-9a-f]{40}$"}


def wire_schemas() -> dict[str, Schema]:
    """Returns schemas by name; bodies that the server reads have known fields only."""
    return {**_topics(), **_messages(), **_polls(), **_positions()}


def _topics() -> dict[str, Schema]:
    ttl = any_of(
        whole(1, MAX_TTL_S), {"type": "string", "pattern": "^[1-9][0-9]{0,8}$"}
    )
    generation = any_of(
        NULL,
        {"type": "integer", "minimum": 1},
        {"type": "string", "pattern": "^0{0,19}[1-9][0-9]*$"},
    )
    known: dict[str, Schema] = {
        "ttl": ttl | {"description": f"Seconds; {DEFAULT_TTL_S} where it is missing."},
        "generation": generation | {"description": "It is passed over."},
        "publishing": {"enum": list(PUBLISHING)},
    }
    answered: dict[str, Schema] = {
        "generation": {"type": "string", "pattern": "^[1-9][0-9]*$"},
        "ttl": {"type": "string", "pattern": "^[1-9][0-9]*$"},
    }
    return {
        "Properties": fields({}, known, others=TEXT),
        "PropertyChanges": fields(
            {},
            {
                "ttl": ttl | {"description": "Seconds; it stays where it is missing."},
                "generation": known["generation"],
                "publishing": {"enum": [*PUBLISHING, None]},
            },
            others=or_null(TEXT),
        ),
        "Topic": fields(
            {"name": TEXT, "properties": fields(answered, others=TEXT)},
        ),
        "Names": array(TEXT),
    }


def _messages() -> dict[str, Schema]:
    message = any_of(
        LATIN_1,
        fields({"utf8": TEXT}, _EXPIRY),
        fields({"base64": BASE64}, _EXPIRY),
    )
    attempt = any_of(_ATTEMPT, fields({"bytes": LATIN_1 | {"maxLength": 16}}))
    receipt = fields(
        {"pointer": _POINTER, "topic": TEXT, "attempt": attempt, "count": _COUNT}
    )
    receipts = array(ref("Receipt"), maxItems=MAX_MESSAGES)
    pointer: dict[str, Schema] = {"transactionWritePointer": _POINTER}
    messages = array(message, maxItems=MAX_MESSAGES)
    return {
        "PublishRequest": fields(
            {"messages": messages},
            {
                "transactionWritePointer": or_null(_POINTER),
                "receipts": or_null(tagged("array", receipts)),
                "attempt": or_null(attempt),
            },
        ),
        "Receipt": receipt,
        "PublishResponse": fields(pointer | _ENDS),
        "NestedPublishResponse": fields(pointer | {"rollbackRange": fields(_ENDS)}),
    }


def _polls() -> dict[str, Schema]:
    start = any_of(
        NULL,
        HEX_ID,
        tagged("long", whole(0, MAX_TIME_MS)),
        fields({"bytes": LATIN_1 | {"minLength": 20}}),
    )
    asked: dict[str, Schema] = {
        "startFrom": start,
        "inclusive": FLAG,
        "isolation": {"enum": [UNCOMMITTED, COMMITTED]},
        "waitMs": tagged("long", whole(0)),
    }
    shown: dict[str, Schema] = {
        "limit": or_null(_COUNT),
        "transaction": _TRANSACTION,
        "page": FLAG,
        "payloadAs": {"enum": list(PAYLOAD_AS)},
    }
    messages = array(fields({"id": _HEX, "payload": _PAYLOAD}))
    page: dict[str, Schema] = {
        "messages": messages,
        "next": _HEX,
        "blockedBy": or_null(ref("BlockedBy")),
        "skippedBefore": or_null(whole(0)),
    }
    return {
        "ConsumeRequest": fields({}, asked | shown),
        "WaitRequest": fields({}, asked),
        "ConsumeResponse": messages,
        "Page": fields(page),
    }


def _positions() -> dict[str, Schema]:
    return {
        "Position": fields({"position": or_null(_HEX)}),
        "PositionSeenBy": fields({"transaction": BASE64}),
        "NewPosition": fields({"position": or_null(HEX_ID), "transaction": POINTER}),
    }


_PLAIN: dict[Any, Schema] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: TEXT,
    bool: FLAG,
    NoneType: NULL,
    MessageId: {"type": "string", "pattern": "^[0-9a-f]{40}$"},
    bytes: {"type": "string", "contentEncoding": "base64"},
}
_REPORTS = (
    *(CleanUp, Keeper, Metrics, OpenPlan, OverviewReport, Peeked, Pruned, Report),
    TopicReport,
)


def report_schemas() -> dict[str, Schema]:
    """Returns the schemas of all reports, and of all their parts, by name."""
    found: dict[str, Schema] = {}
    for kind in _REPORTS:
        _add(kind, found)
    return found


def _add(kind: type, found: dict[str, Schema]) -> Schema:
    name = kind.__name__
    if name not in found:
        found[name] = {}  # before its fields, one of which may be of its own kind
        found[name] = fields(
            {
                camel(field.name): _schema(field.type, found)
                for field in attrs.fields(attrs.resolve_types(kind))
            }
        )
    return ref(name)


def _schema(kind: Any, found: dict[str, Schema]) -> Schema:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if attrs.has(kind):
        return _add(kind, found)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any_of(*(_schema(one, found) for one in inner))
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(inner[1], found)}
    if origin in (list, tuple, Sequence):
        return array(_schema(inner[0], found))
    raise TypeError(f"there is no schema for {kind!r}")
