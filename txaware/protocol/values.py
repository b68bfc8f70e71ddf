"""Answers of administration as JSON and back: one converter for both ends."""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, get_args, get_origin

import attrs
import cattrs
import msgspec
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from coordinator.remote.wire import to_base64
from txaware.errors import BadRequest
from txaware.model.messages import MessageId
from txaware.model.queues import Popped
from txaware.protocol.json_values import camel

T = TypeVar("T")


def to_json(value: Any) -> bytes:
    """Writes attributes in camelCase, ids as 40 hex digits, bytes as base64."""
    written = unstructured(value)
    return json.dumps(written, separators=(",", ":"), default=to_base64).encode()


def unstructured(value: Any) -> Any:
    """Returns what `to_json` writes, as Python has JSON and bytes."""
    return _converter.unstructure(value)


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
        return _converter.structure(value, kind)
    except BadRequest:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        name = getattr(kind, "__name__", kind)
        raise BadRequest(f"the body is no {name}: {error!r}") from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _renamed(kind: type) -> dict[str, Any]:
    resolved = attrs.resolve_types(kind)
    return {
        field.name: override(rename=camel(field.name))
        for field in attrs.fields(resolved)
    }


def _writer(kind: type) -> Any:
    return make_dict_unstructure_fn(kind, _converter, **_renamed(kind))


def _reader(kind: type) -> Any:
    read: Any = make_dict_structure_fn(kind, _converter, **_renamed(kind))
    return lambda value, of: read(_object(value), of)


def _exactly(*kinds: type) -> Any:
    """Returns a hook that takes a value as it is, and makes no other one of it."""

    def check(value: Any, _: object) -> Any:
        if type(value) not in kinds:
            raise TypeError(f"{value!r:.100} is no {kinds[0].__name__}")
        return float(value) if kinds[0] is float else value

    return check


def _bytes(value: Any, _: object) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise TypeError(f"{value!r:.100} is no base64") from error


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.100} is no object")
    return value


def _list(value: Any, kind: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.100} is no list")
    (item,) = get_args(kind)
    return [_converter.structure(one, item) for one in value]


def _is_list(kind: Any) -> bool:
    return get_origin(kind) in (list, Sequence)


def _tuple(value: Any, kind: Any) -> tuple[Any, ...]:
    return tuple(_list(value, list[get_args(kind)[0]]))  # type: ignore[misc]


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) in (tuple,)


def _mapping(value: Any, kind: Any) -> dict[str, Any]:
    _, item = get_args(kind)
    fields = _object(value).items()
    return {name: _converter.structure(one, item) for name, one in fields}


def _is_mapping(kind: Any) -> bool:
    return get_origin(kind) in (dict, Mapping)


def _new_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=False)
    for kind in (int, str, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _exactly(float, int))
    converter.register_structure_hook(MessageId, lambda v, _: MessageId.parse(v))
    converter.register_structure_hook(bytes, _bytes)
    converter.register_structure_hook_func(_is_list, _list)
    converter.register_structure_hook_func(_is_mapping, _mapping)
    converter.register_structure_hook_func(_is_tuple, _tuple)
    converter.register_unstructure_hook(MessageId, str)
    converter.register_unstructure_hook(bytes, lambda data: data)
    converter.register_unstructure_hook_factory(attrs.has, _writer)
    converter.register_structure_hook_factory(attrs.has, _reader)
    return converter


_converter = _new_converter()
