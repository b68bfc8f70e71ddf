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
)

import attrs
import msgspec

from coordinator.remote.wire import JSON, to_base64
from txaware.errors import BadRequest
from txaware.protocol.formats import MSGPACK, Format
from txaware.protocol.json_schema import (
    Schema,
)
from txaware.protocol.places import is_of_partition
from txaware.protocol.rights import (
    Allow,
)
from txaware.protocol.shape import Binary, BodyFormats, Shape, pack, unpack
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
    again by their key and gives the answer that it gave. A server that was started in
    between does not know them: then one that may begin anew is sent as another request,
    since whoever waits for its answer needs that alone. Others are not sent again.
    """

    HARMLESS = "harmless"
    KEYED = "keyed"
    ANEW = "keyed, and anew"
    NEVER = "never"

    @property
    def is_keyed(self) -> bool:
        """True when a request has a key, by which a server knows it again."""
        return self in (Repeat.KEYED, Repeat.ANEW)


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
class InBytes:
    """An answer in bytes of its own form, and in JSON where a client asks for that.

    Our client reads the bytes. A server makes JSON of the value and what it knows
    beside, as the `schema` says.
    """

    media_type: str
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]
    said: str
    schema: Schema


def _nothing(_: object) -> dict[str, Any]:
    return {}


def _no_value(_: Any, __: object) -> None:
    """Reads an answer that says nothing."""


# Those who end a transaction get an object without fields.
DONE = Form(_nothing, _no_value, {"type": "object", "maxProperties": 0})


# Makes requests of other verbs, which give a value back.
GiveBack = Callable[[T], "Iterable[tuple[Verb[..., None], Any]]"]


def _nothing_back(_: object) -> None:
    """Gives nothing back."""


@attrs.frozen(eq=False, kw_only=True)
class Verb(Generic[P, T]):
    """Declares a verb: its route, its calls and its description follow from it.

    `does` is the method of a port that it performs, whose parameters the fields of the
    `request` are. Frames name it by its `number`, which never changes: a new verb has
    the next one, and none is used again. An `answer` may be annotated with a schema
    that says more than its type. One that `waits` for something to be there names the
    field of the time to wait. `query` names the fields that stand in the query of a
    verb with a body.
    `check` looks at a request as a whole, before it is sent. `refuses` are the statuses
    beside those that every verb of its kind may answer. `fixed` are the parameters that
    the path stands for. `without_body` is what a server says where a body is missing,
    all of whose fields may be; one that `needs_body` refuses it in the words of JSON.
    One with an `empty_body` refuses any field in it.
    `load` reads JSON where that of most is not strict enough, or has other words. A
    `typed` verb refuses a body that says that it is no JSON. A `spaced` answer has
    spaces in its JSON, and `write` writes it as the derived way does, in less time;
    `pack` makes of it what a frame has, and `unpack` reads that, in less time as well.
    `schema` describes a body whose fields depend on each other.
    `schema_name` is the name of the body in the description, where it has one, and
    `body_name` that in errors. `gives_back` says of a request how to give back what
    nobody waits for any more, where that is needed. Of one that `finds_topic` a missing
    topic is told before a wrong body. Where `formats` read the body, they write the
    answer as well. The body of one that `is_late` may be large, and is read when it is
    needed. One `between_servers` is of stores and shards, and no program's: a client
    sends it as a request of HTTP, in frames too, since an older server reads that.
    """

    does: Callable[Concatenate[Any, P], T]
    method: str
    path: str
    number: int | None = None
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
    empty_body: bool = False
    needs_body: bool = False
    body_name: str = "the body"
    load: Callable[[bytes], object] = read_json
    typed: bool = False
    binary: Binary | None = None
    formats: BodyFormats | None = None
    is_late: bool = False
    between_servers: bool = False
    spaced: bool = False
    write: Callable[[T], bytes] | None = None
    pack: Callable[[T], Any] | None = None
    unpack: Callable[[bytes], T] | None = None
    schema: Schema | None = None
    schema_name: str | None = None
    gives_back: "Callable[[Any], GiveBack[T] | None]" = _nothing_back
    shape: Shape = attrs.field(init=False, repr=False)
    is_of_partition: bool = attrs.field(init=False, repr=False)

    _parameters: tuple[str, ...] = attrs.field(init=False, repr=False)

    @_parameters.default
    def _default_parameters(self) -> tuple[str, ...]:
        return tuple(signature(self.does).parameters)[1:]

    @is_of_partition.default
    def _is_of_partition(self) -> bool:
        return is_of_partition(self.path)

    @shape.default
    def _shape(self) -> Shape:
        has_body = self.method not in ("GET", "DELETE")
        query = self.query if has_body else None
        return Shape(
            self.path,
            self.request,
            query,
            without_body=self.without_body,
            empty_body=self.empty_body,
            needs_body=self.needs_body,
            body_name=self.body_name,
            load=self.load,
            binary=self.binary,
            formats=self.formats,
            is_late=self.is_late,
        )

    @property
    def name(self) -> str:
        """The name of the method that it performs."""
        return self.does.__name__

    @property
    def port(self) -> str:
        """The name of the port whose method that is."""
        return self.does.__qualname__.partition(".")[0]

    def build_request(self, *args: P.args, **options: P.kwargs) -> Any:
        """Returns the request of a call, checked as far as a client can."""
        named = dict(zip(self._parameters, args, strict=False))
        request = self.shape.build_request(*args[len(named) :], **named, **options)
        if self.check is not None:
            self.check(request)
        return request

    def written(self, value: T) -> bytes | None:
        """Returns the body of an answer; None where it has none."""
        if self.answer is None:
            return None
        if self.write is not None:
            return self.write(value)
        if isinstance(self.answer, InBytes):
            return self.answer.write(value)
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

    def written_in(self, format_: Format, value: T) -> bytes:
        """Returns the body of an answer in a format; empty where it says nothing."""
        assert self.formats is not None
        return self.formats.write(format_, value)

    @property
    def media_type(self) -> str:
        """The type of the answer that our client takes by HTTP."""
        return self.answer.media_type if isinstance(self.answer, InBytes) else JSON

    @property
    def says_done_in_json(self) -> bool:
        """True when nothing to say is {} in JSON."""
        return self.formats is not None and self.formats.done_in_json

    def packed(self, value: T) -> bytes:
        """Returns the body of an answer in a frame."""
        if self.formats is not None:
            return self.formats.write(MSGPACK, value)
        if self.answer is None:
            return b""
        if self.pack is not None:
            return pack(self.pack(value))
        if isinstance(self.answer, InBytes):
            return pack(self.answer.write(value))
        if isinstance(self.answer, Form):
            return pack(self.answer.write(value))
        return pack(unstructured(value))

    def unpacked(self, request: Any, body: bytes) -> T:
        """Reads the answer to a request in a frame; `BadRequest` where it is none."""
        answer = self.answer
        if self.formats is not None:
            return cast(T, self.formats.unpack(request, body))
        if answer is None:
            return cast(T, None)
        if self.unpack is not None:
            return _read_packed(self.unpack, body)
        value = _read_packed(unpack, body)
        if isinstance(answer, Form):
            return cast(T, answer.read(request, value))
        if isinstance(answer, InBytes):
            return cast(T, answer.read(value))
        kind = answer.kind if isinstance(answer, In) else answer
        return cast(T, structured(_bare(kind), value))

    def sent_in(self, body: bytes) -> Any:
        """Returns the answer in a frame as JSON has it, with bytes for their base64."""
        value = _read_packed(unpack, body)
        return {self.answer.field: value} if isinstance(self.answer, In) else value

    def answered(self, request: Any, body: bytes) -> T:
        """Reads the answer to a request; raises `BadRequest` where it is none."""
        answer = self.answer
        if self.formats is not None:
            return cast(T, self.formats.unpack(request, body))
        if isinstance(answer, Form):
            return cast(T, answer.read(request, read_json(body)))
        if isinstance(answer, InBytes):
            return cast(T, answer.read(body))
        if isinstance(answer, In):
            value = field_of(body, answer.field)
            return cast(T, structured(_bare(answer.kind), value))
        found = None if answer is None else structured(_bare(answer), read_json(body))
        return cast(T, found)


def _read_packed(read: Callable[[bytes], T], body: bytes) -> T:
    try:
        return read(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadRequest(f"the answer is no msgpack: {error}") from error


def _bare(kind: Any) -> Any:
    """Returns a type without its annotation."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def verbs_in(module: Mapping[str, Any]) -> tuple[Verb[..., Any], ...]:
    """Returns the verbs that a module declares, in their order."""
    return tuple(one for one in module.values() if isinstance(one, Verb))
