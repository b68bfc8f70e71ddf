"""The form of requests and answers between a coordinator and its callers over HTTP.

Transactions travel as Tephra's bytes, everything else as JSON, and every call names
its transaction.
"""

import base64
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import attrs

from coordinator.errors import BadRequest, Unavailable

BYTES = "application/octet-stream"
JSON = "application/json"
# The longest name of a participant, in characters.
LONGEST_NAME = 1000

Fields = Mapping[str, Any]
T = TypeVar("T")


@attrs.frozen
class Answer:
    """The answer that goes back to the caller."""

    status: int
    body: bytes = b"{}"
    content_type: str = JSON


def to_base64(data: bytes) -> str:
    """Returns the base64 of bytes; JSON has them so (`json.dumps(default=to_base64)`).

    What is written in msgpack has the bytes themselves.
    """
    return base64.b64encode(data).decode("ascii")


def json_answer(value: Any) -> Answer:
    """Makes an answer of JSON."""
    return Answer(200, json.dumps(value).encode())


def error_answer(status: int, name: str, message: str) -> Answer:
    """Makes the answer for an error; all errors have this form."""
    return Answer(status, json.dumps({"error": name, "message": message}).encode())


def shown(value: object) -> str:
    """Returns a value for an error message, short and as JSON says it: null, true.

    Text is in single quotes, as the message itself travels as JSON.
    """
    if isinstance(value, str):
        return f"{value[:80]!r}{'...' if len(value) > 80 else ''}"
    if isinstance(value, dict):
        return f"an object with {', '.join(map(shown, [*value][:5])) or 'nothing'}"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return json.dumps(value, default=str)[:80]


def fields_of(body: bytes) -> Fields:
    """Returns the JSON object in a body; raises `BadRequest` if it is none."""
    try:
        fields = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    return checked_fields(fields)


def checked_fields(value: object) -> Fields:
    """Returns a value that is a JSON object; raises `BadRequest` for others."""
    if not isinstance(value, dict):
        raise BadRequest("the body is not a JSON object")
    return value


def read_answer(read: Callable[[], T]) -> T:
    """Reads an answer; raises `Unavailable` if it makes no sense."""
    try:
        return read()
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise Unavailable(
            f"the answer of the coordinator cannot be read, {error!r}"
        ) from error


def answer_field(answer: Any, name: str, take: Callable[[Any], T]) -> T:
    """Reads a field of an answer."""
    return read_answer(lambda: take(checked_fields(answer)[name]))


def check_known(fields: Fields, known: Collection[str]) -> None:
    """Refuses a body with an unknown field, which may be a misspelt one."""
    for name in fields:
        if name not in known:
            others = f"is none of {', '.join(known)}" if known else "has no place here"
            raise BadRequest(f"the body has a field {name[:80]!r}, which {others}")


def query_of(text: str, known: Collection[str]) -> Fields:
    """Returns the fields of a query; refuses unknown ones."""
    pairs = parse_qsl(text, keep_blank_values=True)
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BadRequest("the query has a field twice, and nobody knows which counts")
    unknown = sorted(fields.keys() - set(known))
    if unknown:
        raise BadRequest(f"no such field in the query: {', '.join(unknown)}")
    return fields


def whole_number(value: object, name: str) -> int:
    """Returns the value; refuses all but a whole number that fits."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise BadRequest(
            f"{name}: {shown(value)} is not a whole number from 0 to 2^63-1"
        )
    return value


def is_number(value: object) -> bool:
    """Tells whether the value is a number or None."""
    return value is None or (
        isinstance(value, (int, float)) and not isinstance(value, bool)
    )
