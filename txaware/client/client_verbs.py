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
from txaware.protocol.topics import LIST_NAMESPACES
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
    topic = ClientVerb(MessagingService.topic, ServiceCalls.topic)
    topics = ClientVerb(MessagingService.topics, ServiceCalls.topics)
    delete_topic = ClientVerb(MessagingService.delete_topic, ServiceCalls.delete_topic)
    publish = ClientVerb(MessagingService.publish, ServiceCalls.publish)
    store = ClientVerb(MessagingService.store, ServiceCalls.store)
    rollback = ClientVerb(MessagingService.rollback, ServiceCalls.rollback)
    poll = ClientVerb(MessagingService.poll, ServiceCalls.poll)
    position = ClientVerb(MessagingService.position, ServiceCalls.position)
    save_position = ClientVerb(
        MessagingService.save_position, ServiceCalls.save_position
    )
    bounds = ClientVerb(MessagingService.bounds, ServiceCalls.bounds)
    latest_page = ClientVerb(MessagingService.latest_page, ServiceCalls.latest_page)
    offsets = ClientVerb(MessagingService.offsets, ServiceCalls.offsets)
    wait = ClientVerb(MessagingService.wait, ServiceCalls.wait)


class ProducerMethods:
    """Producers, and what they publish once."""

    open_producer = ClientVerb(
        ProducerService.open_producer, ProducerCalls.open_producer
    )
    publish_once = ClientVerb(ProducerService.publish_once, ProducerCalls.publish_once)
    producers = ClientVerb(ProducerService.producers, ProducerCalls.producers)
    describe_producer = ClientVerb(
        ProducerService.describe_producer, ProducerCalls.describe_producer
    )
    forget_producer = ClientVerb(
        ProducerService.forget_producer, ProducerCalls.forget_producer
    )


class GroupMethods:
    """Groups, but for what their members call."""

    create_group = declared(members.CREATE_GROUP)
    group = declared(members.DESCRIBE_GROUP)
    groups = declared(members.LIST_GROUPS)
    delete_group = declared(members.DELETE_GROUP)
    rewind_group = declared(members.REWIND_GROUP)
    assign_group = declared(members.ASSIGN_GROUP)


class OperatorMethods:
    """What operators call."""

    peek = ClientVerb(OperatorService.peek, AdminCalls.peek)
    namespaces = declared(LIST_NAMESPACES)
    search = declared(operator.SEARCH)
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
