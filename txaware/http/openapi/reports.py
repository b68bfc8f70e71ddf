"""Schemas of what administration answers, read off the classes themselves."""

from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import attrs

from txaware.http.openapi.schema import (
    FLAG,
    NULL,
    TEXT,
    Schema,
    any_of,
    array,
    fields,
    ref,
)
from txaware.http.wire.values import camel
from txaware.messages import MessageId
from txaware.metrics import Metrics
from txaware.service.check.report import Report
from txaware.service.keepers import Keeper
from txaware.service.monitor.inspection import Peeked, TopicReport
from txaware.service.monitor.overview_report import OverviewReport
from txaware.service.retention.clean_up import CleanUp, Pruned
from txaware.service.retention.clean_up_plan import OpenPlan

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
    """The schemas of all reports, and of all they are made of, by name."""
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
