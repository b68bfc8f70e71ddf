"""A conversation with a server, and its record."""

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import attrs

from tests.golden.site import Site
from tests.golden.texts import answer_lines, request_lines
from tests.support.http_raw import Response, request

JSON = {"Content-Type": "application/json"}
AVRO = {"Content-Type": "avro/binary"}
TAKES_JSON = {"Accept": "application/json"}
VARIES = "(varies)"


@attrs.define
class Talk:
    """Asks a server one thing after the other, and keeps what was said.

    A body that is no bytes goes as JSON. `headers` replace the Content-Type that goes
    with a body. Calls that begin with an underscore are not part of the record.
    """

    site: Site
    token: str | None = None
    lines: list[str] = attrs.field(factory=list)
    routes: set[tuple[str, str]] = attrs.field(factory=set)

    def about(self, *sentences: str) -> None:
        """Says what comes next."""
        self.lines += ["", *(f"## {each}" for each in sentences)]

    def later(self, seconds: float) -> None:
        """Lets time pass."""
        self.site.clock.advance_s(seconds)
        self.lines += ["", f"~ {seconds:g} s pass"]

    def get(self, path: str, **options: Any) -> Any:
        """Asks for what is there."""
        return self.ask("GET", path, **options)

    def put(self, path: str, body: Any = None, **options: Any) -> Any:
        """Makes or replaces something."""
        return self.ask("PUT", path, body, **options)

    def patch(self, path: str, body: Any = None, **options: Any) -> Any:
        """Changes a part of something."""
        return self.ask("PATCH", path, body, **options)

    def delete(self, path: str, **options: Any) -> Any:
        """Takes something away."""
        return self.ask("DELETE", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        """Does something."""
        return self.ask("POST", path, body, **options)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        also: Mapping[str, str] | None = None,
        varies: tuple[str, ...] = (),
        shown: bool = True,
    ) -> Any:
        """Sends a request; returns its answer's JSON, or bytes.

        `also` are headers beside those of the body. Fields whose names are in `varies`
        are recorded without their values, and no body at all where it is not `shown`.
        """
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = dict(JSON if data is not None else {}) if headers is None else headers
        sent = {**sent, **(also or {})}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        answer = sent_by(self.site, method, path, data, sent)
        self.lines += ["", *request_lines(method, path, sent, data)]
        self.lines += answer_lines(_recorded(answer, varies, shown=shown))
        self.routes.add((method, path))
        return None if method == "HEAD" else _read(answer)

    def numbers(self, path: str, *, also: Mapping[str, str] | None = None) -> None:
        """Asks for metrics, and records each line but for its number."""
        sent = dict(also or {})
        answer = sent_by(self.site, "GET", path, None, sent)
        self.lines += ["", *request_lines("GET", path, sent, None)]
        self.lines += answer_lines(attrs.evolve(answer, body=b""))
        self.lines += ["< (each line but for its number)"]
        for line in answer.body.decode().splitlines():
            is_value = not line.startswith("#")
            self.lines.append("< " + (line.rpartition(" ")[0] if is_value else line))
        self.routes.add(("GET", path))


def pointer_in(began: Mapping[str, Any]) -> int:
    """Returns the pointer of a transaction that was answered as Thrift's bytes."""
    return int.from_bytes(b64decode(began["transaction"])[3:11], "big")


def sent_by(
    site: Site, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
) -> Response:
    """Sends a request with these headers."""
    listed = [f"{name}: {value}" for name, value in headers.items()]
    data = request(method, path, body, *listed)
    return site.send(data, to_head=method == "HEAD")


def _read(answer: Response) -> Any:
    if answer.headers.get("content-type") == "application/json":
        return json.loads(answer.body)
    return answer.body


def _recorded(answer: Response, varies: tuple[str, ...], *, shown: bool) -> Response:
    if not shown:
        return attrs.evolve(answer, body=b"(not recorded)")
    if not varies:
        return answer
    found = _without(json.loads(answer.body), varies)
    tight = b'": ' not in answer.body
    separators = (",", ":") if tight else None
    body = json.dumps(found, separators=separators).encode()
    return attrs.evolve(answer, body=body)


def _without(value: Any, varies: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_without(each, varies) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: VARIES if name in varies else _without(each, varies)
        for name, each in value.items()
    }
