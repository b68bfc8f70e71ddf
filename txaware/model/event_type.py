"""The class of a topic's events: how they are written, checked, read and described."""

import importlib
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, TypeVar, Unpack

import attrs
import msgspec

from txaware.errors import BadRequest
from txaware.model.encoding import from_json_as, is_pydantic, shown, to_json
from txaware.model.labels import FixedHeaders
from txaware.model.messages import MessageOptions, Outgoing, outgoing

T = TypeVar("T")

CONTENT_TYPE, TYPE = "content-type", "type"
JSON = b"application/json"
_NODES = (msgspec.inspect.Type, msgspec.inspect.Field)


class EventType(Generic[T]):
    """A class of events, as JSON in UTF-8 with the headers `content-type` and `type`.

    It may be a class of attrs, a dataclass, a `TypedDict`, a `msgspec.Struct`, a model
    of pydantic, or a union or `list[...]` of these. What is written was read back: an
    event that a reader would refuse is refused where it is published.
    """

    def __init__(self, kind: type[T]) -> None:
        check_describable(kind)
        self.kind = kind
        self.name: str = getattr(kind, "__name__", str(kind))
        self.decode = from_json_as(kind)
        self._write = _writer(kind)
        self._is_plain = isinstance(kind, type) and typing.get_origin(kind) is None
        self._checks = self._is_plain and not typing.is_typeddict(kind)
        self._headers: dict[type, FixedHeaders] = {}

    def message(
        self, event: T | Outgoing[T], **options: Unpack[MessageOptions]
    ) -> Outgoing:
        """Returns an event as a message; `BadRequest` for one that does not fit."""
        said = outgoing(event, options)
        value = said.payload if isinstance(said, Outgoing) else said
        payload = self.encode(value)
        labels = self._labels(type(value))
        if value is said:
            return Outgoing(payload, None, labels)
        if said.headers is not None:
            labels = {**labels, **said.headers}
        return attrs.evolve(said, payload=payload, headers=labels)

    def encode(self, event: T) -> bytes:
        """Returns an event as JSON, which `decode` reads."""
        if self._checks and not isinstance(event, self.kind):
            raise BadRequest(
                f"{shown(event)} is no {self.name}, the class of these events"
            )
        payload = self._write(event)
        self.decode(payload)
        return payload

    def json_schema(self) -> dict[str, Any]:
        """Describes the events as JSON Schema, with all in one piece."""
        schema, parts = self.schema_parts("#/$defs/{name}")
        return schema | ({"$defs": parts} if parts else {})

    def schema_parts(self, references: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Describes the events, and the parts that this refers to by their names.

        `references` is the form of a reference, with `{name}` in it.
        """
        return _described(self.kind, references)

    def _labels(self, kind: type) -> Mapping[str, bytes]:
        known = self._headers.get(kind)
        if known is None:
            # A union and a list say no more than the class of the event does.
            name = self.name if self._is_plain else kind.__name__
            known = FixedHeaders({CONTENT_TYPE: JSON, TYPE: name.encode()})
            self._headers[kind] = known
        return known

    def __repr__(self) -> str:
        return f"<EventType {self.name}>"


def check_describable(kind: object) -> None:
    """Raises `BadRequest` for what is no class that JSON can be read as."""
    try:
        found = [] if is_pydantic(kind) else list(_types_in(kind))
    except (TypeError, ValueError, NameError) as error:
        raise BadRequest(f"JSON cannot be read as {kind!r:.200}: {error}") from error
    for info in found:
        if isinstance(info, msgspec.inspect.CustomType) and not is_pydantic(info.cls):
            raise BadRequest(
                f"{info.cls!r:.200} has no fields to be read from JSON; a type of "
                f"events is a class of attrs, a dataclass, a TypedDict, a "
                f"msgspec.Struct or a model of pydantic"
            )


def _writer(kind: Any) -> Callable[[Any], bytes]:
    """Returns what writes such events; `to_json` for what msgspec would write less of.

    That is ten times slower, and writes private attributes of attrs, too.
    """
    encode: Callable[[Any], bytes]
    if is_pydantic(kind):
        # What it would warn of, the check of what was written refuses.
        encode = partial(
            kind.__pydantic_serializer__.to_json, by_alias=True, warnings=False
        )
    elif all(map(_is_written_whole, _types_in(kind))):
        encode = msgspec.json.Encoder(enc_hook=_write_within).encode
    else:
        return to_json

    def write(event: Any) -> bytes:
        try:
            return encode(event)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadRequest(f"{shown(event)} is no JSON: {error}") from error

    return write


def _write_within(value: Any) -> Any:
    """Writes a field whose class msgspec does not know."""
    if is_pydantic(type(value)):
        return value.__pydantic_serializer__.to_python(
            value, mode="json", by_alias=True, warnings=False
        )
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _is_written_whole(info: object) -> bool:
    if isinstance(info, msgspec.inspect.DataclassType) and attrs.has(info.cls):
        return not any(field.name.startswith("_") for field in info.fields)
    return not isinstance(info, msgspec.inspect.AnyType)


def _types_in(kind: Any) -> Iterator[Any]:
    """Yields what is known of a class, of the types of its fields, and so on."""
    waiting: list[Any] = [msgspec.inspect.type_info(kind)]
    seen: set[type] = set()
    while waiting:
        info = waiting.pop()
        cls = getattr(info, "cls", None)
        if cls in seen:
            continue
        if cls is not None:
            seen.add(cls)
        yield info
        for name in getattr(info, "__struct_fields__", ()):
            inner: Any = getattr(info, name)
            each = inner if isinstance(inner, tuple) else (inner,)
            waiting += [one for one in each if isinstance(one, _NODES)]


def _described(kind: Any, references: str) -> tuple[dict[str, Any], dict[str, Any]]:
    if is_pydantic(kind):
        # Whoever has such a model has imported it.
        pydantic = importlib.import_module("pydantic")
        template = references.replace("{name}", "{model}")
        found: dict[str, Any] = pydantic.TypeAdapter(kind).json_schema(
            ref_template=template
        )
        return found, found.pop("$defs", {})
    inner: dict[str, Any] = {}

    def within(field: Any) -> dict[str, Any]:
        if not is_pydantic(field):
            raise NotImplementedError(f"{field!r} cannot be described")
        schema, parts = _described(field, references)
        inner.update(parts)
        return schema

    (schema,), parts = msgspec.json.schema_components(
        [kind], schema_hook=within, ref_template=references
    )
    return schema, {**parts, **inner}
