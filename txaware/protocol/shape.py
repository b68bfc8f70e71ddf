"""The shape of a request: where each of its fields stands, and how it is read."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, get_type_hints
from urllib.parse import urlencode

import attrs
import msgspec

from coordinator.remote.wire import to_base64
from txaware.errors import BadRequest
from txaware.protocol.fields import (
    LEFT_OUT,
    REQUIRED,
    Body,
    Field,
    Kind,
    Others,
    Reads,
    as_it_is,
)
from txaware.protocol.formats import MSGPACK, Format, format_of
from txaware.protocol.json_schema import Schema
from txaware.protocol.json_values import check_marks, checked_object
from txaware.protocol.places import Place
from txaware.protocol.rights import Params
from txaware.protocol.values import read_json


class GoOn:
    """Marks a field that does not travel: the engine calls it now and then."""


@attrs.frozen
class Binary:
    """A body of another type, whose fields `read` returns by their names in Python.

    It is for what JSON would make too large; `name` is its name in the description.
    """

    media_type: str
    read: Callable[[bytes], dict[str, Any]]
    name: str


@attrs.frozen(kw_only=True)
class Described:
    """A body in the description: its schema in JSON, and its names in the others."""

    schema: Schema
    avro: str | None = None
    msgpack: str


def _says_nothing(_: Format, __: Any) -> bytes:
    return b""


def _reads_nothing(_: Any, __: bytes) -> None:
    """Reads an answer that says nothing."""


@attrs.frozen(kw_only=True)
class BodyFormats:
    """The formats of a body and its answer: JSON, Avro as CDAP has it, our msgpack.

    `read` makes the fields of a body by their names in Python, and `write` the body of
    an answer, which is empty where there is nothing to say; in JSON that may be
    `done_in_json`. Our client has msgpack: it makes the body of a request by `pack`,
    and reads the answer by `unpack` of the request and that. In a frame, which no
    older server reads, it may be made by `pack_framed`. One that `has_messages`
    has to fit a server, and without any of them `none` is wrong. A body that names no
    type has the format `unnamed`.
    """

    body: Described
    read: Callable[[Format, bytes], dict[str, Any]]
    pack: Callable[[Any], bytes]
    pack_framed: Callable[[Any], bytes] | None = None
    answer: Described | None = None
    write: Callable[[Format, Any], bytes] = _says_nothing
    unpack: Callable[[Any, bytes], Any] = _reads_nothing
    done_in_json: bool = False
    has_messages: bool = False
    none: str | None = None
    unnamed: Format | None = None

    def of(self, content_type: str | None) -> Format:
        """Returns the format of a type; `BadRequest` where there is none."""
        if content_type is None and self.unnamed is not None:
            return self.unnamed
        return format_of(content_type)


class LateRequest(msgspec.Struct, frozen=True, eq=False):
    """A request whose body is read when it is needed; `found` is what stands beside.

    `read_body` makes the fields of the body by their names in Python.
    """

    request: type[msgspec.Struct]
    body: bytes
    found: dict[str, Any]
    read_body: Callable[[bytes], dict[str, Any]]

    @property
    def topic(self) -> str:
        """The topic that the path names."""
        topic: str = self.found["topic"]
        return topic

    def read(self) -> Any:
        """Returns the whole request; raises `BadRequest` where the body is none."""
        return self.request(**self.found, **self.read_body(self.body))


class Unread(LateRequest, frozen=True, eq=False):
    """One whose body has a format; `known` is the request where it was read already."""

    format: Format
    known: Any = None

    def known_as(self, request: Any) -> "Unread":
        """Returns the same, of which this is the request, perhaps to another topic."""
        found = {**self.found, "topic": request.topic}
        return Unread(
            self.request, self.body, found, self.read_body, self.format, request
        )

    def read(self) -> Any:
        """Returns the whole request; raises `BadRequest` where the body is none."""
        return super().read() if self.known is None else self.known


@attrs.frozen
class Part:
    """A field of a query or a body: its name there, its kind, and its default."""

    name: str
    kind: Kind
    default: Any


class Shape:
    """The way of a request's fields: in the path, in the query, or in the body.

    A field says it in its annotation: by a `Place`, by a `Kind`, by `GoOn` or as
    `Others`. What is no place stands in the body, and in the query where the verb has
    none. A body of `formats` is read by them, and is one field of a frame. Fields of
    one that `is_late` are read when they are needed.
    """

    def __init__(
        self,
        path: str,
        request: type[msgspec.Struct],
        query: tuple[str, ...] | None,
        *,
        without_body: str | None = None,
        empty_body: bool = False,
        needs_body: bool = False,
        body_name: str = "the body",
        load: Callable[[bytes], object] = read_json,
        binary: Binary | None = None,
        formats: BodyFormats | None = None,
        is_late: bool = False,
    ) -> None:
        self.binary, self.formats, self.is_late = binary, formats, is_late
        self.without_body, self.empty_body = without_body, empty_body
        self.load = load
        self.path, self.request = path, request
        self.places: dict[str, Place] = {}
        self.go_on: str | None = None
        self.others: dict[str, Others] = {}
        self.query: dict[str, Part] = {}
        # Those of a body that `formats` read, the first of which stands for all.
        self.formatted: dict[str, Part] = {}
        self._in_body: dict[str, Part] = {}
        self._sort_fields(query)
        parts = self.query | self._in_body | self.formatted
        self.kinds: dict[str, Kind | Others] = {n: f.kind for n, f in parts.items()}
        self.kinds |= self.others
        self.names = (*self.places, *self.kinds)
        self.own = tuple(name for name, part in parts.items() if part.kind.is_own)
        # Those that are checked as a program passes them, but for a good default.
        defaults = {name: part.default for name, part in parts.items()}
        self._checked = [
            (name, kind.given, _good_default(kind, name, defaults.get(name, REQUIRED)))
            for name, kind in self.kinds.items()
            if kind.given is not as_it_is
        ]
        self.whole_body = next(iter(self.formatted), None)
        self.in_order = self._order_in_frame()
        uncopied: dict[str, Any] = dict.fromkeys(self.formatted, memoryview | None)
        if is_late:
            uncopied = {n: msgspec.Raw for n in self.in_order if n not in self.places}
        self._unpack = _unpacker(self.in_order, uncopied)
        # Each with its part of the query or the body, where it has one.
        sent = self.query | self._in_body
        self._in_frame = tuple((name, sent.get(name)) for name in self.in_order)
        self._sent_names = frozenset(part.name for part in sent.values())
        self.body = self._declared_body(body_name)
        in_body = self._in_body.items()
        self._required = {n for n, part in in_body if part.default is REQUIRED}
        # For a frame, whose fields need no names.
        self._beside = self._others_by_name()
        self.needs_body = (
            needs_body
            or formats is not None
            or without_body is not None
            or bool(self._required)
        )
        # What msgspec cannot read whole, a strict reader reads.
        is_whole = load is read_json or None not in {
            k.form for k in self.kinds.values() if isinstance(k, Kind)
        }
        self._quick = (
            _quick(self._in_body, self.body) if is_whole and not self.others else None
        )

    def _sort_fields(self, query: tuple[str, ...] | None) -> None:
        """Finds where each field stands; `query` has those of it, or None for all."""
        hints = get_type_hints(self.request, include_extras=True)
        in_body = self._in_body if self.formats is None else self.formatted
        for one in msgspec.structs.fields(self.request):
            mark = hints[one.name].__metadata__[0]
            if isinstance(mark, Place):
                self.places[one.name] = mark
            elif isinstance(mark, Kind):
                is_asked = query is None or one.name in query
                part = Part(one.encode_name, mark, _default(one))
                (self.query if is_asked else in_body)[one.name] = part
            elif isinstance(mark, Others):
                self.others[one.name] = mark
            else:
                self.go_on = one.name

    def _others_by_name(self) -> dict[str, dict[str, Reads]] | None:
        """Returns the kinds of others, by their names; None where these may be any."""
        for mark in self.others.values():
            have_defaults = any(one.default is not LEFT_OUT for one in mark.named)
            if mark.kind is not None or mark.passed_over or have_defaults:
                return None
        return {
            name: {field.name: field.kind for field in mark.named}
            for name, mark in self.others.items()
        }

    def _order_in_frame(self) -> tuple[str, ...]:
        """Returns the fields as they are declared; new ones come last."""
        passed_over = {self.go_on, *self.formatted} - {self.whole_body}
        declared = self.request.__struct_fields__
        return tuple(name for name in declared if name not in passed_over)

    def _declared_body(self, name: str) -> Body:
        fields = [
            Field(part.name, part.kind, default=part.default, missing=part.kind.missing)
            for part in self._in_body.values()
        ]
        others: Kind | bool = not self.request.__struct_config__.forbid_unknown_fields
        for mark in self.others.values():
            fields += mark.named
            others = mark.kind or False
        return Body(name, tuple(fields), others=others)

    # ---- the client's half
    def build_request(self, *args: Any, **options: Any) -> Any:
        """Returns the request of a call, each field checked as a program passed it."""
        request = self.request(*args, **options)
        for name, place in self.places.items():
            place.words(getattr(request, name))
        for name, given, default in self._checked:
            value = getattr(request, name)
            if value is not default and value is not msgspec.UNSET:
                checked = given(value, what=name)
                if checked is not value:
                    setattr(request, name, checked)
        return request

    def path_of(self, request: Any) -> str:
        """Returns the path with its words and the query."""
        words: dict[str, str] = {}
        for name, place in self.places.items():
            words |= place.words(getattr(request, name))
        path = self.path.format_map(words) if words else self.path
        sent = _sent(self.query, request)
        for name, value in sent.items():
            if isinstance(value, bool):
                sent[name] = str(value).lower()
        return f"{path}?{urlencode(sent)}" if sent else path

    def body_of(self, request: Any) -> bytes:
        """Returns the body; a field with its default is left out."""
        if not self._in_body:
            return b""
        sent = _sent(self._in_body, request)
        for name in self.others:
            sent |= getattr(request, name)
        return json.dumps(sent, default=to_base64).encode()

    def packed(self, request: Any, body: bytes | None = None) -> bytes:
        """Returns the fields in their order, as a frame has them.

        `body` is that of the request, where it is packed already.
        """
        fields: list[Any] = []
        for name, part in self._in_frame:
            value = getattr(request, name)
            if part is not None:
                is_sent = value is not msgspec.UNSET and value != part.default
                fields.append(part.kind.write(value) if is_sent else _NOT_SENT)
            elif name != self.whole_body:
                fields.append(value)
            elif body is not None:
                fields.append(body)
            else:
                fields.append(self.packed_body(request, in_frame=True))
        return _packed(fields)

    def packed_sent(self, named: object, sent: Mapping[str, Any]) -> bytes:
        """Returns the same of fields by their names in a body, which are checked.

        Bytes stand in place of their base64, and what the path names is `named`.
        """
        others: dict[str, Any] = {}
        if self.others:
            known = self._sent_names
            others = {name: one for name, one in sent.items() if name not in known}
        fields: list[Any] = []
        for name, part in self._in_frame:
            if part is not None:
                fields.append(sent.get(part.name, _NOT_SENT))
            elif name in self.places:
                fields.append(named)
            else:
                fields.append(others or _NOT_SENT)
        return _packed(fields)

    def packed_body(self, request: Any, *, in_frame: bool = False) -> bytes:
        """Returns the body in msgpack, of one that has formats."""
        formats = self.formats
        assert formats is not None
        pack = (in_frame and formats.pack_framed) or formats.pack
        try:
            return pack(request)
        except (OverflowError, TypeError, ValueError) as error:
            raise BadRequest(f"the request cannot be written: {error}") from error

    # ---- the server's half
    def unpacked(self, body: bytes) -> tuple[Any, dict[str, str]]:
        """Returns the request of fields in their order, and the words of its path."""
        if self.is_late and not self.places:
            return LateRequest(self.request, body, {}, self._read_packed), {}
        sent = self._named(self._sent_in_order(self._unpack, body))
        found: dict[str, Any] = {}
        words: dict[str, str] = {}
        for name in self.places:
            if name not in sent:
                raise BadRequest(f"{name} is missing")
            own, found[name] = self._place(name, sent.pop(name))
            words |= own
        if self.is_late:
            return LateRequest(self.request, body, found, self._read_packed), words
        for name, part in self.query.items():
            if name in sent:
                found[name] = part.kind.read(sent.pop(name), what=part.name)
            elif part.default is REQUIRED:
                raise BadRequest(f"{part.name} is missing")
        if self.whole_body is not None:
            whole = sent.get(self.whole_body)  # a view of it, for msgpack
            if whole is None:
                raise BadRequest(f"{self.whole_body} is missing")
            return self._unread(MSGPACK, whole, found), words
        return self.request(**found, **self._read_sent(sent)), words

    def _named(self, in_order: Iterable[Any]) -> dict[str, Any]:
        """Returns the fields of a frame that were sent, by their names in Python."""
        return {
            name: value
            for name, value in zip(self.in_order, in_order, strict=False)
            if value.__class__ is not _EXTENSION or value != _NOT_SENT
        }

    def _unread(self, format_: Format, body: bytes, found: dict[str, Any]) -> Unread:
        assert self.formats is not None
        read = partial(self.formats.read, format_)
        return Unread(self.request, body, found, read, format_)

    def _read_packed(self, body: bytes) -> dict[str, Any]:
        """Reads the fields of a frame that are in no path."""
        sent = self._named(self._sent_in_order(unpack, body))
        for name in self.places:
            del sent[name]
        return self._read_sent(sent)

    def _read_sent(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Reads fields of a body by their names in Python.

        One that is missing or not known is for the reader of bodies.
        """
        if self._beside is None or not self._required <= sent.keys():
            return self._read_as_body(sent)
        found: dict[str, Any] = {}
        for name, part in self._in_body.items():
            if name in sent:
                found[name] = part.kind.read(sent[name], what=part.name)
            elif part.default is not LEFT_OUT:
                found[name] = part.default
        for name, kinds in self._beside.items():
            others = sent.get(name, {})
            if not isinstance(others, dict) or not others.keys() <= kinds.keys():
                return self._read_as_body(sent)
            found[name] = {
                other: kind.read(others[other], what=other)
                for other, kind in kinds.items()
                if other in others
            }
        return found

    def _read_as_body(self, sent: dict[str, Any]) -> dict[str, Any]:
        in_body: dict[str, Any] = {}
        for name, value in sent.items():
            if name in self.others:
                in_body |= checked_object(value, what=name)
            else:
                in_body[self._in_body[name].name] = value
        return self.named(self.body.read(in_body))

    def _sent_in_order(self, unpack: Callable[[bytes], Any], body: bytes) -> Any:
        try:
            sent = unpack(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BadRequest(f"the fields are no msgpack: {error}") from error
        if not isinstance(sent, list) or len(sent) > len(self.in_order):
            raise BadRequest(
                f"the fields are an array of {len(self.in_order)} at most: "
                f"{', '.join(self.in_order)}"
            )
        return sent

    def _place(self, name: str, value: object) -> tuple[dict[str, str], Any]:
        """Returns the words of the path that a field stands for, and the field."""
        try:
            return self.places[name].sent(value)
        except BadRequest:
            raise
        except (TypeError, ValueError, AttributeError) as error:
            raise BadRequest(f"{name} cannot be {value!r:.100}") from error

    def options(self, request: Any) -> dict[str, Any]:
        """Returns the fields of a request, as the engine takes them."""
        values = {name: getattr(request, name) for name in self.names}
        return {n: value for n, value in values.items() if value is not msgspec.UNSET}

    def read(
        self,
        words: Params,
        query: Callable[[], Mapping[str, str]],
        body: bytes,
        content_type: str | None = None,
    ) -> Any:
        """Returns the request of a path's words, a query and a body."""
        format_ = None if self.formats is None else self.formats.of(content_type)
        found = {name: place.name(words) for name, place in self.places.items()}
        if self.query:
            found |= self._read_query(query())
        if format_ is not None:
            return self._unread(format_, body, found)
        if self.is_late:
            return LateRequest(self.request, body, found, self._read_whole)
        if not body and self.without_body is not None:
            raise BadRequest(self.without_body)
        if self.binary is not None and content_type == self.binary.media_type:
            found |= self.binary.read(body)
        elif self._in_body or self.empty_body:
            found |= self._read_whole(body)
        return self.request(**found)

    def _read_whole(self, body: bytes) -> dict[str, Any]:
        """Reads a body, which may be missing where no field has to be there."""
        return self.read_body(body if body or self.needs_body else b"{}")

    def read_body(self, body: bytes) -> dict[str, Any]:
        """Reads a body: at once what msgspec takes, and all else in our words."""
        check_marks(body)
        if self._quick is None:
            return self.named(self.body.read(self.load(body)))
        try:
            if self.body.others:
                body.decode()  # msgspec does not look into what it passes over
            quick = self._quick.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return self.named(self.body.read(self.load(body)))
        found: dict[str, Any] = {}
        for name, field in self._in_body.items():
            value = getattr(quick, name)
            if value is msgspec.UNSET:
                if field.default is not LEFT_OUT:
                    found[name] = field.default
            elif field.kind.form is None:
                found[name] = field.kind.read(value, what=field.name)
            elif field.kind.made is not None:
                found[name] = field.kind.made(value, what=field.name)
            else:
                found[name] = value
        return found

    def named(self, read: Mapping[str, Any]) -> dict[str, Any]:
        """Returns fields of a body by their names in Python."""
        parts = self._in_body.items()
        found = {name: read[part.name] for name, part in parts if part.name in read}
        for name, mark in self.others.items():
            known = {*mark.passed_over, *(part.name for _, part in parts)}
            found[name] = {n: value for n, value in read.items() if n not in known}
        return found

    def _read_query(self, sent: Mapping[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, field in self.query.items():
            if field.name in sent:
                found[name] = field.kind.read_text(sent[field.name], what=field.name)
            elif field.default is REQUIRED:
                needed = [f.name for f in self.query.values() if f.default is REQUIRED]
                needs = [", ".join(needed[:-1]), needed[-1]]
                raise BadRequest(
                    f"{field.name} is missing; {self.path.rpartition('/')[2]} needs "
                    f"{' and '.join(filter(None, needs))}"
                )
        return found


def _packed(fields: list[Any]) -> bytes:
    """Returns fields in their order; those at the end that are not sent stay out."""
    while fields and fields[-1] is _NOT_SENT:
        fields.pop()
    try:
        return pack(fields)
    except (OverflowError, TypeError, ValueError) as error:
        raise BadRequest(f"the request cannot be written: {error}") from error


def _plain_bytes(value: Any) -> bytes:
    """Returns the bytes of a class derived from them, for msgpack."""
    if isinstance(value, bytes):
        return bytes(value)
    raise TypeError(f"{type(value).__name__} is no value of msgpack")


# Stands in a frame for a field that is not sent, where others follow.
_EXTENSION = msgspec.msgpack.Ext
_NOT_SENT = _EXTENSION(0, b"")
pack = msgspec.msgpack.Encoder(enc_hook=_plain_bytes).encode
unpack = msgspec.msgpack.Decoder().decode


def _unpacker(
    names: tuple[str, ...], uncopied: Mapping[str, Any]
) -> Callable[[bytes], Any]:
    """Returns what reads fields in their order, but for some that are not copied."""
    if not uncopied:
        return unpack
    fields = [(name, uncopied.get(name, Any), _NOT_SENT) for name in names]
    kind: Any = msgspec.defstruct(
        "Sent", fields, array_like=True, forbid_unknown_fields=True
    )
    decode = msgspec.msgpack.Decoder(kind).decode
    return lambda body: [*msgspec.structs.astuple(decode(body))]


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.required:
        return REQUIRED
    return LEFT_OUT if field.default is msgspec.UNSET else field.default


def _good_default(kind: Kind | Others, name: str, default: Any) -> Any:
    """Returns a default that its check takes as it is; `REQUIRED` where there is none.

    A program passes defaults most of the time, and need not wait for their checks.
    """
    if default in (REQUIRED, LEFT_OUT):
        return REQUIRED
    return default if kind.given(default, what=name) == default else REQUIRED


def _sent(fields: Mapping[str, Part], request: Any) -> dict[str, Any]:
    values = {name: getattr(request, name) for name in fields}
    return {
        field.name: field.kind.write(values[name])
        for name, field in fields.items()
        if values[name] is not msgspec.UNSET and values[name] != field.default
    }


def _quick(fields: Mapping[str, Part], body: Body) -> msgspec.json.Decoder[Any]:
    """Returns what reads a body of these fields, as far as their forms go."""
    forms = {name: field.kind.form or Any for name, field in fields.items()}
    return msgspec.json.Decoder(
        msgspec.defstruct(
            "Body",
            [
                (name, forms[name])
                if field.default is REQUIRED
                else (name, forms[name] | msgspec.UnsetType, msgspec.UNSET)
                for name, field in sorted(
                    fields.items(), key=lambda item: item[1].default is not REQUIRED
                )
            ],
            rename={name: field.name for name, field in fields.items()},
            forbid_unknown_fields=not body.others,
        )
    )
