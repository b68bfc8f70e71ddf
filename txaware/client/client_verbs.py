"""Verbs that both clients have, each said once for a thread and for an event loop."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from txaware.client.calls.admin_calls import AdminCalls
from txaware.client.calls.call import Call, Steps
from txaware.client.calls.producer_calls import ProducerCalls
from txaware.client.calls.service_calls import ServiceCalls
from txaware.client.calls.verb_calls import steps_of
from txaware.model.interfaces import MessagingService, OperatorService
from txaware.model.producers import ProducerService
from txaware.protocol import members, operator
from txaware.protocol.groups import SAVE_POSITION
from txaware.protocol.messages import BOUNDS, LATEST, OFFSETS, POLL, WAIT
from txaware.protocol.producers import (
    DESCRIBE_PRODUCER,
    FORGET_PRODUCER,
    LIST_PRODUCERS,
    OPEN_PRODUCER,
)
from txaware.protocol.publishes import ROLLBACK
from txaware.protocol.topics import (
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    LIST_NAMESPACES,
    LIST_TOPICS,
)
from txaware.protocol.verb import Verb

P = ParamSpec("P")
T = TypeVar("T")


class BlockingClient:
    """A client whose verbs wait in the thread of their caller."""


class AwaitedClient:
    """A client whose verbs are coroutines."""


class ClientVerb(Generic[P, T]):
    """A verb of a port, and the calls that perform it; a client makes its method.

    `verb` has the signature, and `steps` is the method of the client's `_calls`.
    """

    def __init__(
        self,
        verb: Callable[Concatenate[Any, P], T],
        steps: Callable[Concatenate[Any, P], Steps[T] | Call[T]],
    ) -> None:
        self.verb, self.steps = verb, steps

    @overload
    def __get__(self, client: BlockingClient, owner: type) -> Callable[P, T]: ...

    @overload
    def __get__(
        self, client: AwaitedClient, owner: type
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        raise AttributeError(f"{owner.__name__} has made no method of {self.verb}")


def declared(verb: Verb[P, T]) -> ClientVerb[P, T]:
    """Returns a declared verb as clients have it."""
    return ClientVerb(verb.does, steps_of(verb))


def make_methods(client: type, make: Callable[..., Callable[..., Any]]) -> None:
    """Makes the methods of all verbs of a class of clients, but for its own ones."""
    for name in dir(client):
        found = inspect.getattr_static(client, name)
        if isinstance(found, ClientVerb):
            setattr(client, name, make(found.verb, found.steps))


class MessageMethods:
    """Topics and their messages."""

    create_topic = ClientVerb(MessagingService.create_topic, ServiceCalls.create_topic)
    update_topic = ClientVerb(MessagingService.update_topic, ServiceCalls.update_topic)
    topic = declared(DESCRIBE_TOPIC)
    topics = declared(LIST_TOPICS)
    delete_topic = declared(DELETE_TOPIC)
    publish = ClientVerb(MessagingService.publish, ServiceCalls.publish)
    store = ClientVerb(MessagingService.store, ServiceCalls.store)
    rollback = declared(ROLLBACK)
    poll = declared(POLL)
    position = ClientVerb(MessagingService.position, ServiceCalls.position)
    save_position = declared(SAVE_POSITION)
    bounds = declared(BOUNDS)
    latest_page = declared(LATEST)
    offsets = declared(OFFSETS)
    wait = declared(WAIT)


class ProducerMethods:
    """Producers, and what they publish once."""

    open_producer = declared(OPEN_PRODUCER)
    publish_once = ClientVerb(ProducerService.publish_once, ProducerCalls.publish_once)
    producers = declared(LIST_PRODUCERS)
    describe_producer = declared(DESCRIBE_PRODUCER)
    forget_producer = declared(FORGET_PRODUCER)


class GroupMethods:
    """Groups, but for what their members call."""

    create_group = declared(members.CREATE_GROUP)
    group = declared(members.DESCRIBE_GROUP)
    groups = declared(members.LIST_GROUPS)
    delete_group = declared(members.DELETE_GROUP)
    rewind_group = declared(members.REWIND_GROUP)
    assign_group = declared(members.ASSIGN_GROUP)


class OperatorMethods:
    """The calls of operators."""

    peek = ClientVerb(OperatorService.peek, AdminCalls.peek)
    namespaces = declared(LIST_NAMESPACES)
    search = declared(operator.SEARCH)
    topic_sizes = declared(operator.TOPIC_SIZES)
    inspect = declared(operator.INSPECT)
    splits = declared(operator.SPLITS)
    lag_ms = ClientVerb(OperatorService.lag_ms, AdminCalls.lag_ms)
    oldest_unread_ms = ClientVerb(
        OperatorService.oldest_unread_ms, AdminCalls.oldest_unread_ms
    )
    prune = declared(operator.PRUNE)
    forget_keeper = declared(operator.FORGET_KEEPER)
    keepers = declared(operator.LIST_KEEPERS)
    shards = declared(operator.LIST_SHARDS)
    add_shards = declared(operator.ADD_SHARDS)
    give_shard = declared(operator.GIVE_SHARD)
    metrics = declared(operator.METRICS)
