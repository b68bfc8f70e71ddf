"""Bodies of JSON, each declared once: how it is read, and how OpenAPI shows it."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import attrs

from coordinator import codec
from coordinator.remote.wire import LONGEST_NAME, shown, whole_number
from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.http.wire import json_schema
from txaware.http.wire.json_schema import LONG_MAX, LONG_MIN, Schema, tagged, whole
from txaware.http.wire.json_values import (
    Fields,
    base64_or_tagged,
    checked_fields,
    checked_object,
    flag,
    from_utf8,
    items,
    number,
)
from txaware.http.wire.requests import MAX_MESSAGES
from txaware.model.messages import MessageId

REQUIRED, LEFT_OUT = object(), object()


class Reads(Protocol):
    """A kind of value, or a whole body: it reads what stands in JSON."""

    @property
    def schema(self) -> Schema:
        """Describes it. It may say more than is read: the service checks ranges."""

    @property
    def read(self) -> Callable[..., Any]:
        """Reads a value, named by `what` in errors; raises `BadRequest`."""


@attrs.frozen
class Kind:
    """A kind of value: the function that reads it, and its schema."""

    read: Callable[..., Any]
    schema: Schema

    def or_null(self) -> "Kind":
        """Returns the kind that takes null, too, and reads it as None."""
        return Kind(partial(_or_none, self.read), json_schema.or_null(self.schema))


def _or_none(read: Callable[..., Any], value: object, *, what: str) -> Any:
    return None if value is None else read(value, what=what)


@attrs.frozen
class Field:
    """A field of a body; without a `default` it has to be there.

    One that is `LEFT_OUT` is among what was read only where it was sent. `missing` is
    the sentence for one that has to be there.
    """

    name: str
    kind: Reads
    default: Any = attrs.field(default=REQUIRED, kw_only=True)
    missing: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class Body:
    """An object of these fields.

    Others are refused; with `others` True they are passed over, and a kind reads them.
    `of` names what a field belongs to in errors: "the pointer of a receipt".
    """

    what: str
    fields: tuple[Field, ...]
    others: Kind | bool = attrs.field(default=False, kw_only=True)
    of: str | None = attrs.field(default=None, kw_only=True)
    names: tuple[str, ...] = attrs.field(init=False)
    _named: tuple[str, ...] = attrs.field(init=False, repr=False)

    @names.default
    def _default_names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @_named.default
    def _default_named(self) -> tuple[str, ...]:
        of = "{}" if self.of is None else f"the {{}} of {self.of}"
        return tuple(of.format(name) for name in self.names)

    @property
    def schema(self) -> Schema:
        """Describes it."""
        schemas = {field.name: field.kind.schema for field in self.fields}
        required = [f.name for f in self.fields if f.default is REQUIRED]
        return json_schema.fields(
            {name: schemas.pop(name) for name in required},
            schemas,
            others=self.others.schema if isinstance(self.others, Kind) else self.others,
        )

    def read(self, value: object, *, what: str | None = None) -> Fields:
        """Returns the fields by name, those that were not sent by their defaults."""
        what = what or self.what
        if self.others is False:
            sent = checked_fields(value, what=what, known=self.names)
        else:
            sent = checked_object(value, what=what)
        found: Fields = {}
        for field, named in zip(self.fields, self._named, strict=True):
            name = field.name
            if name in sent:
                found[name] = field.kind.read(sent[name], what=named)
            elif field.default is REQUIRED:
                raise BadRequest(field.missing or f"{what} has no {name}")
            elif field.default is not LEFT_OUT:
                found[name] = field.default
        if isinstance(self.others, Kind):
            for name in sent.keys() - found.keys():
                found[name] = self.others.read(sent[name], what=shown(name))
        return found


def long(least: int = LONG_MIN, most: int = LONG_MAX) -> Kind:
    """Returns the kind of whole numbers of 64 bits, plain or as {"long": it}."""
    return Kind(number, tagged("long", whole(least, most)))


def int_(least: int, most: int) -> Kind:
    """Returns the kind of whole numbers of 32 bits, plain or as {"int": it}."""
    return Kind(partial(number, kind="int"), tagged("int", whole(least, most)))


def plain(least: int = 0, most: int = LONG_MAX) -> Kind:
    """Returns the kind of whole numbers within bounds, which no tag stands around."""

    def read(value: object, *, what: str) -> int:
        number = whole_number(value, what)
        if not least <= number <= most:
            raise BadRequest(f"{what} is from {least} to {most}, not {number}")
        return number

    return Kind(read, whole(least, most))


def array_of(kind: Reads) -> Kind:
    """Returns the kind of arrays of values of a kind."""

    def read(value: object, *, what: str) -> list[Any]:
        return [
            kind.read(one, what=f"one of {what}") for one in items(value, what=what)
        ]

    return Kind(read, json_schema.array(kind.schema, maxItems=MAX_MESSAGES))


def text(schema: Schema = json_schema.TEXT) -> Kind:
    """Returns the kind of strings; the service checks what may stand in them."""
    return Kind(_text, schema)


def _text(value: object, *, what: str) -> str:
    return from_utf8(value, what=what).decode()


def _id(value: object, *, what: str) -> MessageId:
    return MessageId.parse(_text(value, what=what))


def read_transaction(value: object, *, what: str) -> Transaction:
    """Reads a transaction from the base64 of its bytes, plain or as {"bytes": it}."""
    return codec.decode(base64_or_tagged(value, what=what))


FLAG = Kind(flag, json_schema.FLAG)
TEXT = text()
NAME = text(json_schema.TEXT | {"minLength": 1, "maxLength": LONGEST_NAME})
ID = Kind(_id, json_schema.HEX_ID)
SNAPSHOT = Kind(read_transaction, json_schema.BASE64)
