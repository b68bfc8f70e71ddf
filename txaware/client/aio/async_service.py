"""The verbs for programs and for operators as coroutines."""

from txaware.client.aio.async_transport import (
    AsyncTransport,
    awaited,
    awaited_verb,
)
from txaware.client.calls.admin_calls import AdminCalls
from txaware.client.calls.producer_calls import ProducerCalls
from txaware.client.calls.service_calls import ServiceCalls
from txaware.client.calls.verb_calls import steps_of
from txaware.client.server_info import ServerInfo
from txaware.model.interfaces import MessagingService, OperatorService
from txaware.model.producers import ProducerService
from txaware.model.reports import CleanUp, Report
from txaware.protocol import members, operator
from txaware.protocol.topics import LIST_NAMESPACES


class AllCalls(ServiceCalls, AdminCalls):
    """The calls of one client, for programs and for operators, with the same paths."""


class AsyncService:
    """The verbs of `MessagingService` and most of `OperatorService`, awaited."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._calls = AllCalls(transport.link)

    create_topic = awaited(MessagingService.create_topic, ServiceCalls.create_topic)
    update_topic = awaited(MessagingService.update_topic, ServiceCalls.update_topic)
    topic = awaited(MessagingService.topic, ServiceCalls.topic)
    topics = awaited(MessagingService.topics, ServiceCalls.topics)
    delete_topic = awaited(MessagingService.delete_topic, ServiceCalls.delete_topic)
    publish = awaited(MessagingService.publish, ServiceCalls.publish)
    store = awaited(MessagingService.store, ServiceCalls.store)
    rollback = awaited(MessagingService.rollback, ServiceCalls.rollback)
    poll = awaited(MessagingService.poll, ServiceCalls.poll)
    position = awaited(MessagingService.position, ServiceCalls.position)
    save_position = awaited(MessagingService.save_position, ServiceCalls.save_position)
    bounds = awaited(MessagingService.bounds, ServiceCalls.bounds)
    latest_page = awaited(MessagingService.latest_page, ServiceCalls.latest_page)
    offsets = awaited(MessagingService.offsets, ServiceCalls.offsets)
    wait = awaited(MessagingService.wait, ServiceCalls.wait)

    open_producer = awaited(ProducerService.open_producer, ProducerCalls.open_producer)
    publish_once = awaited(ProducerService.publish_once, ProducerCalls.publish_once)
    producers = awaited(ProducerService.producers, ProducerCalls.producers)
    describe_producer = awaited(
        ProducerService.describe_producer, ProducerCalls.describe_producer
    )
    forget_producer = awaited(
        ProducerService.forget_producer, ProducerCalls.forget_producer
    )

    create_group = awaited_verb(members.CREATE_GROUP)
    group = awaited_verb(members.DESCRIBE_GROUP)
    groups = awaited_verb(members.LIST_GROUPS)
    delete_group = awaited_verb(members.DELETE_GROUP)
    rewind_group = awaited_verb(members.REWIND_GROUP)
    assign_group = awaited_verb(members.ASSIGN_GROUP)

    peek = awaited(OperatorService.peek, AdminCalls.peek)
    namespaces = awaited_verb(LIST_NAMESPACES)
    search = awaited_verb(operator.SEARCH)
    inspect = awaited_verb(operator.INSPECT)
    splits = awaited_verb(operator.SPLITS)
    lag_ms = awaited(OperatorService.lag_ms, AdminCalls.lag_ms)
    oldest_unread_ms = awaited(
        OperatorService.oldest_unread_ms, AdminCalls.oldest_unread_ms
    )
    prune = awaited_verb(operator.PRUNE)
    forget_keeper = awaited_verb(operator.FORGET_KEEPER)
    keepers = awaited_verb(operator.LIST_KEEPERS)
    shards = awaited_verb(operator.LIST_SHARDS)
    add_shards = awaited_verb(operator.ADD_SHARDS)
    metrics = awaited_verb(operator.METRICS)

    async def check(self) -> Report:
        """Verifies every invariant of the server's data, which stays in use."""
        return await self._transport.run(steps_of(operator.CHECK)(self._calls))

    async def clean_up(self) -> CleanUp:
        """Removes what has expired, and marks what invalid transactions wrote.

        The server goes on with it when the task that awaits it is cancelled.
        """
        return await self._transport.run(steps_of(operator.CLEAN_UP)(self._calls))

    async def info(self) -> ServerInfo:
        """Returns the instance of the server, and its limits."""
        return await self._transport.run(self._calls.info())
