"""Puts the description together: a path for each route, and what they share."""

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from txaware.errors import __all__ as public_names
from txaware.model.topics import LONGEST_ID
from txaware.protocol import verbs
from txaware.protocol.fields import REQUIRED
from txaware.protocol.json_schema import (
    BYTES,
    GROUP,
    NAMESPACE,
    TEXT,
    TOPIC,
    Schema,
    any_of,
    fields,
    ref,
)
from txaware.protocol.shape import Described
from txaware.protocol.verb import Form, In, InBytes, Verb
from txaware.server.exchange import JSON
from txaware.server.idempotency import LONGEST_KEY
from txaware.server.openapi import server_operations
from txaware.server.openapi.operation import (
    Content,
    Operation,
    in_avro,
    in_msgpack,
    json_of,
)
from txaware.server.openapi.wire import report_schemas, schema_of, wire_schemas
from txaware.server.routing import Route


def operations() -> dict[tuple[str, str], Operation]:
    """Returns the descriptions of all routes: by hand, and of declared verbs."""
    declared = {(v.method, v.path): _of_verb(v) for v in verbs.VERBS}
    return server_operations.OPERATIONS | declared


def operation_of(route: Route) -> Operation:
    """Returns what is written of a route; a `KeyError` where nothing is."""
    for verb in verbs.VERBS:
        if (verb.method, verb.path) == (route.method, route.path):
            return _of_verb(verb)
    return server_operations.OPERATIONS[route.method, route.path]


def _of_verb(verb: Verb[..., Any]) -> Operation:
    """Describes the route of a verb."""
    shape, body = verb.shape, None
    if shape.body.fields:
        schema = verb.schema or shape.body.schema
        if verb.schema_name:
            schema = ref(verb.schema_name)
        body = json_of(schema, example=verb.example)
        if verb.binary is not None:
            body |= in_msgpack(verb.binary.name)
    if verb.formats is not None:
        body = _in_formats(verb.formats.body, example=verb.example)
    return Operation(
        summary=verb.summary,
        tag=verb.tag,
        body=body,
        needs_body=shape.needs_body,
        answer=_answer_of(verb),
        query={field.name: field.kind.schema for field in shape.query.values()},
        needs_query=tuple(
            field.name for field in shape.query.values() if field.default is REQUIRED
        ),
        refuses=verb.refuses,
    )


def _in_formats(described: Described, *, example: Any = None) -> Content:
    content = json_of(described.schema, example=example)
    if described.avro is not None:
        content |= in_avro(described.avro)
    return content | in_msgpack(described.msgpack)


def _answer_of(verb: Verb[..., Any]) -> Content | None:
    answer = verb.answer
    if verb.formats is not None and verb.formats.answer is not None:
        return _in_formats(verb.formats.answer)
    if answer is None:
        return None
    if isinstance(answer, InBytes):
        in_bytes = {"schema": BYTES | {"description": answer.said}}
        return {answer.media_type: in_bytes} | json_of(answer.schema)
    if isinstance(answer, Form):
        schema: Schema = answer.schema
        if answer.schema_name is not None:
            schema = ref(answer.schema_name)
    elif isinstance(answer, In):
        schema = fields({answer.field: schema_of(answer.kind, {})})
        if answer.schema_name is not None:
            schema = ref(answer.schema_name)
    else:
        schema = schema_of(answer, {})
    return json_of(schema)


# Errors of txaware's own in Python, and others; functions are public there too.
_ERRORS = {name for name in public_names if name[0].isupper()}
_NAMES = sorted({*_ERRORS, "InternalError", "MethodNotAllowed", "NotFound"})
ERROR: Schema = fields({"error": {"enum": _NAMES}, "message": TEXT})

_REASONS = {
    400: "The request is not what it has to be; nothing was stored.",
    401: "No token was sent, or none that is known.",
    403: "The rules do not give this to whoever sent the token; or a page of another "
    "site sent the request.",
    404: "There is no such topic, group, queue, transaction, producer or keeper.",
    408: "The body did not come in time.",
    409: "The topic exists already, the transaction is refused, the lease is over, the "
    "producer or the member is fenced, or out of order, the group has members, or "
    "there is no such plan any more.",
    413: "The body, or a message in it, is above a limit.",
    422: "The Idempotency-Key has been used for another request; nothing was stored.",
    426: "It goes on in frames alone: ask with Upgrade: txaware/1.",
    429: "As many transactions are open as one principal may have; or a queue has as "
    "many pipes, or a group as many members, as it may have.",
    503: "Part of the server is away, or has too much to do; or what became of an "
    "earlier try is not known.",
}
_HEADERS = {
    401: {"WWW-Authenticate": {"schema": {"const": "Bearer"}}},
    429: {
        "Retry-After": {
            "description": "Seconds, where it is about transactions.",
            "schema": {"type": "integer"},
        },
    },
    503: {
        "Retry-After": {
            "description": "Seconds, where there are too many requests.",
            "schema": {"type": "integer"},
        },
        "Txaware-Outcome": {
            "description": "Where it is not known whether it was carried out: do not "
            "send it again.",
            "schema": {"const": "unknown"},
        },
    },
}


