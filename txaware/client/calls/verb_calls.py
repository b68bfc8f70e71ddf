"""Makes the calls of declared verbs."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import attrs
import msgspec

from txaware.client.calls.call import Call, HttpAnswer, Paths, Steps, reading
from txaware.client.link import Link
from txaware.client.server_info import ServerInfo, server_info
from txaware.errors import BadRequest, RequestTooLarge
from txaware.model.requests import checked_payloads
from txaware.model.signatures import signed_as
from txaware.protocol.formats import MAX_MESSAGES, MSGPACK, WRONG_TYPE
from txaware.protocol.verb import GiveBack, Repeat, Verb

P = ParamSpec("P")
T = TypeVar("T")

# Reading or cleaning all of a large store takes a while.
LONG_S = 3600.0
_KIND = MSGPACK.media_type.encode()


class ServerCalls:
    """Verbs that yield their calls; knows the limits of the server it once asked."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._paths = Paths()
        self._info: ServerInfo | None = None
        self._info_of: bytes | None = None

    def clock_s(self) -> float:
        """Returns the time by which turns are counted."""
        return self._link.clock_s()

    def info(self) -> Steps[ServerInfo]:
        """Asks for the limits of the server that answers now."""
        info = self._info
        if info is None or self._info_of != self._link.instance:
            info = self._info = yield server_info()
            self._info_of = self._link.instance
        return info

    def turn(self, wait_s: float, until_s: float) -> Steps[tuple[float, bool]]:
        """Returns how long to have the server wait now, and whether that is all."""
        if wait_s <= 0:
            return 0.0, True
        info = yield from self.info()
        left_s = max(0.0, until_s - self._link.clock_s())
        return min(left_s, info.long_poll_s), left_s <= info.long_poll_s


def require_fit(messages: int, size_bytes: int, info: ServerInfo) -> None:
    """Raises `RequestTooLarge` before anything is sent that would be refused."""
    if size_bytes > info.request_bytes or messages > MAX_MESSAGES:
        raise RequestTooLarge(
            f"{messages} messages in a request of {size_bytes} bytes are above the "
            f"limit of {MAX_MESSAGES} messages and {info.request_bytes} bytes"
        )


def msgpack_call(
    path: str | Callable[[], str],
    body: bytes | Callable[[], bytes],
    read: Callable[[HttpAnswer], T],
    *,
    repeat: Repeat = Repeat.HARMLESS,
    longer_s: float = 0,
    given_back: Callable[[T], Iterable[Steps[None]]] | None = None,
    framed: Callable[[], tuple[int, bytes]] | None = None,
    about: str = "",
) -> Call[T]:
    """Returns a call in msgpack, which says so where the server does not know that."""

    def read_or_tell(answer: HttpAnswer) -> T:
        try:
            return read(answer)
        except BadRequest as error:
            if not str(error).startswith(WRONG_TYPE):
                raise
            raise BadRequest(
                f"{answer.url}: the server is older than this client, and does not "
                f"know {MSGPACK.media_type}; upgrade the server, or take a client of "
                f"its version. It says: {error}"
            ) from error

    return Call(
        *("POST", path, read_or_tell, body, _KIND, _KIND, repeat, longer_s),
        given_back=given_back,
        framed=framed,
        about=about,
    )


def call_of(
    verb: Verb[P, T],
    request: Any,
    *,
    longer_s: float = 0,
    body: bytes | None = None,
    given_back: Callable[[T], Iterable[Steps[None]]] | None = None,
) -> Call[T]:
    """Returns the call of a verb with its request; `body` is one in msgpack."""
    shape, path = verb.shape, partial(verb.shape.path_of, request)
    read = reading(partial(verb.answered, request), partial(verb.unpacked, request))
    framed = _framed(verb, request, body)
    about = request.topic if verb.is_of_partition else ""
    if verb.formats is not None:
        return msgpack_call(
            path,
            partial(shape.packed_body, request) if body is None else body,
            read,
            repeat=verb.repeat,
            longer_s=longer_s,
            given_back=given_back,
            framed=framed,
            about=about,
        )
    return Call(
        verb.method,
        path,
        read,
        partial(shape.body_of, request),
        accept=verb.media_type.encode(),
        repeat=verb.repeat,
        longer_s=LONG_S if verb.work.is_long else longer_s,
        given_back=given_back,
        framed=framed,
        about=about,
    )


def steps_of(verb: Verb[P, T]) -> Callable[Concatenate[Any, P], Steps[T]]:
    """Returns the method that yields the calls of a verb."""

    def steps(calls: ServerCalls, /, *args: P.args, **options: P.kwargs) -> Steps[T]:
        return performed(calls, verb, verb.build_request(*args, **options))

    return signed_as(verb.does)(steps)


def performed(calls: ServerCalls, verb: Verb[P, T], request: Any) -> Steps[T]:
    """Yields the calls of a verb with its request, and returns the answer.

    A keyed call names the instance of the server, which is asked for first. A verb that
    waits is asked again where the server waits for less.
    """
    waits = verb.waits
    longest_s = 0.0 if waits is None else getattr(request, waits)
    until_s = calls.clock_s() + longest_s if longest_s > 0 else 0.0
    if verb.repeat.is_keyed:
        yield from calls.info()
    answer: T
    if verb.formats is not None and verb.formats.has_messages:
        info = yield from calls.info()
        request = limited(verb, request, info)
        body = verb.shape.packed_body(request)
        require_fit(len(request.messages), len(body), info)
        answer = yield call_of(verb, request, body=body)
        return answer
    give_back = verb.gives_back(request)
    given_back = None if give_back is None else partial(_given_back, calls, give_back)
    if waits is None or longest_s <= 0:
        answer = yield call_of(verb, request, given_back=given_back)
        return answer
    while True:
        wait_s, is_last = yield from calls.turn(longest_s, until_s)
        turn = msgspec.structs.replace(request, **{waits: wait_s})
        answer = yield call_of(verb, turn, longer_s=wait_s, given_back=given_back)
        if answer or is_last:
            return answer


def limited(verb: Verb[..., Any], request: Any, info: ServerInfo) -> Any:
    """Returns the request with its messages as a server takes them.

    A batch that it cannot unpack becomes single messages again.
    """
    payloads = checked_payloads(request.messages, limit_bytes=info.message_bytes)
    packed = payloads.packed
    if packed is not None and packed.compression not in info.compressions:
        payloads = attrs.evolve(payloads, packed=None)
    none = None if verb.formats is None else verb.formats.none
    if none is not None and not len(payloads):
        raise BadRequest(none)
    return msgspec.structs.replace(request, messages=payloads)


def _framed(
    verb: Verb[P, T], request: Any, body: bytes | None = None
) -> Callable[[], tuple[int, bytes]] | None:
    """Returns what makes the number and the fields of a request in a frame."""
    number = verb.number
    if number is None:
        return None
    return lambda: (number, verb.shape.packed(request, body))


def _given_back(
    calls: ServerCalls, give_back: GiveBack[T], value: T
) -> Iterator[Steps[None]]:
    for verb, request in give_back(value):
        yield performed(calls, verb, request)
