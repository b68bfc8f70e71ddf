"""What is described of a declared verb."""

from typing import Any

from txaware.http.openapi.operation import Content, Operation, json_of
from txaware.http.openapi.wire import schema_of
from txaware.protocol.fields import REQUIRED
from txaware.protocol.json_schema import Schema, fields, ref
from txaware.protocol.verb import In, Verb


def operation_of_verb(verb: Verb[..., Any]) -> Operation:
    """Describes the route of a verb."""
    shape, body = verb.shape, None
    if shape.body.fields:
        schema = ref(verb.schema_name) if verb.schema_name else shape.body.schema
        body = json_of(schema, example=verb.example)
    return Operation(
        summary=verb.summary,
        tag=verb.tag,
        body=body,
        needs_body=shape.needs_body,
        answer=_answer(verb),
        query={field.name: field.kind.schema for field in shape.query.values()},
        needs_query=tuple(
            field.name for field in shape.query.values() if field.default is REQUIRED
        ),
        refuses=verb.refuses,
    )


def _answer(verb: Verb[..., Any]) -> Content | None:
    answer = verb.answer
    if answer is None:
        return None
    if isinstance(answer, In):
        schema: Schema = fields({answer.field: schema_of(answer.kind, {})})
        if answer.schema_name is not None:
            schema = ref(answer.schema_name)
    else:
        schema = schema_of(answer, {})
    return json_of(schema)
