"""Fields of requests, each declared once: how it is given, travels, and is shown."""

import struct
from collections.abc import Callable, Mapping
from functools import partial
from types import GenericAlias
from typing import Annotated, Any, Protocol

import attrs
import msgspec

from coordinator import codec
from coordinator.remote.wire import LONGEST_NAME, shown, whole_number
from coordinator.transaction import Transaction
from txaware.errors import BadRequest
from txaware.model.messages import ID_BYTES, MessageId
from txaware.model.requests import (
    MAX_MESSAGES,
    Start,
    checked_flag,
    checked_pointer,
    checked_snapshot,
    checked_start,
)
from txaware.protocol import json_schema
from txaware.protocol.json_schema import LONG_MAX, LONG_MIN, Schema, tagged, whole
from txaware.protocol.json_values import (
    Fields,
    base64_or_tagged,
    checked_fields,
    checked_object,
    flag,
    from_utf8,
    items,
    number,
)

REQUIRED, LEFT_OUT = object(), object()


class Reads(Protocol):
    """A kind of value, or a whole body: it reads what stands in JSON."""

    @property
    def schema(self) -> Schema:
        """Describes it. It may say more than is read: the service checks ranges."""

    @property
    def read(self) -> Callable[..., Any]:
        """Reads a value, named by `what` in errors; raises `BadRequest`."""


def as_it_is(value: Any, *, what: str) -> Any:
    return value


@attrs.frozen
class Kind:
    """A kind of value: the function that reads it, and its schema.

    `given` checks what a program passes, `write` makes JSON of that, in which bytes
    stand for their base64, and `read_text` reads it in a query. `form` is the type by
    which msgspec reads it, with its bounds, it takes nothing that `read` refuses;
    `made` makes the value of what it reads. A transaction that `is_own` is one that the
    caller has begun. `missing` is the sentence for a field that has to be there.
    """

    read: Callable[..., Any]
    schema: Schema
    given: Callable[..., Any] = attrs.field(default=as_it_is, kw_only=True)
    write: Callable[[Any], Any] = attrs.field(default=lambda value: value, kw_only=True)
    read_text: Callable[..., Any] = attrs.field(kw_only=True)
    form: Any = attrs.field(default=None, kw_only=True)
    made: Callable[..., Any] | None = attrs.field(default=None, kw_only=True)
    is_own: bool = attrs.field(default=False, kw_only=True)
    missing: str | None = attrs.field(default=None, kw_only=True)

    @read_text.default
    def _default_read_text(self) -> Callable[..., Any]:
        return self.read

    def or_null(self) -> "Kind":
        """Returns the kind that takes null, too, and reads it as None."""
        return Kind(
            partial(_or_none, self.read),
            json_schema.or_null(self.schema),
            given=partial(_or_none, self.given),
            write=lambda value: None if value is None else self.write(value),
            read_text=self.read_text,
            form=None if self.form is None else self.form | None,
            made=None if self.made is None else partial(_or_none, self.made),
            is_own=self.is_own,
        )


def _or_none(read: Callable[..., Any], value: object, *, what: str) -> Any:
    return None if value is None else read(value, what=what)


def by(check: Callable[[Any], Any]) -> Callable[..., Any]:
    """Returns the `given` of a check that knows by itself what it checks."""
    return lambda value, *, what: check(value)


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
class Others:
    """The kind of a field that has what stands in a body beside all that is declared.

    Each is of `kind`, but for those that are `named`; without a kind there are no more
    than these. What is `passed_over` is read, and is not among them.
    """

    kind: Kind | None
    named: tuple[Field, ...] = attrs.field(default=(), kw_only=True)
    passed_over: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    given: Callable[..., Any] = attrs.field(default=as_it_is, kw_only=True)


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


def plain(
    least: int = 0, most: int = LONG_MAX, *, given: Callable[..., Any] = as_it_is
) -> Kind:
    """Returns the kind of whole numbers within bounds, which no tag stands around."""

    def read(value: object, *, what: str) -> int:
        number = whole_number(value, what)
        if not least <= number <= most:
            raise BadRequest(f"{what} is from {least} to {most}, not {number}")
        return number

    return Kind(
        read,
        whole(least, most),
        given=given,
        read_text=whole_in_text,
        form=Annotated[int, msgspec.Meta(ge=least, le=most)],
    )


