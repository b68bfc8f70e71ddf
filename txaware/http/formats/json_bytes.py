"""The ways that JSON has for bytes: Avro's rule, base64, UTF-8."""

import base64

from txaware.errors import BadRequest
from txaware.http.wire.json_values import shown


def by_avro_rule(value: object, *, what: str) -> bytes:
    """One character a byte, up to U+00FF."""
    if not isinstance(value, str):
        raise BadRequest(f"{what} is a string, not {shown(value)}")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"{what} has one character for each byte, up to U+00FF, and not "
            f'{value[error.start]!a}; write {{"utf8": "..."}} for text, or '
            f'{{"base64": "..."}} for any bytes'
        ) from error


def from_base64(value: object, *, what: str) -> bytes:
    """Base64 of the usual alphabet, with its padding and nothing else."""
    if not isinstance(value, str):
        raise BadRequest(f"{what} is a string of base64, not {shown(value)}")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise BadRequest(f"{what} is not base64: {error}") from error


def base64_or_tagged(value: object, *, what: str) -> bytes:
    """Base64, or {"bytes": a string by Avro's rule}."""
    if isinstance(value, dict) and value.keys() == {"bytes"}:
        return by_avro_rule(value["bytes"], what=what)
    return from_base64(value, what=what)


def from_utf8(value: object, *, what: str) -> bytes:
    """The UTF-8 of a string."""
    if not isinstance(value, str):
        raise BadRequest(f"{what} is a string, not {shown(value)}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"{what} has half of a surrogate pair at character {error.start}"
        ) from error


def to_base64(data: bytes) -> str:
    """The base64 of bytes."""
    return base64.b64encode(data).decode()
