"""Requests that are not good, derived from a good one and from its description."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import attrs

from tests.golden.good_requests import Good
from txaware.model.settings import Settings
from txaware.server.openapi.document import described
from txaware.server.routes import all_routes

WRONG: tuple[Any, ...] = ("x", "", 5, 1.5, True, None, [], {})
LONG_MAX = 2**63 - 1
DEEP = 100_000
MOST_ITEMS = 10_000
JSON_TYPE = "application/json"
METHODS = ("GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "HEAD", "FOO")
BAD_NAMES = {
    "namespace": ("nowhere", "a-b", "a.b", "a%20b", "%C3%A9", "%00", "", "n" * 300),
    "topic": ("nothing", "a.b", ".mail.3.1", "a%20b", "%C3%A9", "%2F", "", "n" * 300),
    "queue": ("nothing", "a.b", "a%20b", "%C3%A9", "%2F", "", "n" * 300),
    "table": ("nothing", "a.b", "a%20b", "%C3%A9", "%2F", "", "n" * 300),
    "group": ("nobody", "a.b", "a%20b", "%C3%A9", "%2F", "", "n" * 2000),
    "member": ("nobody", "a.b", "a%20b", "%C3%A9", "%2F", "", "n" * 2000),
    "transactional_id": ("nobody", "a.b", "a%20b", "%C3%A9", "%00", "", "n" * 2000),
    "transaction": ("0", "1", "-1", "x", "1.5", "01", str(LONG_MAX), str(2**63)),
    "producer": ("0", "-1", "x", "1.5", str(LONG_MAX), str(2**63), "1" * 20),
}
BROKEN = {
    "empty": b"",
    "{": b"{",
    "null": b"null",
    "[]": b"[]",
    '"x"': b'"x"',
    "5": b"5",
    "not UTF-8": b'{"\xff": 1}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "with a byte order mark": b"\xef\xbb\xbf{}",
    "{'a': 1}": b"{'a': 1}",
    '{"a": NaN}': b'{"a": NaN}',
    "a comma at the end": b'{"a": 1,}',
    f"{DEEP:,} times [": b"[" * DEEP,
    f'{DEEP:,} times {{"a":': b'{"a":' * DEEP,
}


@attrs.frozen
class Sent:
    """A request that was derived, and `what` was changed in it."""

    what: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None = None


Change = Callable[[Good], Sent]


def _joined(query: Mapping[str, str]) -> str:
    return "&".join(f"{name}={value}" for name, value in query.items())


def _written(body: Mapping[str, Any] | None) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


@attrs.frozen
class Operation:
    """One route as OpenAPI describes it: its method and path, and what it takes."""

    method: str
    template: str
    described: Mapping[str, Any]
    schemas: Mapping[str, Any]
    allowed: frozenset[str]

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The schema of its JSON; None where it takes no body."""
        content = self.described.get("requestBody", {}).get("content", {})
        found: Mapping[str, Any] | None = content.get(JSON_TYPE, {}).get("schema")
        return found

    def query_schemas(self) -> Mapping[str, Any]:
        """The fields of its query."""
        listed = self.described.get("parameters", ())
        return {
            each["name"]: each["schema"] for each in listed if each["in"] == "query"
        }

    def takes(self, header: str) -> bool:
        """Tells whether it knows a header."""
        listed = self.described.get("parameters", ())
        return any(each["name"] == header for each in listed)

    def change(self, what: str, **changed: Any) -> "Change":
        """Returns what makes a good request one with that part changed."""
        return partial(self.sent, what=what, **changed)

    def sent(self, good: Good, what: str = "nothing", **changed: Any) -> Sent:
        """Returns the good request with parts changed: by a value, or by a function."""
        path = self.template.format(**{**good.params, **changed.get("params", {})})
        query = changed.get("query", _joined(good.query))
        body = changed.get("body", _written)
        if callable(body):
            body = body(good.body)
        is_json = {} if body is None else {"Content-Type": JSON_TYPE}
        headers = changed.get("headers", is_json)
        return Sent(
            what,
            changed.get("method", self.method),
            f"{path}?{query}" if query else path,
            headers | changed.get("also", {}),
            body,
        )

    def resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Follows a reference."""
        name = schema.get("$ref")
        return schema if name is None else self.schemas[name.rpartition("/")[2]]


Derive = Callable[[Operation, Good], Iterator[Change]]


@cache
def operations() -> dict[tuple[str, str], Operation]:
    """Returns each route as the server describes it."""
    routes = all_routes(Mock(), Mock(), Mock(), needs_tokens=True)
    document = described(routes, needs_tokens=True)
    found = {}
    for path, methods in document["paths"].items():
        allowed = frozenset(map(str.upper, methods))
        allowed |= {"HEAD"} if "GET" in allowed else set()
        for method, about in methods.items():
            found[method.upper(), path] = Operation(
                method.upper(), path, about, document["components"]["schemas"], allowed
            )
    return found


def derived(at: Operation) -> Iterator[tuple[str, Derive]]:
    """Yields the title of each part, and the function that derives it."""
    if at.schema is not None:
        yield "Fields of the body", fields
        yield "The body as a whole", bodies
    if at.query_schemas():
        yield "Fields of the query", queries
    if "{" in at.template:
        yield "Names in the path", names
    yield "Method, query and headers", heads


def fields(at: Operation, good: Good) -> Iterator[Change]:
    """Gives each field wrong types, and values at its bounds and beyond."""
    assert at.schema is not None
    whole = dict(good.body or {})
    for place, schema, present, required in _fields(at, at.schema, whole, ()):
        shown = _shown(place)
        for value in (*WRONG, *_bounds(at, schema)):
            yield _changed(at, f"{shown} = {_brief(value)}", place, value)
        if present and not required:
            yield _changed(at, f"without {shown}", place, ...)
        elif present:
            yield _changed(at, f"without {shown}, which it needs", place, ...)
    for place in _objects(whole, ()):
        name = (*place, "unknown")
        yield _changed(at, f"{_shown(name)} = 1", name, 1)
    for field in whole:
        yield at.change(f"{field} twice", body=partial(_twice, field))


def bodies(at: Operation, good: Good) -> Iterator[Change]:
    """Sends what is no JSON, or no object, or too much."""
    for what, body in BROKEN.items():
        yield at.change(f"the body is {what}", body=body)
    yield at.change("more after the body", body=lambda body: _text(body) + b"x")
    for kind in ("text/plain", "application/xml", "avro/binary", "application/x.y", ""):
        what = f"Content-Type: {kind}"
        yield at.change(what, headers={"Content-Type": kind}, body=_text)
    for kind in (
        "APPLICATION/JSON; charset=utf-8",
        "application/json; charset=latin-1",
    ):
        what = f"Content-Type: {kind}"
        yield at.change(what, headers={"Content-Type": kind}, body=_text)
    yield at.change("no Content-Type", headers={}, body=_text)
    for coding in ("gzip", "br"):
        what, also = f"Content-Encoding: {coding}", {"Content-Encoding": coding}
        yield at.change(what, also=also, body=_text)
    length = Settings().request_limit_bytes + 1
    also = {"Content-Type": JSON_TYPE, "Content-Length": str(length)}
    yield at.change(f"Content-Length: {length}", headers=also, body=None)


def queries(at: Operation, good: Good) -> Iterator[Change]:
    """Gives each field of the query values that it may not have."""
    for name, schema in at.query_schemas().items():
        values = ["", "x", "5", "-1", "1.5", "true", "null", "%FF", str(2**63)]
        values += [str(value) for value in _bounds(at, schema)]
        for value in dict.fromkeys(values):
            if not value.isprintable():
                continue  # as a text it cannot be sent in a path
            query = _joined({**good.query, name: quote(value, safe="%")})
            yield at.change(f"?{name}={_brief(value)[1:-1]}", query=query)
        rest = {key: value for key, value in good.query.items() if key != name}
        pairs = [f"{key}={value}" for key, value in rest.items()]
        if name in good.query:
            yield at.change(f"without ?{name}", query="&".join(pairs))
        twice = "&".join([*pairs, *[f"{name}={good.query.get(name, '5')}"] * 2])
        yield at.change(f"?{name} twice", query=twice)


def names(at: Operation, good: Good) -> Iterator[Change]:
    """Puts other names into the path, and such that are none."""
    for name in good.params:
        if f"{{{name}}}" not in at.template:
            continue
        for value in BAD_NAMES[name]:
            what = f"{name} {_brief(value)[1:-1] or '(none)'}"
            yield at.change(what, params={name: value})


def heads(at: Operation, good: Good) -> Iterator[Change]:
    """Asks in another method, for another type, with a field more in the query."""
    for method in METHODS:
        if method not in at.allowed:
            yield at.change(method, method=method, body=None, headers={})
    yield at.change("?unknown=1", query="unknown=1")
    for kind in ("text/html", "application/xml", "*/*", "text/*, application/json;q=0"):
        yield at.change(f"Accept: {kind}", also={"Accept": kind})
    if at.takes("Idempotency-Key"):
        for key in ("", "k" * 2000):
            what = f"Idempotency-Key: {_brief(key)[1:-1]}"
            yield at.change(what, also={"Idempotency-Key": key})
        for value in ("", "x"):
            also = {"Txaware-Instance": value, "Idempotency-Key": f"of {value}"}
            yield at.change(f"Txaware-Instance: {value}", also=also)


Place = tuple[str | int, ...]


def _fields(
    at: Operation, schema: Mapping[str, Any], value: Any, place: Place
) -> Iterator[tuple[Place, Mapping[str, Any], bool, bool]]:
    """Yields each field that may be there: its schema, whether it is, and has to."""
    for found in _alternatives(at, schema):
        if isinstance(value, list) and value and "items" in found:
            yield (*place, 0), found["items"], False, False
            yield from _fields(at, found["items"], value[0], (*place, 0))
            return
        known = found.get("properties", {})
        others = found.get("additionalProperties")
        if not isinstance(value, dict) or not (value.keys() <= known.keys() or others):
            continue
        required = found.get("required", ())
        for name, inner in known.items():
            yield (*place, name), inner, name in value, name in required
            yield from _fields(at, inner, value.get(name), (*place, name))
        for name in value.keys() - known.keys() if known or place else ():
            if isinstance(others, dict):
                yield (*place, name), others, True, False
        return


def _alternatives(
    at: Operation, schema: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    schema = at.resolved(schema)
    for word in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(word, ()):
            yield from _alternatives(at, each)
    yield schema


def _bounds(at: Operation, schema: Mapping[str, Any]) -> list[Any]:
    """Returns values at and beyond all bounds that a schema has."""
    found: list[Any] = []
    for each in _alternatives(at, schema):
        if each.get("type") in ("integer", "number"):
            least = each.get("minimum", each.get("exclusiveMinimum", 0))
            most = each.get("maximum", LONG_MAX)
            found += [least - 1, least, most, most + 1, 2**64, -(2**63) - 1]
        if "maxLength" in each:
            found += ["n" * each["maxLength"], "n" * (each["maxLength"] + 1)]
        if each.get("type") == "string":
            found += ["\u00e9", "\u20ac", "a b", "\0", "\ud800"]
        if each.get("type") == "array":
            found += [[value] for value in WRONG if value != ""]
            if each.get("maxItems", MOST_ITEMS + 1) <= MOST_ITEMS:
                found.append(["x"] * (each["maxItems"] + 1))
        for name in each.get("properties", {}):
            if name in ("long", "int", "bytes", "array", "string"):  # Avro's tags
                found += [{name: 5}, {name: "x"}, {name: None}]
            elif name in ("utf8", "base64"):
                found += [{name: "AA=="}, {name: 5}, {name: None}]
    unique: dict[str, Any] = {}
    for value in found:
        unique.setdefault(json.dumps(value), value)
    wrong = {json.dumps(value) for value in WRONG}
    return [value for text, value in unique.items() if text not in wrong]


def _objects(value: Any, place: Place) -> Iterator[Place]:
    if isinstance(value, dict):
        yield place
        for name, each in value.items():
            yield from _objects(each, (*place, name))
    elif isinstance(value, list) and value:
        yield from _objects(value[0], (*place, 0))


def _changed(at: Operation, what: str, place: Place, value: Any) -> Change:
    return at.change(what, body=partial(_with, place, value))


def _with(place: Place, value: Any, body: Mapping[str, Any] | None) -> bytes:
    changed = json.loads(_text(body))
    inner = changed
    for name in place[:-1]:
        inner = inner[name]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return _text(changed)


def _twice(name: str, body: Mapping[str, Any]) -> bytes:
    again = f", {json.dumps(name)}: {json.dumps(body[name])}}}"
    return _text(body)[:-1] + again.encode()


def _text(body: Mapping[str, Any] | None) -> bytes:
    return json.dumps(body or {}).encode()


def _shown(place: Place) -> str:
    return "".join(
        f"[{each}]" if isinstance(each, int) else f".{each}" for each in place
    ).removeprefix(".")


def _brief(value: Any) -> str:
    text = json.dumps(value)
    if len(text) <= 60:
        return text
    if isinstance(value, str):
        return json.dumps(f"{value[:8]}... ({len(value)} characters)")
    return f"{text[:20]}... ({len(value)} items)"
