"""What is described of a route: its body, its answers and what it refuses with."""

from collections.abc import Mapping
from typing import Any

import attrs

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


def in_avro(media_type: str, body: str) -> dict[str, Any]:
    """Describes a body whose schema the server publishes by itself."""
    return BYTES | {"description": f"{body} of {media_type}; see /v1/schemas."}
