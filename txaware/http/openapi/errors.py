"""The answers with which requests are refused, by status."""

from txaware.errors import __all__ as public_names
from txaware.http.openapi.operation import Operation
from txaware.http.openapi.schema import TEXT, Schema, any_of, fields, ref
from txaware.http.server.exchange import JSON
from txaware.http.server.routing import Route

# Errors that are none of ours in Python.
_NAMES = sorted({*public_names, "InternalError", "MethodNotAllowed", "NotFound"})
ERROR: Schema = fields({"error": {"enum": _NAMES}, "message": TEXT})

_REASONS = {
    400: "The request is not what it has to be; nothing was stored.",
    401: "No token was sent, or none that is known.",
    403: "The rules do not give this to whoever sent the token; or a page of another "
    "site sent the request.",
    404: "There is no such topic, transaction or keeper.",
    408: "The body did not come in time.",
    409: "The topic exists already, the transaction is refused, or there is no such "
    "plan any more.",
    413: "The body, or a message in it, is above a limit.",
    429: "As many transactions are open as one principal may have.",
    503: "Part of the server is away, or has too much to do; or what became of an "
    "earlier try is not known.",
}
_HEADERS = {
    401: {"WWW-Authenticate": {"schema": {"const": "Bearer"}}},
    429: {
        "Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}},
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


def refusals(route: Route, operation: Operation) -> dict[str, Schema]:
    """Every status that a route may refuse with, and what the answer looks like."""
    statuses = {400, 403, 503, *operation.refuses}
    if not route.is_open:
        statuses.add(401)
    if route.method != "GET":
        statuses |= {408, 413}
    if "{topic}" in route.path or "{transaction}" in route.path:
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
