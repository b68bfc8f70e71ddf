"""What is written by hand of a route: what it takes, answers and refuses."""

from collections.abc import Mapping
from typing import Any

import attrs

from txaware.http.openapi.schema import Schema
from txaware.http.server.exchange import JSON

Content = dict[str, Any]


@attrs.frozen(kw_only=True)
class Operation:
    """`body` and `answer` are by media type; no answer is an empty one.

    `refuses` are the statuses beside those that every route of its kind may answer, or
    descriptions of what else comes with one of these.
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
    """A body of JSON."""
    content: Content = {"schema": schema}
    if example is not None:
        content["example"] = example
    return {JSON: content}
