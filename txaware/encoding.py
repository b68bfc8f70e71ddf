"""Values as payloads and back: ready functions for JSON, also of attrs classes."""

import base64
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import attrs
import cattrs
from cattrs.preconf.json import make_converter

from txaware.errors import BadRequest
from txaware.messages import Outgoing
from txaware.requests import Payload

T = TypeVar("T")

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]


def to_json(value: object) -> bytes:
    """Encodes what JSON has, attrs classes and times as JSON in UTF-8.

    Bytes inside become base64, times ISO texts.
    """
    try:
        plain = _converter.unstructure(value)
        return json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(f"{value!r:.100} is no JSON: {error}") from error


def from_json(payload: bytes) -> Any:
    """Decodes JSON: dicts, lists, texts, numbers, True, False and None."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{payload!r:.100} is no JSON: {error}") from error


def from_json_as(kind: type[T]) -> Callable[[bytes], T]:
    """Returns a function that decodes JSON to a class, which may be one of attrs."""

    def decode(payload: bytes) -> T:
        value = from_json(payload)
        try:
            return _converter.structure(value, kind)
        except Exception as error:
            reasons = "; ".join(cattrs.transform_error(error))
            name = getattr(kind, "__name__", str(kind))
            raise BadRequest(f"{payload!r:.100} is no {name}: {reasons}") from error

    return decode


def encoded(value: object, encode: Encode) -> Payload:
    """Encodes a value, or the payload of an `Outgoing`."""
    if not isinstance(value, Outgoing):
        return _checked(encode(value))
    return attrs.evolve(value, payload=_checked(encode(value.payload)))


def _checked(payload: object) -> bytes:
    if not isinstance(payload, bytes):
        raise BadRequest(f"encode returned {payload!r:.100}, and a payload is bytes")
    return payload


def _new_converter() -> cattrs.Converter:
    converter = make_converter()
    converter.register_unstructure_hook(
        bytes, lambda data: base64.b64encode(data).decode("ascii")
    )
    converter.register_structure_hook(
        bytes, lambda text, _: base64.b64decode(text, validate=True)
    )
    converter.register_unstructure_hook(datetime, datetime.isoformat)
    return converter


_converter = _new_converter()
