"""Values as payloads and back: ready functions for JSON, and for classes of values."""

import base64
import dataclasses
import json
import typing
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from datetime import date
from enum import Enum
from functools import cache
from operator import methodcaller
from pathlib import PurePath
from types import NoneType
from typing import Any, TypeVar

import attrs
import msgspec

from coordinator.callbacks import check_function
from txaware.errors import BadRequest
from txaware.model.messages import Outgoing
from txaware.model.requests import Payload

T = TypeVar("T")

Encode = Callable[[T], bytes]
Decode = Callable[[bytes], T] | type[T]


def to_json(value: object) -> bytes:
    """Encodes what JSON has, times, and the classes of `from_json_as`, in UTF-8.

    Bytes inside become base64, times ISO texts.
    """
    try:
        return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(f"{shown(value)} is no JSON: {error}") from error


def shown(value: object) -> str:
    """Returns the beginning of a value's `repr`, or its class where it has none."""
    try:
        return f"{value!r:.100}"
    except (ValueError, RecursionError):  # what is too deep, or has too many digits
        return f"this {type(value).__name__}"


def from_json(payload: bytes) -> Any:
    """Decodes JSON: dicts, lists, texts, numbers, True, False and None."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{payload!r:.100} is no JSON: {error}") from error


def from_json_as(kind: type[T]) -> Callable[[bytes], T]:
    """Returns a function that decodes JSON to a class, and checks it strictly.

    It may be a class of attrs, a dataclass, a `TypedDict`, a `msgspec.Struct`, a model
    of pydantic, or `list[...]` and the like of these. What does not fit is a
    `BadRequest` that names the field. Fields that the class does not have are passed
    over, unless it forbids them. Validators are run, converters of attrs are not.
    """
    name = getattr(kind, "__name__", str(kind))
    read = _reader(kind)

    def decode(payload: bytes) -> T:
        try:
            return read(payload)
        except msgspec.ValidationError as error:
            raise BadRequest(f"{payload!r:.100} is no {name}: {error}") from error
        except (ValueError, RecursionError) as error:
            # Of pydantic, which says several things on lines of their own.
            said = _said_by_pydantic(error)
            no = f"no {name}" if said else "no JSON"
            raise BadRequest(f"{payload!r:.100} is {no}: {said or error}") from error

    return decode


def _reader(kind: type[T]) -> Callable[[bytes], T]:
    if is_pydantic(kind):
        return _read_by_pydantic(kind)
    try:
        return msgspec.json.Decoder(kind, dec_hook=_read_within).decode
    except TypeError as error:
        raise BadRequest(
            f"JSON cannot be read as {kind!r:.200}: {error}; give a function that makes"
            f" it of bytes"
        ) from error


def _read_within(kind: type[T], value: object) -> T:
    """Reads a field whose class msgspec does not know."""
    if not is_pydantic(kind):
        raise NotImplementedError(f"{kind.__name__} cannot be read from JSON")
    try:
        return _read_by_pydantic(kind)(msgspec.json.encode(value))
    except ValueError as error:
        raise ValueError(_said_by_pydantic(error) or str(error)) from error


def _read_by_pydantic(kind: type[T]) -> Callable[[bytes], T]:
    validator: Any = getattr(kind, "__pydantic_validator__")  # noqa: B009

    def read(payload: bytes) -> T:
        made: T = validator.validate_json(payload, strict=True)
        return made

    return read


def _said_by_pydantic(error: Exception) -> str:
    errors: Any = getattr(error, "errors", None)
    if errors is None:
        return ""
    return "; ".join(
        ": ".join(filter(None, [".".join(map(str, one["loc"])), one["msg"]]))
        for one in errors(include_url=False, include_input=False)
    )


def is_pydantic(kind: object) -> bool:
    """Tells whether a class is a model or a dataclass of pydantic."""
    return isinstance(kind, type) and hasattr(kind, "__pydantic_validator__")


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def decoder(decode: Decode[T]) -> Callable[[bytes], T]:
    """Returns the function that makes a value of a payload.

    A class of values, as `from_json_as` takes them, is read from JSON. Any other class
    or function is called with the payload.
    """
    is_values = (
        typing.get_origin(decode) is not None
        or typing.is_typeddict(decode)
        or is_pydantic(decode)
        or _is_struct(decode)
        or (
            isinstance(decode, type)
            and (attrs.has(decode) or dataclasses.is_dataclass(decode))
        )
    )
    if is_values:
        return from_json_as(typing.cast("type[T]", decode))
    check_function(decode, what="decode")
    return typing.cast("Callable[[bytes], T]", decode)


def encoder(encode: Encode[T]) -> Encode[T]:
    """Returns the function that makes a payload of a value; else a `BadRequest`."""
    check_function(encode, what="encode")
    return encode


def encoded(value: T | Outgoing[T], encode: Encode[T]) -> Payload:
    """Encodes a value, or the payload of an `Outgoing`."""
    if not isinstance(value, Outgoing):
        return _checked(encode(value))
    payload = _checked(encode(value.payload))
    return Outgoing(payload, value.key, value.headers, value.expire_after_s, value.more)


def _checked(payload: object) -> bytes:
    if not isinstance(payload, bytes):
        raise BadRequest(f"encode returned {payload!r:.100}, and a payload is bytes")
    return payload


def _plain(value: Any) -> Any:
    """Returns a value as `json` writes it, with private fields, and no other UTC.

    msgspec would leave the fields out, and write `Z` for `+00:00`.
    """
    kind: Any = value.__class__
    return value if kind in _SCALARS else _writer(kind)(value)


@cache
def _writer(kind: Any) -> Callable[[Any], Any]:
    """Returns what makes the values of a class plain."""
    if _is_struct(kind):
        return msgspec.to_builtins
    if is_pydantic(kind) and hasattr(kind, "model_dump"):
        return methodcaller("model_dump", mode="json")
    if attrs.has(kind):
        return _fields_writer(attrs.fields(kind))
    if dataclasses.is_dataclass(kind):
        return _fields_writer(dataclasses.fields(kind))
    for base, write in _WRITERS:
        if issubclass(kind, base):
            return write
    return lambda value: value


def _fields_writer(fields: Iterable[Any]) -> Callable[[Any], Any]:
    names = [field.name for field in fields if field.init]
    return lambda value: {name: _plain(getattr(value, name)) for name in names}


_SCALARS = {bool, int, float, str, NoneType}
_WRITERS: list[tuple[Any, Callable[[Any], Any]]] = [
    (str | int | float, lambda value: value),
    (bytes, lambda data: base64.b64encode(data).decode("ascii")),
    (date, methodcaller("isoformat")),
    (PurePath, str),
    (Enum, lambda value: _plain(value.value)),
    (Mapping, lambda found: {_plain(key): _plain(found[key]) for key in found}),
    (list | tuple | Set | deque, lambda found: [*map(_plain, found)]),
]
