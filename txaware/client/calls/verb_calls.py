"""Makes the calls of declared verbs."""

from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from txaware.client.calls.call import Call, Steps, reading
from txaware.client.calls.server_calls import ServerCalls
from txaware.model.signatures import signed_as
from txaware.protocol.verb import Repeat, Verb

P = ParamSpec("P")
T = TypeVar("T")

# Reading or cleaning all of a large store takes a while.
LONG_S = 3600.0


def call_of(verb: Verb[P, T], asked: Any) -> Call[T]:
    """Returns the call of a verb with its request."""
    return Call(
        verb.method,
        verb.shape.path_of(asked),
        reading(partial(verb.answered, asked)),
        verb.shape.body_of(asked),
        repeat=verb.repeat,
        longer_s=LONG_S if verb.work.is_long else 0,
    )


def steps_of(verb: Verb[P, T]) -> Callable[Concatenate[Any, P], Steps[T]]:
    """Returns the method that yields the call of a verb.

    A keyed call names the instance of the server, which is asked for first.
    """

    def steps(calls: ServerCalls, /, *args: P.args, **options: P.kwargs) -> Steps[T]:
        call = call_of(verb, verb.asked(*args, **options))
        if verb.repeat is Repeat.KEYED:
            yield from calls.info()
        answer: T = yield call
        return answer

    return signed_as(verb.does)(steps)
