"""What is described of a route: its body, its answers and what it refuses with."""

from collections.abc import Mapping
from typing import Any

import attrs

from txaware.protocol.formats.avro_format import AVRO_TYPE
from txaware.protocol.formats.msgpack_format import MSGPACK_TYPE
from txaware.protocol.json_schema import BYTES, Schema
from txaware.server.exchange import JSON

Content = dict[str, Any]


@attrs.frozen(kw_only=True)
class Operation:
    """The description of a route's method.

    `body` and `answer` are by media type; no answer is an empty one. `refuses` are the
    statuses beside those that every route of its kind may answer. `may_answer` are
    descriptions of what else comes with a status.
    """

    summary: str
    tag: str
    body: Content | None = None
    needs_body: bool = True
    answer: Content | None = None
    query: Mapping[str, Schema] = attrs.field(factory=dict)
    needs_query: tuple[str, ...] = ()
    refuses: tuple[int, ...] = ()
    may_answer: Mapping[int, Content] = attrs.field(factory=dict)


def json_of(schema: Schema, *, example: Any = None) -> Content:
    """Describes a body of JSON."""
    content: Content = {"schema": schema}
    if example is not None:
        content["example"] = example
    return {JSON: content}


def in_avro(body: str) -> Content:
    """Describes a body of CDAP, whose schema the server publishes by itself."""
    said = f"{body} of {AVRO_TYPE}; see /v1/schemas."
    return {AVRO_TYPE: {"schema": BYTES | {"description": said}}}


def in_msgpack(body: str) -> Content:
    """Describes a body of the client of this project."""
    said = f"{body} in msgpack, as the client of this project has it."
    return {MSGPACK_TYPE: {"schema": BYTES | {"description": said}}}
