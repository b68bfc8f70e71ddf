"""The verbs for programs and for operators as coroutines."""

from txaware.client.aio.async_transport import AsyncTransport, AwaitedVerbs
from txaware.client.calls.admin_calls import AdminCalls
from txaware.client.calls.service_calls import ServiceCalls
from txaware.client.calls.verb_calls import steps_of
from txaware.client.server_info import ServerInfo
from txaware.model.group_service import GroupMethods
from txaware.model.interfaces import MessageMethods, OperatorMethods
from txaware.model.producers import ProducerMethods
from txaware.model.reports import CleanUp, Report
from txaware.protocol import operator


class AllCalls(ServiceCalls, AdminCalls):
    """The calls of one client, for programs and for operators, with the same paths."""


class AsyncService(
    AwaitedVerbs, MessageMethods, ProducerMethods, GroupMethods, OperatorMethods
):
    """The verbs of `MessagingService` and most of `OperatorService`, awaited."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport
        self._calls = AllCalls(transport.link)

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
