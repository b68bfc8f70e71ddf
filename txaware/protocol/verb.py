"""A verb, declared once: its request and answer, who may, and what a repeat does."""

import enum
import json
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import (
    Annotated,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from urllib.parse import unquote, urlencode

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
)
from txaware.protocol.formats.msgpack_format import MSGPACK_TYPE
from txaware.protocol.json_schema import Schema
from txaware.protocol.json_values import check_marks, checked_object
from txaware.protocol.places import Place
from txaware.protocol.rights import Allow, Params
from txaware.protocol.values import (
    field_of,
    read_json,
    structured,
    to_json,
    unstructured,
)

P = ParamSpec("P")
T = TypeVar("T")


class Nothing(msgspec.Struct):
    """Says nothing."""


class Repeat(enum.Enum):
    """The choice where nobody knows whether a request was answered.

    Harmless requests are sent again. Keyed ones are too, since the server knows them
    again by their key and gives the answer that it gave. Others are not.
    """

    HARMLESS = "harmless"
    KEYED = "keyed"
    NEVER = "never"


class Work(enum.Enum):
    """The part of a server that a verb waits for, which has threads of its own.

    What is seen are rows, by the request's transaction or a fresh snapshot of the
    coordinator. Changes of one group take turns at the coordinator. A client has more
    patience with those that may take minutes.
    """

    ROWS = "rows"
    SEEN = "seen"
    COORDINATOR = "coordinator"
    GROUP = "group"
    SLOW = "slow"
    PLANNING = "planning"
    MONITOR = "monitor"

    @property
    def is_long(self) -> bool:
        """True when it may take minutes."""
        return self in (Work.SLOW, Work.PLANNING, Work.MONITOR)


class GoOn:
    """Marks a field that does not travel: the engine calls it now and then."""


