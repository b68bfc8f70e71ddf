"""Makes the calls of declared verbs."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import attrs
import msgspec

from txaware.client.calls.call import Call, Steps, reading
from txaware.client.calls.request_fit import msgpack_call, require_fit
from txaware.client.calls.server_calls import ServerCalls
from txaware.errors import BadRequest
from txaware.model.requests import checked_payloads
from txaware.model.signatures import signed_as
from txaware.protocol.formats import PublishRequest, encode_publish
from txaware.protocol.verb import GiveBack, Repeat, Verb
from txaware.protocol.verbs import number_of

P = ParamSpec("P")
T = TypeVar("T")

# Reading or cleaning all of a large store takes a while.
LONG_S = 3600.0


def call_of(verb: Verb[P, T], asked: Any, *, longer_s: float = 0) -> Call[T]:
    """Returns the call of a verb with its request."""
    return Call(
        verb.method,
        partial(verb.shape.path_of, asked),
        reading(partial(verb.answered, asked), partial(verb.unpacked, asked)),
        partial(verb.shape.body_of, asked),
        repeat=verb.repeat,
        longer_s=LONG_S if verb.work.is_long else longer_s,
        framed=_framed(verb, asked),
    )


def steps_of(verb: Verb[P, T]) -> Callable[Concatenate[Any, P], Steps[T]]:
    """Returns the method that yields the calls of a verb."""

    def steps(calls: ServerCalls, /, *args: P.args, **options: P.kwargs) -> Steps[T]:
        return performed(calls, verb, verb.asked(*args, **options))

    return signed_as(verb.does)(steps)


def performed(calls: ServerCalls, verb: Verb[P, T], asked: Any) -> Steps[T]:
    """Yields the calls of a verb with its request, and returns the answer.

    A keyed call names the instance of the server, which is asked for first. A verb that
    waits is asked again where the server waits for less.
    """
    until_s = calls.clock_s() + getattr(asked, verb.waits) if verb.waits else 0.0
    if verb.repeat is Repeat.KEYED:
        yield from calls.info()
    if verb.waits is None:
        if verb.shape.messages:
            call = yield from _message_call(calls, verb, asked)
        else:
            call = call_of(verb, asked)
        answer: T = yield call
        return answer
    longest_s = getattr(asked, verb.waits)
    while True:
        wait_s, is_last = yield from calls.turn(longest_s, until_s)
        turn = msgspec.structs.replace(asked, **{verb.waits: wait_s})
        call = call_of(verb, turn, longer_s=wait_s)
        if (give_back := verb.gives_back(asked)) is not None:
            call = attrs.evolve(call, given_back=partial(_given_back, calls, give_back))
        answer = yield call
        if answer or is_last:
            return answer


def _message_call(calls: ServerCalls, verb: Verb[P, T], asked: Any) -> Steps[Call[T]]:
    """Makes one request, whatever its size, so that all stays in one piece."""
    info = yield from calls.info()
    [(name, mark)] = verb.shape.messages.items()
    messages = getattr(asked, name)
    payloads = checked_payloads(messages, limit_bytes=info.message_bytes)
    if not len(payloads):
        raise BadRequest(mark.none)
    body = encode_publish(PublishRequest(None, payloads))
    require_fit(len(payloads), len(body), info)
    read = reading(partial(verb.answered, asked), partial(verb.unpacked, asked))
    call = msgpack_call(verb.shape.path_of(asked), body, read, repeat=verb.repeat)
    sent = msgspec.structs.replace(asked, **{name: body})
    return attrs.evolve(call, framed=_framed(verb, sent))


def _framed(verb: Verb[P, T], asked: Any) -> Callable[[], tuple[int, bytes]] | None:
    """Returns what makes the number and the fields of a request in a frame."""
    number = number_of(verb)
    return None if number is None else lambda: (number, verb.shape.packed(asked))


def _given_back(
    calls: ServerCalls, give_back: GiveBack[T], value: T
) -> Iterator[Steps[None]]:
    for verb, asked in give_back(value):
        yield performed(calls, verb, asked)
