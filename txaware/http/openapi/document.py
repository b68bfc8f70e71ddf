"""Puts the description together: a path for each route, and what they share."""

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from txaware.http.openapi.errors import ERROR, refusals
from txaware.http.openapi.operation import Operation
from txaware.http.openapi.operations import operation_of
from txaware.http.openapi.reports import report_schemas
from txaware.http.openapi.schema import (
    GROUP,
    NAMESPACE,
    TEXT,
    TOPIC,
    Schema,
)
from txaware.http.openapi.wire import wire_schemas
from txaware.http.server.idempotency import LONGEST_KEY
from txaware.http.server.routing import Route

_ABOUT = (
    "Transactional messaging: topics, and transactions over them. Every refusal is "
    '{"error": class, "message": sentence}. Bodies in Avro are plain data without a '
    "container, whose schemas are at /v1/schemas."
)
_PATH_NAMES: dict[str, Schema] = {
    "namespace": {"type": "string", "pattern": NAMESPACE},
    "topic": {"type": "string", "pattern": TOPIC},
    "group": {"type": "string", "pattern": GROUP},
    "transaction": {"type": "string", "pattern": "^[0-9]{1,19}$"},
}
_EXAMPLES = {"namespace": "default", "topic": "orders", "group": "billing"}
_NAME = re.compile(r"\{(\w+)\}")
_KEYED = [
    {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "The server remembers its answer for a minute: a repeat with "
        "this key gets it, and is not carried out twice.",
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


def described(routes: Iterable[Route]) -> dict[str, Any]:
    """The document for these routes; a `KeyError` for one that nobody described."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = paths.setdefault(route.path, {})
        path[route.method.lower()] = _operation(route, operation_of(route))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "txaware",
            "version": version("txaware"),
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR, **wire_schemas(), **report_schemas()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": operation.summary,
        "tags": [operation.tag],
        "security": [] if route.is_open else [{"token": []}],
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