# What a path names may not be there.
_CAN_BE_MISSING = ("{topic}", "{queue}", "{transaction}", "{producer}")


def refusals(route: Route, operation: Operation) -> dict[str, Schema]:
    """Returns every status that a route may refuse with, and what its answer is."""
    statuses = {400, 403, 503, *operation.refuses}
    if not route.is_open:
        statuses.add(401)
    if route.method != "GET":
        statuses |= {408, 413}
    if route.keyed:
        statuses.add(422)
    if any(name in route.path for name in _CAN_BE_MISSING):
        statuses.add(404)
    found = {str(status): _refusal(status) for status in sorted(statuses)}
    for status, schema in operation.may_answer.items():
        found[str(status)] = _refusal(status, beside=schema)
    return found


def _refusal(status: int, *, beside: Schema | None = None) -> Schema:
    error = ref("Error")
    schema = error if beside is None else any_of(beside, error)
    described: Schema = {
        "description": _REASONS[status],
        "content": {JSON: {"schema": schema}},
    }
    if status in _HEADERS:
        described["headers"] = _HEADERS[status]
    return described


_ABOUT = (
    "Transactional messaging: topics, and transactions over them. Every refusal is "
    '{"error": class, "message": sentence}. Bodies in Avro are plain data without a '
    "container, whose schemas are at /v1/schemas."
)
_PATH_NAMES: dict[str, Schema] = {
    "namespace": {"type": "string", "pattern": NAMESPACE},
    "topic": {"type": "string", "pattern": TOPIC},
    "group": {"type": "string", "pattern": GROUP},
    "member": {"type": "string", "pattern": GROUP, "maxLength": LONGEST_ID},
    "table": {"type": "string", "pattern": TOPIC},
    "queue": {"type": "string", "pattern": TOPIC},
    "transactional_id": {
        "type": "string",
        "pattern": GROUP,
        "maxLength": LONGEST_ID,
    },
    "transaction": {"type": "string", "pattern": "^[0-9]{1,19}$"},
    "producer": {"type": "string", "pattern": "^[0-9]{1,19}$"},
}
_EXAMPLES = {"namespace": "default", "topic": "orders", "group": "billing"}
_EXAMPLES["transactional_id"] = "loader-7"
_NAME = re.compile(r"\{(\w+)\}")
_KEYED = [
    {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "The server remembers its answer for a minute, and a publish "
        "without a transaction for an hour, also across a restart: a repeat with this "
        "key gets it, and is not carried out twice. Another request with it is 422.",
        "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY},
    },
    {
        "name": "Txaware-Instance",
        "in": "header",
        "description": "In a repeat: the instance which the first try went to, from "
        "this header of any answer.",
        "schema": TEXT | {"minLength": 1},
    },
]


def described(routes: Iterable[Route], *, needs_tokens: bool) -> dict[str, Any]:
    """Returns the document for these routes; a `KeyError` for one not described.

    It is in the order of its names, whatever order they were declared in. A server
    without tokens asks for none, so that nothing of them is in its document.
    """
    paths: dict[str, dict[str, Any]] = {}
    written = operations()
    for route in routes:
        path = paths.setdefault(route.path, {})
        path[route.method.lower()] = _operation(
            route, written[route.method, route.path], needs_tokens=needs_tokens
        )
    schemas = {"Error": ERROR, **wire_schemas(), **report_schemas()}
    token = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "txaware",
            "version": version("txaware"),
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {path: dict(sorted(paths[path].items())) for path in sorted(paths)},
        "components": {
            "schemas": dict(sorted(schemas.items())),
            **({"securitySchemes": token} if needs_tokens else {}),
        },
    }


def _operation(
    route: Route, operation: Operation, *, needs_tokens: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": operation.summary,
        "tags": [operation.tag],
        "security": [{"token": []}] if needs_tokens and not route.is_open else [],
        "parameters": _parameters(route, operation),
        "responses": {
            "200": _answer(operation),
            **refusals(route, operation),
        },
    }
    if operation.body is not None:
        found["requestBody"] = {
            "required": operation.needs_body,
            "content": operation.body,
        }
    return found


def _operation_id(route: Route) -> str:
    words = re.findall(r"[A-Za-z0-9]+", route.path)
    return "_".join([route.method.lower(), *words])


def _answer(operation: Operation) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "Done."}
    if operation.answer is not None:
        answer["content"] = operation.answer
    return answer


def _parameters(route: Route, operation: Operation) -> list[dict[str, Any]]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": _PATH_NAMES[name],
            **({"example": _EXAMPLES[name]} if name in _EXAMPLES else {}),
        }
        for name in _NAME.findall(route.path)
    ]
    in_query = [
        {
            "name": name,
            "in": "query",
            "required": name in operation.needs_query,
            "schema": schema,
        }
        for name, schema in operation.query.items()
    ]
    return [*in_path, *in_query, *(_KEYED if route.keyed else [])]
