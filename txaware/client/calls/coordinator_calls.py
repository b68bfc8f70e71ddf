"""The calls of a `RemoteCoordinator`: in frames those of declared verbs, by number."""

from collections.abc import Callable
from functools import partial
from typing import Any

from coordinator import errors
from coordinator.remote.calls import ENDS, CallRequest
from coordinator.remote.client import CallSender, answered
from txaware.client.calls.call import Call, HttpAnswer, error_of
from txaware.client.transport import Transport
from txaware.protocol.verb import Repeat, Verb
from txaware.protocol.verbs import VERBS

_DECLARED = {(verb.method, verb.path): verb for verb in VERBS}


def coordinator_call(asked: CallRequest) -> Call[Any]:
    """Returns one of these calls, which gives the answer as JSON has it."""
    verb = _DECLARED.get((asked.call.method, asked.call.path("{transaction}")))
    return Call(
        asked.call.method,
        lambda: asked.path,
        partial(_read, asked, verb),
        lambda: asked.body,
        repeat=Repeat.HARMLESS if asked.is_harmless else Repeat.NEVER,
        accept=asked.accept.encode(),
        longer_s=asked.fields["waitMs"] / 1000 if asked.call is ENDS else 0,
        framed=None if verb is None or verb.between_servers else _framed(asked, verb),
    )


class CoordinatorSend(CallSender):
    """Makes the calls of a `RemoteCoordinator` over a client's connections.

    A call that got no answer is `Unavailable`, as everywhere.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def ask(self, asked: CallRequest) -> Any:
        """Returns the answer as JSON has it, and a transaction as its bytes."""
        return self._transport.perform(coordinator_call(asked))

    def __repr__(self) -> str:
        return f"<CoordinatorSend by {self._transport!r}>"


def _read(asked: CallRequest, verb: Verb[..., Any] | None, answer: HttpAnswer) -> Any:
    if answer.status == 200 and answer.is_verb and verb is not None:
        return verb.sent_in(answer.body)
    if answer.status >= 400:
        error = error_of(answer)
        if not hasattr(errors, type(error).__name__):  # no coordinator raises it
            raise error
    return answered(asked, answer.status, answer.body)


def _framed(
    asked: CallRequest, verb: Verb[..., Any]
) -> Callable[[], tuple[int, bytes]] | None:
    """Returns what makes the number of a verb and its fields."""
    number = verb.number
    if number is None:
        return None
    return lambda: (number, verb.shape.packed_sent(asked.pointer, asked.fields))