def seconds_in_ms(
    most_ms: int, *, least_ms: int = 0, given: Callable[..., Any], write: Any
) -> Kind:
    """Returns the kind of times in seconds that travel in whole ms."""
    ms = plain(least_ms, most_ms)
    return Kind(
        lambda value, *, what: ms.read(value, what=what) / 1000,
        ms.schema,
        given=given,
        write=write,
        read_text=lambda text, *, what: whole_in_text(text, what=what) / 1000,
        form=ms.form,
        made=lambda value, *, what: value / 1000,
    )


def whole_in_text(text: str, *, what: str) -> int:
    """Reads the number of a field in a query; raises `BadRequest` for other text."""
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise BadRequest(f"{what} is a whole number, not {text[:50]!r}")
    return int(text)


def _no_write(value: Any) -> Any:
    raise TypeError(f"nobody writes {value!r:.100}")


def array_of(kind: Reads) -> Kind:
    """Returns the kind of arrays of values of a kind."""

    def read(value: object, *, what: str) -> list[Any]:
        return [
            kind.read(one, what=f"one of {what}") for one in items(value, what=what)
        ]

    write = kind.write if isinstance(kind, Kind) else _no_write
    form = kind.form if isinstance(kind, Kind) and kind.made is None else None
    return Kind(
        read,
        json_schema.array(kind.schema, maxItems=MAX_MESSAGES),
        write=lambda values: [*map(write, values)],
        form=GenericAlias(list, (form,)) if form is not None else None,
    )


def text(
    schema: Schema = json_schema.TEXT, *, given: Callable[..., Any] = as_it_is
) -> Kind:
    """Returns the kind of strings; the service checks what may stand in them."""
    return Kind(_text, schema, given=given, form=str)


def _text(value: object, *, what: str) -> str:
    return from_utf8(value, what=what).decode()


def _id(value: object, *, what: str) -> MessageId:
    return MessageId.parse(_text(value, what=what))


def read_transaction(value: object, *, what: str) -> Transaction:
    """Reads a transaction of its bytes; JSON has their base64, or {"bytes": them}."""
    return codec.decode(base64_or_tagged(value, what=what))


def encoded_transaction(transaction: Transaction) -> bytes:
    """Returns Tephra's bytes of a transaction."""
    try:
        return codec.encode(transaction)
    except (struct.error, OverflowError) as error:
        raise BadRequest(f"the transaction has odd numbers: {error}") from error


def _checked_snapshot(transaction: Any, *, what: str) -> Any:
    checked_snapshot(transaction)
    return transaction


def _checked_flag(value: object, *, what: str) -> bool:
    return checked_flag(what, value)


def _start_in_text(text: str, *, what: str) -> MessageId | int:
    is_id = len(text) == 2 * ID_BYTES
    return MessageId.parse(text) if is_id else whole_in_text(text, what=what)


def _start(value: object, *, what: str) -> Start:
    return (
        _id(value, what=what) if isinstance(value, str) else whole_number(value, what)
    )


def start_field(start: Start) -> str | int | dict[str, str] | None:
    """Returns an id as 40 hex digits, a time as a number, places by partition."""
    if isinstance(start, Mapping):
        return {str(number): str(place) for number, place in start.items()}
    return str(start) if isinstance(start, MessageId) else start


def _flag_in_text(text: str, *, what: str) -> bool:
    if text not in ("true", "false"):
        raise BadRequest(f"{what} is true or false, not {text[:50]!r}")
    return text == "true"


FLAG = Kind(
    flag,
    json_schema.FLAG,
    given=_checked_flag,
    read_text=_flag_in_text,
    form=bool,
)
TEXT = text()
NAME = text(json_schema.TEXT | {"minLength": 1, "maxLength": LONGEST_NAME})
ID = Kind(_id, json_schema.HEX_ID, write=str)
SNAPSHOT = Kind(
    read_transaction,
    json_schema.BASE64,
    write=encoded_transaction,
    form=str,
    made=read_transaction,
)
# A snapshot to see by, or None.
SEEN_BY = attrs.evolve(SNAPSHOT.or_null(), given=_checked_snapshot)
POINTER = attrs.evolve(plain(1, given=by(checked_pointer)), is_own=True)
# A start in a query; in the body of a poll it has the tags of Avro.
START = Kind(
    _start,
    json_schema.any_of(json_schema.HEX_ID, whole(0)),
    given=by(checked_start),
    write=start_field,
    read_text=_start_in_text,
)