@attrs.frozen
class In:
    """An answer that is one field of an object."""

    field: str
    kind: Any
    schema_name: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class Form:
    """An answer of a form of its own.

    `write` makes JSON of a value, and `read` makes it again of the request and that.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any, Any], Any]
    schema: Schema
    schema_name: str | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class Binary:
    """A body of another type, whose fields `read` returns by their names in Python.

    It is for what JSON would make too large; `name` is its name in the description.
    """

    media_type: str
    read: Callable[[bytes], dict[str, Any]]
    name: str


@attrs.frozen
class MessageBody:
    """A field that is the whole body: messages in any of their formats.

    `read` makes its value of a type and a body, `schema` describes it in JSON, and
    `name` names it in other formats. Without any message `none` is what is wrong.
    """

    read: Callable[[str | None, bytes], Any]
    schema: Schema
    name: str
    none: str


@attrs.frozen
class Part:
    """A field of a query or a body: its name there, its kind, and its default."""

    name: str
    kind: Kind
    default: Any


class Shape:
    """The way of a request's fields: in the path, in the query, or in the body.

    A field says it in its annotation: by a `Place`, by a `Kind`, by `GoOn`, as `Others`
    or as a `MessageBody`. What is no place stands in the body, and in the query where
    the verb has none.
    """

    def __init__(
        self,
        path: str,
        request: type[msgspec.Struct],
        query: tuple[str, ...] | None,
        *,
        without_body: str | None = None,
        needs_body: bool = False,
        body_name: str = "the body",
        load: Callable[[bytes], object] = read_json,
        binary: Binary | None = None,
    ) -> None:
        self.binary = binary
        self.without_body = without_body
        self.load = load
        self.path, self.request = path, request
        self.places: dict[str, Place] = {}
        self.go_on: str | None = None
        self.others: dict[str, Others] = {}
        self.messages: dict[str, MessageBody] = {}
        self.query: dict[str, Part] = {}
        in_body: dict[str, Part] = {}
        hints = get_type_hints(request, include_extras=True)
        for one in msgspec.structs.fields(request):
            mark = hints[one.name].__metadata__[0]
            if isinstance(mark, Place):
                self.places[one.name] = mark
            elif isinstance(mark, Kind):
                is_asked = query is None or one.name in query
                part = Part(one.encode_name, mark, _default(one))
                (self.query if is_asked else in_body)[one.name] = part
            elif isinstance(mark, Others):
                self.others[one.name] = mark
            elif isinstance(mark, MessageBody):
                self.messages[one.name] = mark
            else:
                self.go_on = one.name
        parts = (self.query | in_body).items()
        self.kinds: dict[str, Kind | Others] = {name: f.kind for name, f in parts}
        self.kinds |= self.others
        self.names = (*self.places, *self.messages, *self.kinds)
        # The order of a frame: as they are declared; new ones come last.
        self.in_order = tuple(
            name for name in request.__struct_fields__ if name != self.go_on
        )
        self.own = tuple(n for n, f in parts if f.kind.is_own)
        self._in_body = in_body
        declared = [Field(f.name, f.kind, default=f.default) for f in in_body.values()]
        others: Kind | bool = not request.__struct_config__.forbid_unknown_fields
        for mark in self.others.values():
            declared += mark.named
            others = mark.kind
        self.body = Body(body_name, tuple(declared), others=others)
        self.needs_body = (
            needs_body
            or without_body is not None
            or any(part.default is REQUIRED for part in in_body.values())
        )
        # What msgspec cannot read whole, a strict reader reads.
        is_whole = load is read_json or None not in {
            k.form for k in self.kinds.values() if isinstance(k, Kind)
        }
        self._quick = (
            _quick(in_body, self.body) if is_whole and not self.others else None
        )

    # ---- the client's half
    def asked(self, *args: Any, **options: Any) -> Any:
        """Returns the request of a call, each field checked as a program passed it."""
        request = self.request(*args, **options)
        for name, kind in self.kinds.items():
            value = getattr(request, name)
            if value is not msgspec.UNSET:
                checked = kind.given(value, what=name)
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

    def packed(self, request: Any) -> bytes:
        """Returns the fields in their order, as a frame has them; names are checked."""
        for name, place in self.places.items():
            place.words(getattr(request, name))
        parts = self.query | self._in_body
        fields = []
        for name in self.in_order:
            value, part = getattr(request, name), parts.get(name)
            if part is None:
                fields.append(value)
            elif value is msgspec.UNSET or value == part.default:
                fields.append(_NOT_SENT)
            else:
                fields.append(part.kind.write(value))
        while fields and fields[-1] is _NOT_SENT:
            fields.pop()
        try:
            return _pack(fields)
        except (OverflowError, TypeError, ValueError) as error:
            raise BadRequest(f"the request cannot be written: {error}") from error

    # ---- the server's half
    def unpacked(self, body: bytes) -> tuple[Any, dict[str, str]]:
        """Returns the request of fields in their order, and the words of its path."""
        try:
            sent = _unpack(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BadRequest(f"the fields are no msgpack: {error}") from error
        if not isinstance(sent, list) or len(sent) > len(self.in_order):
            raise BadRequest(
                f"the fields are an array of {len(self.in_order)} at most: "
                f"{', '.join(self.in_order)}"
            )
        found: dict[str, Any] = {}
        words: dict[str, str] = {}
        in_body: dict[str, Any] = {}
        for name, value in zip(self.in_order, sent, strict=False):
            if value == _NOT_SENT:
                continue
            if name in self.places:
                own = self._words(name, value)
                found[name] = self.places[name].name(own)
                words |= own
            elif name in self.messages:
                if not isinstance(value, bytes):
                    raise BadRequest(f"{name} are the bytes of a publish in msgpack")
                found[name] = self.messages[name].read(MSGPACK_TYPE, value)
            elif name in self.query:
                part = self.query[name]
                found[name] = part.kind.read(value, what=part.name)
            elif name in self.others:
                in_body |= checked_object(value, what=name)
            else:
                in_body[self._in_body[name].name] = value
        for name in (*self.places, *self.messages):
            if name not in found:
                raise BadRequest(f"{name} is missing")
        for name, part in self.query.items():
            if name not in found and part.default is REQUIRED:
                raise BadRequest(f"{part.name} is missing")
        found |= self.named(self.body.read(in_body))
        return self.request(**found), words

    def _words(self, name: str, value: object) -> dict[str, str]:
        """Returns the words of the path that a field stands for."""
        try:
            words = self.places[name].words(value)
        except BadRequest:
            raise
        except (TypeError, ValueError, AttributeError) as error:
            raise BadRequest(f"{name} cannot be {value!r:.100}") from error
        return {key: unquote(word) for key, word in words.items()}

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
        found = {name: place.name(words) for name, place in self.places.items()}
        if self.query:
            found |= self._read_query(query())
        for name, mark in self.messages.items():
            found[name] = mark.read(content_type, body)
        if not body and self.without_body is not None:
            raise BadRequest(self.without_body)
        if self.binary is not None and content_type == self.binary.media_type:
            found |= self.binary.read(body)
        elif self._in_body:
            found |= self.read_body(body if body or self.needs_body else b"{}")
        return self.request(**found)

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


def _plain_bytes(value: Any) -> bytes:
    """Returns the bytes of a class derived from them, for msgpack."""
    if isinstance(value, bytes):
        return bytes(value)
    raise TypeError(f"{type(value).__name__} is no value of msgpack")


# Stands in a frame for a field that is not sent, where others follow.
_NOT_SENT = msgspec.msgpack.Ext(0, b"")
_pack = msgspec.msgpack.Encoder(enc_hook=_plain_bytes).encode
_unpack = msgspec.msgpack.Decoder().decode


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.required:
        return REQUIRED
    return LEFT_OUT if field.default is msgspec.UNSET else field.default


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


# Makes requests of other verbs, which give a value back.
GiveBack = Callable[[T], "Iterable[tuple[Verb[..., None], Any]]"]


def _nothing_back(_: object) -> None:
    """Gives nothing back."""


@attrs.frozen(eq=False, kw_only=True)
class Verb(Generic[P, T]):
    """Declares a verb: its route, its calls and its description follow from it.

    `does` is the method of a port that it performs, whose parameters the fields of the
    `request` are. An `answer` may be annotated with a schema that says more than its
    type. One that `waits` for something to be there names the field of the time to
    wait. `query` names the fields that stand in the query of a verb with a body.
    `check` looks at a request as a whole, before it is sent. `refuses` are the statuses
    beside those that every verb of its kind may answer. `fixed` are the parameters that
    the path stands for. `without_body` is what a server says where a body is missing,
    all of whose fields may be; one that `needs_body` refuses it in the words of JSON.
    `load` reads JSON where that of most is not strict enough, or has other words. A
    `typed` verb refuses a body that says that it is no JSON. A `spaced` answer has
    spaces in its JSON, and `write` writes it as the derived way does, in less time;
    `pack` makes of it what a frame has, in less time as well.
    `schema_name` is the name of the body in the description, where it has one, and
    `body_name` that in errors. `gives_back` says of a request how to give back what
    nobody waits for any more, where that is needed. Of one that `finds_topic` a missing
    topic is told before a wrong body.
    """

    does: Callable[Concatenate[Any, P], T]
    method: str
    path: str
    request: type[msgspec.Struct]
    answer: Any = None
    right: Allow
    repeat: Repeat = Repeat.HARMLESS
    work: Work = Work.ROWS
    waits: str | None = None
    finds_topic: bool = False
    check: Callable[[Any], object] | None = None
    summary: str
    tag: str
    example: Any = None
    refuses: tuple[int, ...] = ()
    query: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = attrs.field(factory=dict)
    without_body: str | None = None
    needs_body: bool = False
    body_name: str = "the body"
    load: Callable[[bytes], object] = read_json
    typed: bool = False
    binary: Binary | None = None
    spaced: bool = False
    write: Callable[[T], bytes] | None = None
    pack: Callable[[T], Any] | None = None
    schema_name: str | None = None
    gives_back: "Callable[[Any], GiveBack[T] | None]" = _nothing_back
    shape: Shape = attrs.field(init=False, repr=False)

    _parameters: tuple[str, ...] = attrs.field(init=False, repr=False)

    @_parameters.default
    def _default_parameters(self) -> tuple[str, ...]:
        return tuple(signature(self.does).parameters)[1:]

    @shape.default
    def _shape(self) -> Shape:
        has_body = self.method not in ("GET", "DELETE")
        query = self.query if has_body else None
        return Shape(
            self.path,
            self.request,
            query,
            without_body=self.without_body,
            needs_body=self.needs_body,
            body_name=self.body_name,
            load=self.load,
            binary=self.binary,
        )

    @property
    def name(self) -> str:
        """The name of the method that it performs."""
        return self.does.__name__

    @property
    def port(self) -> str:
        """The name of the port whose method that is."""
        return self.does.__qualname__.partition(".")[0]

    def asked(self, *args: P.args, **options: P.kwargs) -> Any:
        """Returns the request of a call, checked as far as a client can."""
        named = dict(zip(self._parameters, args, strict=False))
        request = self.shape.asked(*args[len(named) :], **named, **options)
        if self.check is not None:
            self.check(request)
        return request

    def written(self, value: T) -> bytes | None:
        """Returns the body of an answer; None where it has none."""
        if self.answer is None:
            return None
        if self.write is not None:
            return self.write(value)
        written = (
            self.answer.write(value)
            if isinstance(self.answer, Form)
            else unstructured(value)
        )
        if isinstance(self.answer, In):
            return json.dumps({self.answer.field: written}, default=to_base64).encode()
        if self.spaced:
            return json.dumps(written, default=to_base64).encode()
        return to_json(written)

    def packed(self, value: T) -> bytes:
        """Returns the body of an answer in a frame."""
        if self.answer is None:
            return b""
        if self.pack is not None:
            return _pack(self.pack(value))
        if isinstance(self.answer, Form):
            return _pack(unstructured(self.answer.write(value)))
        return _pack(unstructured(value))

    def unpacked(self, asked: Any, body: bytes) -> T:
        """Reads the answer to a request in a frame; `BadRequest` where it is none."""
        answer = self.answer
        if answer is None:
            return cast(T, None)
        try:
            value = _unpack(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BadRequest(f"the answer is no msgpack: {error}") from error
        if isinstance(answer, Form):
            return cast(T, answer.read(asked, value))
        kind = answer.kind if isinstance(answer, In) else answer
        return cast(T, structured(_bare(kind), value))

    def answered(self, asked: Any, body: bytes) -> T:
        """Reads the answer to a request; raises `BadRequest` where it is none."""
        answer = self.answer
        if isinstance(answer, Form):
            return cast(T, answer.read(asked, read_json(body)))
        if isinstance(answer, In):
            value = field_of(body, answer.field)
            return cast(T, structured(_bare(answer.kind), value))
        found = None if answer is None else structured(_bare(answer), read_json(body))
        return cast(T, found)


def _bare(kind: Any) -> Any:
    """Returns a type without its annotation."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def verbs_in(module: Mapping[str, Any]) -> tuple[Verb[..., Any], ...]:
    """Returns the verbs that a module declares, in their order."""
    return tuple(one for one in module.values() if isinstance(one, Verb))
