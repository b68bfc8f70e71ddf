"""Schemas of what travels as JSON: topics, messages, polls, positions, transactions."""

from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import attrs

from txaware.model.message_fields import FIELDS
from txaware.model.messages import MessageId
from txaware.model.numbers import Number
from txaware.model.queues import PipeShare, Popped
from txaware.protocol import verbs
from txaware.protocol.formats.json_format import (
    NESTED_RESPONSE,
    POLL,
    PUBLISH,
    RECEIPT,
    RESPONSE,
)
from txaware.protocol.json_schema import (
    BASE64,
    FLAG,
    NULL,
    TEXT,
    Schema,
    any_of,
    array,
    fields,
    or_null,
    ref,
    whole,
)
from txaware.protocol.json_values import camel
from txaware.protocol.verb import Form, In, InBytes
from txaware.service.monitor.overview_report import OverviewReport

_HEX = {"type": "string", "pattern": "^[0-9a-f]{40}$"}
_PAYLOAD = any_of(TEXT, fields({"base64": BASE64}))


def wire_schemas() -> dict[str, Schema]:
    """Returns schemas by name; bodies that the server reads have known fields only."""
    return {**_messages(), **_polls(), "Names": array(TEXT)}


def _messages() -> dict[str, Schema]:
    return {
        "PublishRequest": PUBLISH.schema,
        "Receipt": RECEIPT.schema,
        "PublishResponse": RESPONSE.schema,
        "NestedPublishResponse": NESTED_RESPONSE.schema,
    }


def _polls() -> dict[str, Schema]:
    beside = {
        camel(field.name): fields({}, others=_PAYLOAD) if field.is_map else _PAYLOAD
        for field in FIELDS
    }
    messages = array(fields({"id": _HEX, "payload": _PAYLOAD}, beside))
    page: dict[str, Schema] = {
        "messages": messages,
        "next": _HEX,
        "blockedBy": or_null(ref("BlockedBy")),
        "skippedBefore": or_null(whole(0)),
        "lastStable": or_null(_HEX),
    }
    return {
        "ConsumeRequest": POLL.schema,
        "ConsumeResponse": messages,
        "Page": fields(page),
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
    OverviewReport,
    *(PipeShare, Popped),
)


def report_schemas() -> dict[str, Schema]:
    """Returns the schemas of all reports, and of all their parts, by name."""
    found: dict[str, Schema] = {}
    for kind in _REPORTS:
        _add(kind, found)
    for verb in verbs.VERBS:
        if verb.schema_name is not None:
            found[verb.schema_name] = verb.shape.body.schema
        if isinstance(verb.answer, Form):
            if verb.answer.schema_name is not None:
                found[verb.answer.schema_name] = verb.answer.schema
            continue
        if isinstance(verb.answer, In) and verb.answer.schema_name is not None:
            answered = {verb.answer.field: schema_of(verb.answer.kind, found)}
            found[verb.answer.schema_name] = fields(answered)
        if isinstance(verb.answer, InBytes):
            continue
        answer = verb.answer.kind if isinstance(verb.answer, In) else verb.answer
        if answer is not None:
            schema_of(answer, found)
    return found


def _add(kind: type, found: dict[str, Schema]) -> Schema:
    name = kind.__name__
    if name not in found:
        found[name] = {}  # before its fields, one of which may be of its own kind
        found[name] = fields(
            {
                camel(field.name): schema_of(field.type, found)
                for field in attrs.fields(attrs.resolve_types(kind))
            }
        )
    return ref(name)


def schema_of(kind: Any, found: dict[str, Schema]) -> Schema:
    """Returns the schema of a type; puts those of classes into `found`, by name."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        plain = schema_of(inner[0], found)
        schema: Schema = plain if isinstance(inner[1], Number) else inner[1]
        return schema
    if kind in _PLAIN:
        return _PLAIN[kind]
    if attrs.has(kind):
        return _add(kind, found)
    if origin is Literal:
        return {"enum": [*inner]}
    if origin in (Union, UnionType):
        return any_of(*(schema_of(one, found) for one in inner))
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": schema_of(inner[1], found)}
    if origin in (list, tuple, Sequence):
        return array(schema_of(inner[0], found))
    raise TypeError(f"there is no schema for {kind!r}")
