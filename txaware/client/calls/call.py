"""One request as a value: what is sent, how its answer is read, when it is repeated."""

import inspect
import json
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

import attrs
import httpcore

from coordinator.brief_errors import from_server
from txaware import errors
from txaware.errors import (
    BadRequest,
    NotAuthenticated,
    NotAuthorized,
    RequestTooLarge,
    TxAwareError,
    Unavailable,
)
from txaware.model.queues import pipe_of
from txaware.protocol import places
from txaware.protocol.values import field_of
from txaware.protocol.verb import Repeat

T = TypeVar("T")


class HttpAnswer(NamedTuple):
    """The answer of a server, and where that is.

    `is_verb` is True for one in a frame to a verb's number: its body is msgpack then.
    """

    status: int
    body: bytes
    headers: dict[bytes, bytes]
    url: str
    is_verb: bool = False

    def header(self, name: bytes) -> bytes | None:
        """Returns the value of a header; `name` is in lower case."""
        return self.headers.get(name)


@attrs.frozen
class Call(Generic[T]):
    """A request; `longer_s` is what the server may take beyond the usual time.

    Its path and its body are those of HTTP, and may be made when they are needed.
    `read` makes its value of the answer, or raises what went wrong. `given_back` makes
    the calls that give the value back, where nobody waits for it any more. That of a
    verb is `framed` as its number and its fields. It is `about` a topic or a partition,
    or about what one server of several has for all.
    """

    method: str
    _path: str | Callable[[], str]
    read: Callable[[HttpAnswer], T]
    _body: bytes | Callable[[], bytes] = b""
    content_type: bytes = b"application/json"
    accept: bytes = b"application/json"
    repeat: Repeat = Repeat.HARMLESS
    longer_s: float = 0
    given_back: "Callable[[T], Iterable[Steps[None]]] | None" = None
    framed: Callable[[], tuple[int, bytes]] | None = None
    about: str = ""

    @property
    def path(self) -> str:
        """The path, with the query."""
        return self._path if isinstance(self._path, str) else self._path()

    @property
    def body(self) -> bytes:
        """The body."""
        return self._body if isinstance(self._body, bytes) else self._body()


# A verb of one request or more: it yields them, is sent what each of them gave, and
# returns the value of all. The caller that runs it does the waiting.
Steps = Generator[Call[Any], Any, T]


# The same few names come again and again; so many are kept.
KNOWN_NAMES = 100_000


class Paths:
    """Checks names, and makes paths of them; only dots need quoting."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def topic(self, topic: str) -> str:
        """Returns the path of a topic or pipe, as `name` or `namespace:name`."""
        path = self._known.get(topic) if isinstance(topic, str) else None
        if path is None and (pipe := pipe_of(topic)) is not None:
            return f"/v1/namespaces/{pipe.namespace}/topics/{pipe.in_namespace}"
        if path is None:
            words = places.TOPIC.words(topic)
            path = f"/v1/namespaces/{words['namespace']}/topics/{words['topic']}"
            if len(self._known) < KNOWN_NAMES:
                self._known[topic] = path
        return path


CLASSES: dict[str, type[TxAwareError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, TxAwareError)
}
# A proxy on the way answers with these as well, in words of its own.
_BY_STATUS: dict[int, type[TxAwareError]] = {
    401: NotAuthenticated,
    403: NotAuthorized,
    413: RequestTooLarge,
}
_SHOWN_BYTES = 200


def error_of(answer: HttpAnswer) -> TxAwareError:
    """Returns the error raised there; of others, the status and how they begin."""
    try:
        fields = json.loads(answer.body)
        kind, message = CLASSES[fields["error"]], str(fields["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        kind = _BY_STATUS.get(answer.status, Unavailable)
        beginning = answer.body[:_SHOWN_BYTES].decode("utf-8", "replace")
        message = f"{answer.url}: the answer was {answer.status}, {beginning!r}"
    return from_server(kind(message))


def reading(
    parse: Callable[[bytes], T], unpack: Callable[[bytes], T] | None = None
) -> Callable[[HttpAnswer], T]:
    """Returns a reader of the body of a good answer; `unpack` reads that of a verb.

    A body that makes no sense is `Unavailable`: what was asked may have been done.
    """

    def read(answer: HttpAnswer) -> T:
        if not 200 <= answer.status < 300:
            raise error_of(answer)
        try:
            if answer.is_verb and unpack is not None:
                return unpack(answer.body)
            return parse(answer.body)
        except (BadRequest, ValueError, TypeError, OverflowError) as error:
            raise from_server(
                Unavailable(f"{answer.url}: the answer cannot be read, {error}")
            ) from error

    return read


def reading_field(name: str, take: Callable[[Any], T]) -> Callable[[HttpAnswer], T]:
    """Returns a reader of one field of an object."""

    return reading(lambda body: take(field_of(body, name)))


def nothing(_: bytes) -> None:
    """Reads a body that says nothing."""


done = reading(nothing)


class CallTimeout(httpcore.ReadTimeout):
    """The time for a whole call is over."""


class Deadline:
    """The end of the time for a call, whatever signs of life come until then."""

    __slots__ = ("_clock_s", "_until_s")

    def __init__(self, until_s: float, clock_s: Callable[[], float]) -> None:
        self._until_s = until_s
        self._clock_s = clock_s

    def within(self, most_s: float) -> float:
        """Returns so much time, or what is left; `CallTimeout` where none is."""
        left_s = self._until_s - self._clock_s()
        if left_s <= 0:
            raise CallTimeout
        return min(left_s, most_s)
