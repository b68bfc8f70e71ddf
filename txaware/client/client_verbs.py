"""The calls that perform the verbs of ports, in either client."""

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from txaware.client.calls.admin_calls import AdminCalls
from txaware.client.calls.call import Call, Steps
from txaware.client.calls.producer_calls import ProducerCalls
from txaware.client.calls.service_calls import ServiceCalls
from txaware.client.calls.verb_calls import steps_of
from txaware.model.interfaces import MessagingService, OperatorService
from txaware.model.producers import ProducerService
from txaware.protocol.verbs import VERBS

P = ParamSpec("P")
T = TypeVar("T")
MakesCalls = Callable[Concatenate[Any, P], Steps[T] | Call[T]]


def _own(
    verb: Callable[Concatenate[Any, P], T], steps: MakesCalls[P, T]
) -> tuple[Callable[..., Any], MakesCalls[..., Any]]:
    return verb, steps


# Those that take more than one declared verb, or are more of them than one.
_OWN = dict(
    (
        _own(MessagingService.create_topic, ServiceCalls.create_topic),
        _own(MessagingService.update_topic, ServiceCalls.update_topic),
        _own(MessagingService.publish, ServiceCalls.publish),
        _own(MessagingService.store, ServiceCalls.store),
        _own(MessagingService.position, ServiceCalls.position),
        _own(ProducerService.publish_once, ProducerCalls.publish_once),
        _own(OperatorService.peek, AdminCalls.peek),
        _own(OperatorService.lag_ms, AdminCalls.lag_ms),
        _own(OperatorService.oldest_unread_ms, AdminCalls.oldest_unread_ms),
    )
)


def steps_for(verb: Callable[Concatenate[Any, P], T]) -> MakesCalls[P, T]:
    """Returns the method of a client's `_calls` that makes the calls of a verb."""
    if verb in _OWN:
        return _OWN[verb]
    [declared] = [one for one in VERBS if one.does is verb]
    return steps_of(declared)
