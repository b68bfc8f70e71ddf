"""Answers of administration as JSON and back, for both ends."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, NoReturn, TypeVar, Union, get_args, get_origin

import attrs
import msgspec

from coordinator.remote.wire import to_base64
from txaware.errors import BadRequest
from txaware.model.messages import MessageId
from txaware.model.queues import Popped
from txaware.protocol.json_values import camel, checked_object

T = TypeVar("T")

# What reading a value that does not fit raises.
_WRONG = (ValueError, TypeError, msgspec.ValidationError)
# Classes whose values JSON, or msgpack, has as they are.
_PLAIN = {bool, int, float, str, bytes, NoneType}


def to_json(value: Any) -> bytes:
    """Writes attributes in camelCase, ids as 40 hex digits, bytes as base64."""
    written = unstructured(value)
    return json.dumps(written, separators=(",", ":"), default=to_base64).encode()


def unstructured(value: Any) -> Any:
    """Returns what `to_json` writes, as Python has JSON and bytes."""
    kind: Any = value.__class__
    return _writer(kind)(value)


def popped_to_json(popped: Iterable[Popped]) -> bytes:
    """Writes items as `to_json` does, in a tenth of its time: each pop needs it."""
    return f"[{','.join(map(_popped, popped))}]".encode()


def _popped(one: Popped) -> str:
    key = "null" if one.key is None else f'"{to_base64(one.key)}"'
    headers = "{}"
    if one.headers:
        headers = to_json(one.headers).decode()
    until_ms = "null" if one.lease_until_ms is None else one.lease_until_ms
    return (
        f'{{"id":"{one.id}","payload":"{to_base64(one.payload)}","key":{key},'
        f'"headers":{headers},"deliveries":{one.deliveries},'
        f'"pushedMs":{one.pushed_ms},"lease":"{one.lease}","leaseUntilMs":{until_ms}}}'
    )


def popped_to_pack(popped: Iterable[Popped]) -> list[dict[str, Any]]:
    """Returns items as `unstructured` does, in a tenth of its time."""
    return [
        {
            "id": one.id,
            "payload": one.payload,
            "key": one.key,
            "headers": dict(one.headers),
            "deliveries": one.deliveries,
            "pushedMs": one.pushed_ms,
            "lease": one.lease,
            "leaseUntilMs": one.lease_until_ms,
        }
        for one in popped
    ]


class _PoppedInFrame(msgspec.Struct, rename="camel"):
    id: str
    payload: bytes
    key: bytes | None
    headers: dict[str, bytes]
    deliveries: int
    pushed_ms: int
    lease: str
    lease_until_ms: int | None


_read_popped = msgspec.msgpack.Decoder(list[_PoppedInFrame]).decode


def popped_of_frame(body: bytes) -> list[Popped]:
    """Reads what `popped_to_pack` made, in a quarter of the time of `structured`."""
    return [Popped(*msgspec.structs.astuple(one)) for one in _read_popped(body)]


def from_json(kind: type[T], data: bytes) -> T:
    """Reads what `to_json` wrote of a value of that kind; fields it lacks are unknown.

    Raises `BadRequest` for anything else. Fields that are not known are passed over, so
    that a newer server can say more.
    """
    return structured(kind, read_json(data))


def read_json(data: bytes) -> Any:
    """Reads the JSON in these bytes; `BadRequest` where there is none."""
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error


def field_of(body: bytes, name: str) -> Any:
    """Returns one field of the object in a body; `BadRequest` where it has none."""
    fields = read_json(body)
    if not isinstance(fields, dict) or name not in fields:
        raise BadRequest(f"it has no {name}")
    return fields[name]


def structured(kind: type[T], value: Any) -> T:
    """Reads a value of that kind from JSON, as `from_json` does."""
    try:
        wanted: Any = kind
        read: T = _reader(wanted)(value)
    except _WRONG as error:
        name = getattr(kind, "__name__", kind)
        raise BadRequest(f"the body is no {name}: {error}") from error
    return read


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


@cache
def _writer(kind: type) -> Callable[[Any], Any]:
    """Returns what makes of values of a class what JSON has."""
    if kind is MessageId:
        return str
    if attrs.has(kind):
        return partial(_written, [(f.name, camel(f.name)) for f in attrs.fields(kind)])
    if issubclass(kind, Mapping):
        return lambda value: {name: unstructured(one) for name, one in value.items()}
    if issubclass(kind, list | tuple):
        return lambda value: [*map(unstructured, value)]
    return lambda value: value


def _written(names: Iterable[tuple[str, str]], value: object) -> dict[str, Any]:
    found = {}
    for here, there in names:
        one = getattr(value, here)
        found[there] = one if one.__class__ in _PLAIN else unstructured(one)
    return found


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Returns what makes a value of a kind; msgspec knows no other names of fields."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is MessageId:
        return MessageId.parse
    if attrs.has(kind):
        return partial(_read_object, kind)
    if origin is Annotated:
        return _reader(inner[0])
    if origin in (list, Sequence):
        return partial(_read_list, _reader(inner[0]))
    if origin is tuple:
        items = partial(_read_list, _reader(inner[0]))
        return lambda value: tuple(items(value))
    if origin in (dict, Mapping):
        return partial(_read_mapping, _reader(inner[1]))
    if origin in (Union, UnionType) and len(inner) == 2 and inner[1] is NoneType:
        read = _reader(inner[0])
        return lambda value: None if value is None else read(value)
    return partial(msgspec.convert, type=kind)


@cache
def _fields(kind: type) -> list[tuple[str, str, bool, Callable[[Any], Any]]]:
    """Returns name, name in JSON, whether it has to be there, and reader of each."""
    return [
        (f.alias, camel(f.name), f.default is attrs.NOTHING, _reader(f.type))
        for f in attrs.fields(attrs.resolve_types(kind))
        if f.init
    ]


def _read_object(kind: Any, value: Any) -> Any:
    sent = checked_object(value, what=kind.__name__)
    found = {}
    for name, there, is_needed, read in _fields(kind):
        if there in sent:
            try:
                found[name] = read(sent[there])
            except _WRONG as error:
                raise ValueError(f"{there}: {error}") from error
        elif is_needed:
            raise ValueError(f"it has no {there}")
    return kind(**found)


def _read_list(read: Callable[[Any], T], value: Any) -> list[T]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.100} is no list")
    return [*map(read, value)]


def _read_mapping(read: Callable[[Any], T], value: Any) -> dict[str, T]:
    found = checked_object(value, what="it").items()
    return {name: read(one) for name, one in found}
